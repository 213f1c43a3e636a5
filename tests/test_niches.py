"""The controller of renewal, on synthetic members: points in a plane that are told where they are and earn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl import niches
from dvdrl.diversity.behaviours import weighting
from dvdrl.diversity.ordered import ordered_shares

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


LIFE = niches.LONGEST_AWAY + niches.LONGEST_OUTSIDE + 2 * niches.SETTLED + 2
"""More iterations than a member has from its birth until it is judged."""
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


def test_the_best_copy_goes_on_for_longer_while_two_others_look_elsewhere():
    # All are in one place, so all but the fittest are copies. Of four or three copies the best one, member 1, goes on.
    # Of two copies it does not, because only one other would look elsewhere.
    for population, at_first in ((5, [2, 3, 4]), (4, [2, 3]), (3, [1, 2])):
        run = Run(population)
        run.go_on(np.zeros((population, 2)), np.zeros(population))
        qualities = [20 - m for m in range(population)]
        report = run.go_on([[50, 0]] * population, qualities, niches.SETTLED - 1)
        assert np.flatnonzero(report.renewed).tolist() == at_first
    run = Run(4)
    run.go_on(np.zeros((4, 2)), np.zeros(4))
    places = [[50, 0], [50, 0], [0, 50], [0, -50]]
    run.go_on([[50, 0]] * 4, [20, 19, 18, 17], niches.SETTLED - 1)
    start = run.t
    # Members 2 and 3 find other places. When the first of them has settled there, only one looks elsewhere.
    run.go_on(places, [20, 19, 18, 17], niches.RUNNER_UP * niches.SETTLED)
    ends = [start + i + 1 for i, report in enumerate(run.reports[start:]) if report.renewed[1]]
    assert ends[0] <= niches.RUNNER_UP * niches.SETTLED
    assert ends[0] > 2 * niches.SETTLED


def test_a_newborn_is_scored_by_the_distance_to_the_nearest_that_is_known():
    run = Run(3)
    run.go_on([[0, 1], [1, 0], [1, 1]], [0, 0, 0])
    run.go_on(APART, [10, 20, 15], niches.SETTLED - 1)
    behaviours, returns = cloud([*APART[:2], [20, 20]], [10, 20, 0])
    scores = run.controller.score(run.state, behaviours, returns)
    for score, paid in zip(scores[:2], np.asarray(returns)[:2], strict=True):
        np.testing.assert_allclose(score, standard(paid), atol=1e-5)  # the others by their return
    factors = np.asarray(weighting(run.state.coordinates, relevant=True))
    known = np.asarray(run.state.behaviours)[:2]
    distances = np.linalg.norm((np.asarray(behaviours)[2][:, None] - known) * factors, axis=-1).min(axis=1)
    np.testing.assert_allclose(scores[2], standard(distances), atol=1e-3)


def test_a_newborn_goes_away_until_it_is_far_or_time_is_up_and_then_stays_outside_for_a_time():
    for place, stage in (([-200.0, -200.0], niches.OUTSIDE), ([50.0, 1.0], niches.AWAY)):
        run = Run(3)
        run.go_on([[0, 1], [1, 0], [1, 1]], [0, 0, 0])
        run.go_on(APART, [10, 20, 15], niches.SETTLED - 1)
        run.go_on([*APART[:2], place], [10, 20, 0])
        assert run.state.stage[2] == stage
        run.go_on([*APART[:2], place], [10, 20, 0], niches.LONGEST_AWAY - 1)
        assert run.state.stage[2] == niches.OUTSIDE
        run.go_on([*APART[:2], place], [10, 20, 0], niches.LONGEST_OUTSIDE - 1 - int(run.state.age[2]))
        assert run.state.stage[2] == niches.OUTSIDE
        run.go_on([*APART[:2], place], [10, 20, 0])
        assert run.state.stage[2] == niches.FOLLOW


def outside(places, qualities, *, far=False):
    """(scores, returns, distances to member 0) of member 1, which stays outside fitter niches."""
    run = Run(2)
    run.go_on([[0, 1], [1, 0]], [0, 0])
    run.go_on([[40, 0], [0, 40]], [20, 10], niches.SETTLED + 9)
    state = run.state._replace(
        stage=jnp.array([niches.FOLLOW, niches.OUTSIDE]),
        stays_far=jnp.array([False, far]),
        behaviours=jnp.asarray(places, jnp.float32),
        quality=jnp.asarray(qualities, jnp.float32),
    )
    behaviours, returns = cloud(places, qualities)
    factors = np.asarray(weighting(state.coordinates, relevant=True))
    distances = np.linalg.norm((np.asarray(behaviours)[1] - places[0]) * factors, axis=-1)
    return np.asarray(run.controller.score(state, behaviours, returns))[1], np.asarray(returns)[1], distances


def standard(x):
    return (x - x.mean()) / x.std()


@pytest.mark.parametrize(("far", "radius", "place"), [(False, niches.NICHE, 18.0), (True, 2 * niches.NICHE, 34.0)])
def test_inside_a_fitter_niche_a_return_counts_as_the_worst(far, radius, place):
    scores, returns, distances = outside([[40, 0], [40, place]], [20, 10], far=far)
    inside = distances < radius
    assert 0 < inside.sum() < N
    np.testing.assert_allclose(scores, standard(np.where(inside, returns.min(), returns)), atol=1e-4)


def test_where_all_perturbations_are_inside_their_returns_count_as_they_are():
    scores, returns, distances = outside([[40, 0], [40, 1.0]], [20, 10])
    assert (distances < niches.NICHE).all()
    np.testing.assert_allclose(scores, standard(returns), atol=1e-4)


def test_the_niche_of_a_less_fit_member_is_no_obstacle():
    scores, returns, _ = outside([[40, 0], [40, 18.0]], [10, 20])
    np.testing.assert_allclose(scores, standard(returns), atol=1e-4)


def test_who_has_not_settled_ends_nobodys_life():
    run = Run(3)
    run.go_on([[0, 1], [1, 0], [1, 1]], [0, 0, 0])
    run.go_on([[40, 0], [0, 40], [40, 0]], [30, 20, 10], niches.SETTLED - 1)
    assert run.state.stage[2] == niches.AWAY
    # It comes back fitter than the one that it was a copy of, which remains until that has lasted.
    places, qualities = [[40, 0], [0, 40], [40, 0]], [30, 20, 50]
    run.go_on(places, qualities, niches.LONGEST_AWAY + niches.LONGEST_OUTSIDE + niches.SETTLED - 1)
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
    elites, distinct, _ = run.controller.elites(run.state)
    np.testing.assert_array_equal(distinct[:3], [True, True, False])
    np.testing.assert_allclose(elites.quality[:2], [100, 90], atol=0.5)
    np.testing.assert_allclose(elites.behaviours[1], [0, 80], atol=1.0)
    when, who = np.asarray(elites.agents["who"][1])
    assert who == 1
    assert 10 < when <= best  # a member of the time when it was there
    # It goes on: what comes back to that place, and is worse, is a copy of the elite, and does not replace it.
    run.go_on([[80, 0], [0, 80]], [100, 60], LIFE)
    elites, distinct, _ = run.controller.elites(run.state)
    np.testing.assert_allclose(elites.quality[:2], [100, 90], atol=0.5)
    np.testing.assert_array_equal(distinct[:3], [True, True, False])
    # And what comes back and is better takes its place.
    run.go_on([[80, 0], [0, 80]], [100, 95], LIFE)
    elites, distinct, _ = run.controller.elites(run.state)
    np.testing.assert_allclose(elites.quality[:2], [100, 95], atol=0.5)
    np.testing.assert_array_equal(distinct[:3], [True, True, False])


def test_somebody_goes_on_from_where_a_good_elite_was():
    run = Run(3)
    run.go_on([[0, 1], [1, 0], [1, 1]], [0, 0, 0])
    # Member 1 had a better day than member 0 will have, and ends as a worse copy of it. Member 2 is fitter, elsewhere.
    places = [[40, 0], [40, 0], [0, 40]]
    run.go_on(places, [15, 30, 50], 10)
    report = run.go_on(places, [20, 10, 50], niches.SETTLED - 11)
    np.testing.assert_array_equal(report.renewed, [False, True, False])
    report = run.go_on(places, [20, 10, 50])
    np.testing.assert_allclose(run.state.archive.quality[0], 30, atol=1.0)
    np.testing.assert_allclose(report.shares[0], 0, atol=0.05)  # the elite is fitter than member 0, and where it is
    np.testing.assert_array_equal(report.renewed, [False, False, False])


def test_what_comes_to_a_poor_elite_begins_anew():
    run = Run(2)
    run.go_on(np.zeros((2, 2)), [0, 0])
    places = [[80, 0], [0, 80]]
    run.go_on(places, [100, 20], 2 * niches.SETTLED - 1)
    assert run.reports[-1].renewed[1]  # it was different, but poor
    start = run.t
    run.go_on(places, [100, 10], niches.LONGEST_AWAY + niches.LONGEST_OUTSIDE + niches.SETTLED)
    ends = [start + i for i, report in enumerate(run.reports[start:]) if report.renewed[1]]
    assert len(ends) == 1  # it is not given the time that what is unknown has to become good


def test_ends_with_distinct_members_first_and_copies_after():
    run = Run(3)
    run.go_on([[0, 1], [1, 0], [1, 1]], [0, 0, 0])
    run.go_on(APART, [10, 20, 15], 2 * niches.SETTLED)
    elites, distinct, shares = run.controller.elites(run.state)
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
    assert run.controller.elites(run.state)[1][0]


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
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.coordinates, state.quality)))


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


def test_rules_leave_out_parts():
    begins, places, qualities = [[0, 1], [1, 0], [1, 1]], [[0, 50], [50, 0], [50, 0]], [10, 20, 15]

    def renewed(**rules):
        run = Run(3, rules=niches.Rules(**rules))
        run.go_on(begins, [0, 0, 0])
        return run.go_on(places, qualities, niches.SETTLED - 1).renewed.tolist()

    assert renewed() == [False, False, True]
    assert renewed(renewal=False) == [False, False, False]
    assert renewed(order=False) == [False, True, True]  # each of two copies is one of the other
    # Returns depend on the first axis only, and members 0 and 2 differ in the other one only.
    run = {each: Run(2, rules=niches.Rules(relevance=each)) for each in (True, False)}
    for each, copies in run.items():
        for t in range(niches.SETTLED):
            behaviours, _ = cloud([[50, 0], [50, 10]], [0, 0], t)
            returns = behaviours[..., 0] + jnp.array([[20.0], [10.0]])
            copies.state, report = copies.controller.update(copies.state, behaviours, returns, copies.agents())
        assert bool(report.renewed[1]) == each


def test_the_least_return_of_a_good_member_may_be_chosen():
    run = Run(2, rules=niches.Rules(least_return=15.0))
    run.go_on(np.zeros((2, 2)), [0, 0])
    report = run.go_on([[80, 0], [0, 80]], [20, 10], 2 * niches.SETTLED - 1)
    np.testing.assert_array_equal(report.renewed, [False, True])
    np.testing.assert_array_equal(report.distinct, [True, False])


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="population: expected at least 1 member, got 0"):
        niches.niches(0, 2)


@pytest.mark.parametrize(("second", "known"), [([50, 1], 1), ([0, 50], 2)])
def test_every_second_life_stays_far_from_the_only_good_place(second, known):
    run = Run(3, rules=niches.Rules(settled=3, longest_away=2, longest_outside=4))
    run.go_on([[0, 1], [1, 0], [1, 1]], [0, 0, 0])
    far = []
    for _ in range(40):
        # Member 2 is always a copy of member 0. So is member 1, or it is somewhere else.
        report = run.go_on([[50, 0], second, [50, 0]], [20, 15, 10])
        if report.renewed[2]:
            far.append(bool(run.state.stays_far[2]))
    assert far[:4] == ([False, True, False, True] if known == 1 else [False] * 4)


def test_who_looks_elsewhere_is_led_away_from_the_way_to_a_fitter_member():
    run = Run(3, rules=niches.Rules(settled=3, longest_away=2, longest_outside=4))
    run.go_on([[0, 1], [1, 0], [1, 1]], [0, 0, 0])
    where = [[0, 80], [50, 0], [50, 0]]  # member 1 is nearer to the start than member 0
    report = run.go_on(where, [10, 20, 15], 2)
    np.testing.assert_array_equal(report.renewed, [False, False, True])  # judged after three iterations, not twenty
    scales = np.array([0.5, 2.0])

    def expect(origin, end):
        """Member 2 is led from `origin` to `end`."""
        guidance = run.controller.guide(run.state, jnp.asarray(scales, jnp.float32))
        np.testing.assert_array_equal(guidance.stage, [niches.FOLLOW, niches.FOLLOW, run.state.stage[2]])
        np.testing.assert_allclose(guidance.origin[2], origin, rtol=1e-4)
        out = np.asarray(end - origin, np.float64)
        # Steps are compared in units of how much they vary, each coordinate as much as it is relevant.
        weighted = out * scales**2 * np.asarray(run.state.coordinates.relevance, np.float64)
        np.testing.assert_allclose(guidance.direction[2], weighted / (weighted @ out), rtol=1e-4)
        assert not guidance.direction[:2].any()

    def start_and_nearest():
        return np.asarray(run.state.origin, np.float64), np.asarray(run.state.behaviours[1], np.float64)

    # Nobody has seen it yet, so it is taken to be where all began. It goes to the other side of the start.
    start, nearest = start_and_nearest()
    expect(start, 2 * start - nearest)
    on_the_way, beside = [40, 2], [49, 30]
    run.go_on([*where[:2], on_the_way], [10, 20, 0])
    start, nearest = start_and_nearest()
    expect(start, 2 * start - nearest)
    run.go_on([*where[:2], on_the_way], [10, 20, 0])
    assert run.state.stage[2] == niches.OUTSIDE
    # Its return counts in full at the start, and not at all from half of the way on.
    start, nearest = start_and_nearest()
    expect((start + nearest) / 2, start)
    run.go_on([*where[:2], beside], [10, 20, 0], 3)
    assert run.state.stage[2] == niches.OUTSIDE
    # It has come as far as member 1, but elsewhere: it is led on from the nearest point of the way through where it is.
    start, nearest = start_and_nearest()
    factors = np.asarray(weighting(run.state.coordinates, relevant=True), np.float64)
    way, came = (nearest - start) * factors, (np.asarray(run.state.behaviours[2], np.float64) - start) * factors
    passed = came @ way / (way @ way)
    distance = np.linalg.norm(came - passed * way)
    assert niches.HALFWAY < passed < 1
    assert distance > niches.BESIDE
    origin = start + passed * (nearest - start)
    expect(origin, origin + (np.asarray(run.state.behaviours[2]) - origin) * niches.NICHE / distance)
    run.go_on([*where[:2], beside], [10, 20, 30])
    assert run.state.stage[2] == niches.FOLLOW  # free after four iterations
    guidance = run.controller.guide(run.state, jnp.asarray(scales, jnp.float32))
    np.testing.assert_array_equal(guidance.stage, [niches.FOLLOW] * 3)


def test_a_member_who_is_beside_one_other_has_the_least_share_of_a_copy_that_is_none():
    K = np.exp(-(np.array([[0.0, niches.BESIDE], [niches.BESIDE, 0.0]]) ** 2) / (2 * niches.LENGTH_SCALE**2))
    np.testing.assert_allclose(
        ordered_shares(jnp.asarray(K), jnp.asarray([2.0, 1.0]))[1], niches.LEAST_SHARE, rtol=1e-5
    )
