"""The rollouts that ours are compared with return the same; and the comparison has its figures."""

from typing import Any

import jax
import numpy as np
import pytest

from dvdrl.benchmarks.jax import LIBRARIES, measure, rollouts_of
from dvdrl.engines import jax_environment
from dvdrl.policies import policy_for
from dvdrl.rollouts import Compiled


def both(task: str, n: int, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """The returns of n episodes, by ours and by the library."""
    env = jax_environment(task, **options)
    assert env is not None
    policy = policy_for(env.observation_space, env.action_space, (8,))
    rollouts = rollouts_of(policy, n)
    theirs = jax.jit(LIBRARIES[task.partition(":")[0]](env, policy, task))
    expected = np.asarray(theirs(rollouts.agents, rollouts.start))
    return np.asarray(Compiled(env, policy).run(rollouts).returns), expected


def test_gymnaxs_own_rollout_returns_the_same() -> None:
    pytest.importorskip("gymnax")
    returns, expected = both("gymnax:Pendulum-v1", 5, max_steps_in_episode=40)
    np.testing.assert_allclose(returns, expected, rtol=1e-4)
    returns, expected = both("gymnax:CartPole-v1", 30, max_steps_in_episode=60)
    np.testing.assert_array_equal(returns, expected)
    assert len({*expected.tolist()}) > 5  # they fall at different times


def test_playgrounds_own_rollout_returns_the_same() -> None:
    pytest.importorskip("mujoco_playground")
    with jax.numpy_rank_promotion("allow"):
        returns, expected = both("playground:CartpoleBalance", 3, episode_length=20)
    np.testing.assert_allclose(returns, expected, rtol=1e-4)
    assert (expected > 10).all()  # 20 steps that pay almost 1 each


def test_the_speed_of_both_is_measured() -> None:
    pytest.importorskip("gymnax")
    row = measure("gymnax:Pendulum-v1", 3, {"max_steps_in_episode": 5}, turns=1)
    assert row.ratio == pytest.approx(row.steps_per_second / row.library_steps_per_second)
