"""What members are compared by: equal numbers give equal bits by whichever way they come, and constants count 0."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl import bandits, es
from dvdrl.diversity import KERNELS
from dvdrl.interfaces import Episodes, Rollouts
from dvdrl.niches import niches
from dvdrl.policies import Agents, Moments
from probes import Probe

KERNEL = KERNELS["squared-exponential"](0.5**0.5)


class Seen(Probe):
    """The first action is the mean of the first observed number, and is measured; the second one never varies."""

    def _episodes(self, rollouts: Rollouts) -> Episodes:
        episodes = super()._episodes(rollouts)
        first = self.actions(rollouts)[:, :1]
        mean = jnp.concatenate([first, jnp.full_like(first, 3.0)], axis=1)
        squares = jnp.zeros_like(mean).at[:, 0].set(episodes.moments.sum_squares[:, 0])
        return episodes._replace(moments=Moments(episodes.moments.num, mean, squares), measures=mean)


PROBE = Seen(lambda actions: -jnp.square(actions[:, 0] - 0.6))


def make(behaviour: es.Behaviour, **options: Any) -> es.Algorithm:
    given = {
        "population": 3,
        "sensings": 5,
        "sigma": 0.05,
        "learning_rate": 0.05,
        "num_states": 4,
        "kernel": KERNEL,
        "controller": bandits.fixed(0.5),
    }
    return es.evolution_strategy(PROBE.policy, behaviour=behaviour, **(given | options))


def trained(algorithm: es.Algorithm, iterations: int, probe: Any = PROBE) -> tuple[es.State, list[es.Info]]:
    state, lines = algorithm.init(jax.random.key(0)), []
    for _ in range(iterations):
        state, info = algorithm.tell(state, probe(algorithm.ask(state)))
        lines.append(info)
    return state, lines


def same(a: Any, b: Any) -> None:
    """Equal to the bit; the keys of runs with one seed are equal anyway, and are no arrays of numbers."""
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(left.dtype, jax.dtypes.prng_key):
            continue
        np.testing.assert_array_equal(left, right)


def raw(episodes: Episodes) -> Episodes:
    """The same without the moments of observations, which niche-ES and raw visits must not be compared by."""
    return episodes._replace(moments=episodes.moments._replace(mean=jnp.zeros_like(episodes.moments.mean)))


def test_measures_that_are_what_is_visited_give_the_bits_of_visits() -> None:
    # 24 iterations: members are judged, and begin anew, from the twentieth on.
    kinds: list[dict[str, Any]] = [
        {"niches": niches(3, 2), "controller": bandits.fixed(0.0)},
        {"diversity": es.determinants(KERNEL)},
        {"diversity": es.novelty(), "members": "one"},
    ]
    for options in kinds:
        iterations = 24 if "niches" in options else 3
        visits, measures = (trained(make(each, **options), iterations) for each in (es.visits, es.measures))
        same(visits, measures)
        if "niches" in options:
            assert any(np.any(info.niches.renewed) for info in measures[1] if info.niches is not None)
    # It is the measures that count there: without what was visited, the scores are the same.
    algorithm = make(es.measures, diversity=es.determinants(KERNEL), state_filter=False)
    state = algorithm.init(jax.random.key(0))
    episodes = PROBE(algorithm.ask(state))
    same(algorithm.tell(state, episodes)[0].params, algorithm.tell(state, raw(episodes))[0].params)


def test_visits_are_in_units_of_the_deviation_of_all_observations() -> None:
    num = np.array([2.0, 2.0], np.float32)
    mean = np.array([[10.0, 1.0, 7.0], [14.0, 3.0, 7.0]], np.float32)
    moments = Moments(num, mean, np.zeros((2, 3), np.float32))
    episodes = Episodes(np.zeros(2), np.full(2, 2), moments, np.zeros((2, 3)))
    # Of four observations with mean 12 and 2, the squares add up to 16 and 4: deviations 2 and 1. 7 never varied.
    seen = Moments(np.float32(4), np.array([12, 2, 7], np.float32), np.array([16, 4, 0], np.float32))
    agents = Agents(np.zeros((2, 1)), np.zeros((2, 3)), np.ones((2, 3)))
    rows = es.standardized_visits(PROBE.policy, agents, np.zeros((1, 3)), episodes, seen)
    np.testing.assert_allclose(rows, [[-1, -1, 0], [1, 1, 0]])
    np.testing.assert_array_equal(es.visits(PROBE.policy, agents, np.zeros((1, 3)), episodes, seen), mean)


@pytest.mark.parametrize("state_filter", [True, False])
def test_the_unit_of_an_observation_does_not_matter_from_the_first_iteration_on(state_filter: bool) -> None:
    def in_other_units(rollouts: Rollouts) -> Episodes:
        # A power of two, so that nothing is rounded in another way; the filter hides it from policies.
        episodes = PROBE(rollouts)
        num, mean, squares = episodes.moments
        return episodes._replace(moments=Moments(num, mean * 1024, squares * 1024**2))

    algorithm = make(es.standardized_visits, diversity=es.determinants(KERNEL), state_filter=state_filter)
    _, plain = trained(algorithm, 1)
    _, other = trained(algorithm, 1, in_other_units)
    same(plain, other)
    assert np.all(plain[0].diversity["distances"] > 0)


def test_what_never_varies_counts_nothing_and_gives_no_nan() -> None:
    def constant(rollouts: Rollouts) -> Episodes:
        episodes = PROBE(rollouts)
        return episodes._replace(measures=jnp.full((len(episodes.returns), 2), 0.1))

    kinds: list[dict[str, Any]] = [
        {"niches": niches(3, 2), "controller": bandits.fixed(0.0)},
        {"diversity": es.determinants(KERNEL)},
        {"diversity": es.novelty()},
    ]
    for options in kinds:
        state, lines = trained(make(es.measures, **options), 24, constant)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.params, lines)))
        if lines[0].niches is None:  # nobody differs, so the diversity of all perturbations is the same
            np.testing.assert_array_equal(lines[0].diversity["distances"], 0)
    # With a weight of 1 for diversity that is the same for all perturbations, nobody moves.
    state, _ = trained(make(es.measures, diversity=es.novelty(), controller=bandits.fixed(1.0)), 3, constant)
    same(state.params, make(es.measures).init(jax.random.key(0)).params)


def test_niches_of_actions_are_compared_on_the_states_of_the_first_iteration() -> None:
    options: dict[str, Any] = {"niches": niches(3, 4), "controller": bandits.fixed(0.0), "state_interval": None}
    algorithm = make(es.actions, **options)
    first, _ = trained(algorithm, 1)
    last, lines = trained(algorithm, 24)
    same(first.states, last.states)
    assert np.any(first.states != 0)
    # A member of this behaviour has one action for each of the four states.
    assert last.niches.behaviours.shape == (3, 4)
    assert all(info.niches is not None and np.isfinite(info.niches.shares).all() for info in lines)
