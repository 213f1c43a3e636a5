"""What tests of off-policy learners share: states and steps at random, and transitions whose values are known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dvdrl.off_policy import Learner, Replay, Transitions, pack, pack_step, replay

OBS, ACT, NUM = 3, 2, 128


def first(learner: Learner, seeds: int = 1) -> Any:
    return jax.vmap(learner.init)(jax.random.split(jax.random.key(0), seeds))


def random_steps(learner: Learner, num: int, seeds: int = 1, seed: int = 0) -> list[Array]:
    """As many steps of `num` simulations as an update takes, each (seeds, num, row and ended and obs)."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, (learner.steps_per_update, seeds, num, learner.row_size + 1 + OBS))
    for flag in (OBS + ACT + 1, learner.row_size):  # whether the task ended the episode, and whether anything did
        rows[..., flag] = rng.random(rows.shape[:-1]) < 0.3
    return list(jnp.asarray(rows, jnp.float32))


def fresh(learner: Learner, seeds: int = 1) -> tuple[Any, Replay, Any]:
    memory = replay.empty((seeds, learner.capacity), learner.row_size)
    return first(learner, seeds), memory, learner.no_statistics(seeds)


def assert_equal(a: Any, b: Any) -> None:
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(left.dtype, jax.dtypes.prng_key):
            left, right = jax.random.key_data(left), jax.random.key_data(right)
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


def trained(learner: Learner, population: int, transitions: Transitions, calls: int) -> Any:
    """The state after training on nothing but the given transitions, over and over."""
    rows = pack_step(pack(transitions), transitions.terminated > 0, transitions.obs)
    steps = jnp.asarray(rows.reshape(-1, learner.steps_per_update, 1, population, rows.shape[1]))
    state, memory, sums = fresh(learner)
    for each in steps:
        state, memory = learner.add(state, memory, list(each))
    lambda_ = jnp.zeros((1, population))
    for call in range(calls):
        state, memory, sums = learner.update(state, memory, sums, list(steps[call % len(steps)]), lambda_)
    return state


def one_hot(index: int, num: int) -> np.ndarray:
    return np.tile(np.eye(OBS)[index], (num, 1))


ACTIONS = np.random.default_rng(0).uniform(-1, 1, (NUM, ACT))
NOTHING, ONE = np.zeros(NUM), np.ones(NUM)


def delayed() -> Transitions:
    """s0 pays nothing and leads to s1, which pays 1 and ends."""
    first = Transitions(one_hot(0, NUM), ACTIONS, NOTHING, NOTHING, one_hot(1, NUM))
    second = Transitions(one_hot(1, NUM), ACTIONS, ONE, ONE, one_hot(2, NUM))
    return Transitions(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))


BEST = np.array([0.5, -0.3])


def bandit() -> Transitions:
    """r = -|a - BEST|^2 and the end: the value is the reward, and the best action pays 0."""
    reward = -np.square(ACTIONS - BEST).sum(axis=1)
    return Transitions(one_hot(0, NUM), ACTIONS, reward, ONE, one_hot(0, NUM))
