"""ES, NSR-ES and DvD-ES on probe problems, and the equalities between them."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl import bandits
from dvdrl.diversity import KERNELS, determinant, gram
from dvdrl.es import Algorithm, State, determinants, evolution_strategy, novelty
from probes import Probe

KERNEL = KERNELS["squared-exponential"](0.5**0.5)
TARGET = jnp.asarray([0.5, -0.3])
to_target = Probe(lambda actions: -jnp.sum(jnp.square(actions - TARGET[None]), axis=1), num_actions=2)


DEFAULTS: dict[str, Any] = {
    "population": 3,
    "sensings": 10,
    "sigma": 0.1,
    "learning_rate": 0.01,
    "kernel": KERNEL,
    "controller": bandits.fixed(0.0),
    "num_states": 5,
}


def make(probe: Probe, **options: Any) -> Algorithm:
    return made(probe, **(DEFAULTS | options))


@functools.cache  # tests share what is compiled
def made(probe: Probe, **options: Any) -> Algorithm:
    return evolution_strategy(probe.policy, **options)


def train(algorithm: Algorithm, probe: Probe, iterations: int, seed: int = 0) -> State:
    state = algorithm.init(jax.random.key(seed))
    for _ in range(iterations):
        state, _ = algorithm.tell(state, probe(algorithm.ask(state)))
    return state


def assert_equal(a: Any, b: Any) -> None:
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


def test_at_lambda_0_the_variants_are_es_to_the_bit() -> None:
    # With Adam, the rule with the most state; the step comes after all in which the variants differ.
    plain = train(make(to_target, step_rule="adam"), to_target, 3)
    for diversity in (determinants(KERNEL), novelty()):
        variant = train(make(to_target, step_rule="adam", diversity=diversity), to_target, 3)
        assert_equal(plain.params, variant.params)
        assert_equal(plain.optimizer, variant.optimizer)
        assert_equal(plain.moments, variant.moments)


def test_each_member_steps_by_its_own_lambda() -> None:
    # After one iteration the first member is where ES has it and the others are where lambda 0.5 has them, to the bit.
    options: dict[str, Any] = {"diversity": determinants(KERNEL)}
    lambdas = jnp.asarray([0.0, 0.5, 0.5])
    by_member = bandits.Controller(
        init=lambda: lambdas, select=lambda key, state: (state, state), update=lambda state, returns: state
    )
    mixed = train(make(to_target, controller=by_member, **options), to_target, 1)
    es = train(make(to_target, **options), to_target, 1)
    half = train(make(to_target, controller=bandits.fixed(0.5), **options), to_target, 1)
    assert_equal(mixed.params, np.where(lambdas[:, None] == 0, es.params, half.params))
    assert not np.array_equal(es.params, half.params)


VARIANTS: dict[str, dict[str, Any]] = {
    "es": {},
    "nsr-es": {"diversity": novelty(), "controller": bandits.fixed(0.2), "members": "one"},
    "dvd-es": {
        "diversity": determinants(KERNEL),
        "controller": bandits.thompson(),
        "normalization": "across-members",
        "orthogonal": True,
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("population", [1, 3])
def test_every_algorithm_reaches_a_known_optimum(variant: str, population: int) -> None:
    # The optimum is 0, at TARGET; members start near action 0, at about -0.34. Standardised scores keep the length of
    # the step near the optimum: 0.01 / 0.1 * sqrt(d / 2k) = 0.14 in 40 parameters, less than 0.1 in either action.
    algorithm = make(to_target, population=population, **VARIANTS[variant])
    state = train(algorithm, to_target, 80 * (population if variant == "nsr-es" else 1))
    returns = to_target(algorithm.ask(state)).returns[:population]
    assert float(jnp.max(returns)) > -0.02
    if variant == "es":
        assert float(jnp.min(returns)) > -0.02


def test_nsr_es_updates_one_member_and_its_filter_alone() -> None:
    algorithm = make(to_target, **VARIANTS["nsr-es"])
    before = algorithm.init(jax.random.key(0))
    rollouts = algorithm.ask(before)
    assert len(rollouts.start) == 3 + 2 * 10  # all members unperturbed, one perturbed
    after, _ = algorithm.tell(before, to_target(rollouts))
    changed = np.any(np.asarray(before.params) != np.asarray(after.params), axis=1)
    assert changed.sum() == 1
    np.testing.assert_array_equal(np.asarray(after.moments.num), np.where(changed, 2.0 * 20, 0.0))


def test_novelty_is_the_mean_distance_to_the_others() -> None:
    # Behaviours in one dimension: members at 0, 1 and 5; member 1 perturbed to 2 and -1.
    members, perturbed = jnp.asarray([[0.0], [1.0], [5.0]]), jnp.asarray([[[2.0], [-1.0]]])
    scores = novelty()(members, perturbed, jnp.asarray([1]))
    np.testing.assert_allclose(scores, [[(2 + 3) / 2, (1 + 6) / 2]])


def test_determinant_scores_joint_perturbations() -> None:
    # Two members at distance 1 under perturbation 0, at 0 under perturbation 1: det = 1 - k^2, k = exp(-d^2).
    perturbed = jnp.asarray([[[0.0], [3.0]], [[1.0], [3.0]]])
    scores = determinants(KERNEL)(jnp.zeros((2, 1)), perturbed, jnp.arange(2))
    expected = [1 - np.exp(-2.0), 0.0]
    np.testing.assert_allclose(scores, [expected, expected], atol=1e-5)  # the shrinkage of the determinant


def test_determinant_scores_one_perturbed_member_beside_the_others_as_they_are() -> None:
    # Members at 0 and 3; the second alone is perturbed, to distances 1 and 0 of the first.
    members, perturbed = jnp.asarray([[0.0], [3.0]]), jnp.asarray([[[-1.0], [0.0]]])
    scores = determinants(KERNEL)(members, perturbed, jnp.asarray([1]))
    np.testing.assert_allclose(scores, [[1 - np.exp(-2.0), 0.0]], atol=1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_replacing_a_row_gives_the_determinant_of_the_whole_matrix(name: str) -> None:
    # One member of three is perturbed in two ways: the score is that of the Gram matrix computed anew.
    kernel, rng = KERNELS[name](0.7), np.random.default_rng(0)
    members, perturbed = jnp.asarray(rng.normal(size=(3, 4))), jnp.asarray(rng.normal(size=(1, 2, 4)))
    scores = determinants(kernel)(members, perturbed, jnp.asarray([1]))
    expected = [determinant(gram(kernel, members.at[1].set(row))) for row in perturbed[0]]
    np.testing.assert_allclose(scores, [expected], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("t", "factor"), [(1, 1.0), (12, 0.4814), (100_000, 10**0.5)])
def test_the_authors_step_is_a_sign_times_what_is_left_of_adam(t: int, factor: float) -> None:
    # (1 - b1) / sqrt(1 - b2) * sqrt(1 - b2^t) / (1 - b1^t) = 3.1623 * sqrt(1 - .999^12) / (1 - .9^12) = 0.4814.
    from dvdrl.es.es import _optimizer

    rule = _optimizer("authors", 0.05)
    state = jax.tree.map(lambda leaf: leaf + (t - 1), rule.init(jnp.zeros(3)))
    step, _ = rule.update(jnp.asarray([7.0, -1e-3, 0.0]), state)
    np.testing.assert_allclose(step, 0.05 * factor * np.array([1.0, -1.0, 0.0]), rtol=1e-3)


def test_states_are_refreshed_at_the_interval_and_come_from_the_iteration() -> None:
    algorithm = make(to_target, state_interval=2)
    state, chosen = algorithm.init(jax.random.key(0)), []
    for iteration in range(4):
        episodes = to_target(algorithm.ask(state))
        state, _ = algorithm.tell(state, episodes)
        if iteration % 2 == 0:
            rows = {tuple(row) for row in np.asarray(episodes.states).tolist()}
            assert all(tuple(row) in rows for row in np.asarray(state.states).tolist())
        chosen.append(np.asarray(state.states))
    np.testing.assert_array_equal(chosen[0], chosen[1])
    np.testing.assert_array_equal(chosen[2], chosen[3])
    assert (chosen[0] != chosen[2]).any()


def test_starts_are_the_same_in_a_run_in_an_iteration_or_nowhere() -> None:
    counts = {}
    for starts in ("same", "per-iteration", "per-rollout"):
        algorithm = make(to_target, starts=starts)
        state = algorithm.init(jax.random.key(0))
        first = algorithm.ask(state).start
        second = algorithm.ask(state._replace(iteration=state.iteration + 1)).start
        counts[starts] = (len(np.unique(first)), len(np.unique(np.concatenate([first, second]))))
    n = 3 + 3 * 20
    assert counts == {"same": (1, 1), "per-iteration": (1, 2), "per-rollout": (n, 2 * n)}


def test_functions_are_compiled_once() -> None:
    algorithm = make(to_target, **VARIANTS["dvd-es"])
    state = algorithm.init(jax.random.key(0))
    state, _ = algorithm.tell(state, to_target(algorithm.ask(state)))
    rollouts = algorithm.ask(state)
    episodes = to_target(rollouts)
    with jax.no_tracing():
        algorithm.tell(state, episodes)
        algorithm.ask(state)
