"""The controller of renewal, on synthetic members: points in a plane that are told where they are and earn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl import niches
from dvdrl.diversity.behaviours import weighting

N = 40
"""Perturbations of a member: 20 both ways."""


def cloud(places, qualities, seed=0, noise=1.0):
    """(behaviours (M, N, 2), returns (M, N)): deviation 1 around each place; returns depend on both axes."""
    half = np.random.default_rng(seed).normal(size=(len(places), N // 2, 2))
    half *= noise / half.std(axis=1, keepdims=True)
    off = np.concatenate([half, -half], axis=1)
    behaviours = np.asarray(places, float)[:, None] + off
    returns = np.asarray(qualities, float)[:, None] + off.sum(axis=-1)
    return jnp.asarray(behaviours, jnp.float32), jnp.asarray(returns, jnp.float32)


class Run:
    """Feeds the controller; `agents` of a member are (iteration, member), so that what is kept tells what it is of."""

    def __init__(self, population, **options):
        self.controller = niches.niches(population, 2, **options)
        self.M, self.t = population, 0
        self.state = self.controller.init(self.agents())
        self._update = jax.jit(self.controller.update)
        self.reports = []

    def agents(self):
        return {"who": jnp.array([[self.t, m] for m in range(self.M)], jnp.float32)}

    def go_on(self, places, qualities, iterations=1):
        for _ in range(iterations):
            self.state, report = self._update(self.state, *cloud(places, qualities, self.t), self.agents())
            self.reports.append(report)
            self.t += 1
        return report


APART = [[0.0, 50.0], [50.0, 0.0], [50.0, 0.0]]


def test_a_worse_copy_begins_anew_when_it_has_settled_and_not_before():
    run = Run(3)
    run.go_on([[0, 1], [1, 0], [1, 1]], [0, 0, 0])  # all begin near the origin
    run.go_on(APART, [10, 20, 15], niches.SETTLED - 2)
    assert not np.any([report.renewed for report in run.reports])
    report = run.go_on(APART, [10, 20, 15])
    # Member 2 is where the fitter member 1 is. Member 0 is the least fit, and alone.
    np.testing.assert_array_equal(report.renewed, [False, False, True])
    np.testing.assert_allclose(report.shares, [1, 1, 0], atol=0.05)
    np.testing.assert_array_equal(run.state.stage, [niches.FOLLOW, niches.FOLLOW, niches.AWAY])
    assert not report.distinct.any()  # it takes longer to tell who is good and different
    report = run.go_on(APART, [10, 20, 15], niches.SETTLED)
    np.testing.assert_array_equal(report.distinct, [True, True, False])


def test_worse_copies_take_turns_to_begin_anew_and_to_search():
    run = Run(5)
    run.go_on(np.eye(5)[:, :2], np.zeros(5))
    report = run.go_on([[40, 0]] * 5, [10, 50, 20, 30, 40], niches.SETTLED - 1)
    away, search, follow = niches.AWAY, niches.SEARCH, niches.FOLLOW
    np.testing.assert_array_equal(run.state.stage, [away, follow, search, away, search])
    np.testing.assert_array_equal(report.renewed, [True, False, False, True, False])


def test_a_newborn_is_scored_by_the_distance_to_the_nearest_that_is_known():
    run = Run(3)
    run.go_on([[0, 1], [1, 0], [1, 1]], [0, 0, 0])
    run.go_on(APART, [10, 20, 15], niches.SETTLED - 1)
    behaviours, returns = cloud([*APART[:2], [20, 20]], [10, 20, 0])
    scores = run.controller.score(run.state, behaviours, returns)
    standard = lambda x: (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True)  # noqa: E731
    np.testing.assert_allclose(scores[:2], standard(np.asarray(returns))[:2], atol=1e-5)  # the others by their return
    factors = np.asarray(weighting(run.state.coordinates, relevant=True))
    known = np.asarray(run.state.behaviours)[:2]
    distances = np.linalg.norm((np.asarray(behaviours)[2][:, None] - known) * factors, axis=-1).min(axis=1)
    np.testing.assert_allclose(scores[2], standard(distances), atol=1e-3)


def test_a_newborn_goes_away_until_it_is_far_or_time_is_up():
    for place, stage in (([-200.0, -200.0], niches.FOLLOW), ([50.0, 1.0], niches.AWAY)):
        run = Run(3)
        run.go_on([[0, 1], [1, 0], [1, 1]], [0, 0, 0])
        run.go_on(APART, [10, 20, 15], niches.SETTLED - 1)
        run.go_on([*APART[:2], place], [10, 20, 0])
        assert run.state.stage[2] == stage
        run.go_on([*APART[:2], place], [10, 20, 0], niches.LONGEST_AWAY - 1)
        assert run.state.stage[2] == niches.FOLLOW


def test_a_search_goes_half_for_the_return_and_half_along_its_direction():
    run = Run(2)
    run.go_on([[0, 1], [1, 0]], [0, 0])
    run.go_on([[40, 0]] * 2, [20, 10], niches.SETTLED - 1)
    # The first one in turn begins anew; the search is put in place by hand.
    direction = jnp.array([[0, 0], [0, 1.0]])
    state = run.state._replace(stage=jnp.array([niches.FOLLOW, niches.SEARCH]), direction=direction)
    behaviours, returns = cloud([[40, 0]] * 2, [20, 10])
    scores = run.controller.score(state, behaviours, returns)
    standard = lambda x: (x - x.mean()) / x.std()  # noqa: E731
    pays, along = standard(np.asarray(returns)[1]), standard(np.asarray(behaviours)[1, :, 1])
    np.testing.assert_allclose(scores[1], (pays + along) / 2, atol=1e-4)


def test_a_search_goes_where_a_perturbation_led_that_cost_nothing():
    run = Run(3)
    run.go_on([[0, 1], [1, 0], [1, 1]], [0, 0, 0])
    run.go_on([[40, 0]] * 3, [30, 20, 10], niches.SETTLED - 2)
    behaviours, returns = cloud([[40, 0]] * 3, [30, 20, 10])
    # One perturbation led far along +y and one, which cost more, farther along -y.
    behaviours = behaviours.at[:, 0, 1].add(30.0).at[:, 1, 1].add(-60.0)
    returns = returns.at[:, 0].add(1.0).at[:, 1].add(-100.0)
    state, _ = run.controller.update(run.state, behaviours, returns, run.agents())
    np.testing.assert_array_equal(state.stage, [niches.FOLLOW, niches.AWAY, niches.SEARCH])
    assert state.direction[2, 1] > 0.9
    assert float(jnp.linalg.norm(state.direction[2])) == pytest.approx(1.0, abs=1e-5)


def test_who_has_not_settled_ends_nobodys_life():
    run = Run(3)
    run.go_on([[0, 1], [1, 0], [1, 1]], [0, 0, 0])
    run.go_on([[40, 0]] * 3, [30, 20, 10], niches.SETTLED - 1)
    assert run.state.stage[2] == niches.SEARCH
    # It comes back fitter than the one that it was a copy of, which remains until that has lasted.
    places, qualities = [[40, 0], [0, 40], [40, 0]], [30, 20, 50]
    run.go_on(places, qualities, niches.LONGEST_SEARCH + niches.SETTLED - 1)
    assert not np.any([report.renewed[0] for report in run.reports])
    run.go_on(places, qualities, 2)
    assert run.state.stage[0] != niches.FOLLOW
    assert run.state.stage[2] == niches.FOLLOW


def test_one_that_is_on_the_way_of_a_fitter_one_is_a_slow_copy():
    # Both ran from the origin the same way; member 1 came half as far. Member 2 came as far another way.
    places = [[80, 0], [40, 0], [0, 40]]
    run = Run(3)
    run.go_on(np.zeros((3, 2)), [0, 0, 0])
    report = run.go_on(places, [30, 20, 10], niches.SETTLED - 1)
    assert report.shares[1] > 0.9  # by its distance alone it is no copy
    np.testing.assert_array_equal(report.renewed, [False, True, False])


def test_one_that_has_hardly_begun_another_way_is_no_slow_copy():
    # Six units of noise from the origin, which is less than what the kernel takes for apart, but on its other side.
    run = Run(2)
    run.go_on(np.zeros((2, 2)), [0, 0])
    report = run.go_on([[30, 0], [-6, 0]], [30, 20], niches.SETTLED - 1)
    np.testing.assert_array_equal(report.renewed, [False, False])


def test_what_is_different_but_not_good_is_given_more_time_and_begins_anew():
    run = Run(2)
    run.go_on(np.zeros((2, 2)), [0, 0])
    places, qualities = [[80, 0], [0, 80]], [100, 20]  # a fifth of what the best has gained, where a quarter is good
    run.go_on(places, qualities, 2 * niches.SETTLED - 2)
    assert not np.any([report.renewed for report in run.reports])
    report = run.go_on(places, qualities)
    np.testing.assert_array_equal(report.renewed, [False, True])
    np.testing.assert_array_equal(report.distinct, [True, False])


def test_what_was_good_and_different_is_not_lost():
    run = Run(2)
    run.go_on(np.zeros((2, 2)), [0, 0])
    run.go_on([[80, 0], [0, 80]], [100, 90], 30)
    best = run.t - 1
    # Member 1 loses what it was and ends as a worse copy of member 0; it is renewed.
    run.go_on([[80, 0], [80, 0]], [100, 50], 20)
    assert np.any([report.renewed[1] for report in run.reports])
    elites, distinct, _ = niches.elites(run.state)
    np.testing.assert_array_equal(distinct[:3], [True, True, False])
    np.testing.assert_allclose(elites.quality[:2], [100, 90], atol=0.5)
    np.testing.assert_allclose(elites.behaviours[1], [0, 80], atol=1.0)
    when, who = np.asarray(elites.agents["who"][1])
    assert who == 1
    assert 10 < when <= best  # a member of the time when it was there
    # It goes on: what comes back to that place, and is worse, is a copy of the elite, and does not replace it.
    run.go_on([[80, 0], [0, 80]], [100, 60], 60)
    elites, distinct, _ = niches.elites(run.state)
    np.testing.assert_allclose(elites.quality[:2], [100, 90], atol=0.5)
    np.testing.assert_array_equal(distinct[:3], [True, True, False])
    # And what comes back and is better takes its place.
    run.go_on([[80, 0], [0, 80]], [100, 95], 60)
    elites, distinct, _ = niches.elites(run.state)
    np.testing.assert_allclose(elites.quality[:2], [100, 95], atol=0.5)
    np.testing.assert_array_equal(distinct[:3], [True, True, False])


def test_ends_with_distinct_members_first_and_copies_after():
    run = Run(3)
    run.go_on([[0, 1], [1, 0], [1, 1]], [0, 0, 0])
    run.go_on(APART, [10, 20, 15], 2 * niches.SETTLED)
    elites, distinct, shares = niches.elites(run.state)
    np.testing.assert_array_equal(elites.agents["who"][:3, 1], [1, 0, 2])
    # The fittest has a share of 1, who is far away from it almost 1, its copy almost 0, and nobody none at all.
    np.testing.assert_allclose(shares[:3], [1, 1, 0], atol=0.05)
    np.testing.assert_array_equal(shares[3:], np.zeros(6))
    np.testing.assert_array_equal(distinct[:3], [True, True, False])
    assert (np.asarray(elites.quality)[3:] == -np.inf).all()


def test_one_member_alone_follows_its_return():
    run = Run(1)
    for t in range(60):
        report = run.go_on([[t, 0]], [t])
    assert not np.any([report.renewed for report in run.reports])
    assert report.distinct[0]
    assert report.shares[0] == 1.0
    assert niches.elites(run.state)[1][0]


@pytest.mark.parametrize("still", ["behaviours", "returns", "both"])
def test_nothing_that_varies_gives_no_nan(still):
    controller = niches.niches(3, 2)
    state = controller.init(jnp.zeros((3, 4)))
    step = jax.jit(controller.update)
    for t in range(60):
        behaviours, returns = cloud([[1, 2]] * 3, [5, 5, 5], t)
        if still != "returns":
            behaviours = jnp.full_like(behaviours, 1234.567)
        if still != "behaviours":
            returns = jnp.full_like(returns, -98.76)
        scores = controller.score(state, behaviours, returns)
        assert np.isfinite(scores).all()
        state, report = step(state, behaviours, returns, jnp.zeros((3, 4)))
        assert np.isfinite(report.shares).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.coordinates, state.quality, state.direction)))


def test_seeds_together_equal_seeds_apart():
    controller = niches.niches(4, 2)
    clouds = [cloud([[40, 0]] * 4, [4, 3, 2, 1], seed) for seed in range(3)]
    states = [controller.init(jnp.zeros((4, 2))) for _ in clouds]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    step, steps = jax.jit(controller.update), jax.jit(jax.vmap(controller.update))
    for _ in range(25):
        states = [step(state, *each, jnp.ones((4, 2)))[0] for state, each in zip(states, clouds, strict=True)]
        together, _ = steps(together, *map(jnp.stack, zip(*clouds, strict=True)), jnp.ones((3, 4, 2)))
    apart = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    assert (np.asarray(apart.stage) != niches.FOLLOW).any()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), together, apart)


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="population: expected at least 1 member, got 0"):
        niches.niches(0, 2)
