from contextlib import closing
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from dvdrl.engines import make_vec
from dvdrl.errors import DvdrlError
from dvdrl.interfaces import Episodes, Rollouts
from dvdrl.policies import Agents, Policy, policy_for
from dvdrl.rollouts import Local
from dvdrl.rollouts.tally import replaces


def policy_of(task: str) -> Policy:
    with closing(make_vec(task)) as envs:
        return policy_for(envs.single_observation_space, envs.single_action_space, (8, 8))


def local(task: str) -> Local:
    return Local(partial(make_vec, task, autoreset_mode="Disabled"), policy_of(task))


def rollouts_of(task: str, n: int, scale: float = 1.0) -> Rollouts:
    policy = policy_of(task)
    params = np.asarray(jax.vmap(policy.network.init)(jax.random.split(jax.random.key(0), n))) * scale
    rng, num_observed = np.random.default_rng(0), policy.num_observed
    shift = rng.normal(0, 0.1, (n, num_observed)).astype(np.float32)
    scales = rng.uniform(0.5, 1.5, (n, num_observed)).astype(np.float32)
    return Rollouts(
        member=np.arange(n),
        agents=Agents(params, shift, scales),
        start=np.arange(n, dtype=np.uint32),
        key=np.asarray(jax.random.key_data(jax.random.split(jax.random.key(1), n))),
    )


def take(tree: Any, rows: Any) -> Any:
    return jax.tree.map(lambda field: field[rows], tree)


def assert_equal(a: Episodes, b: Episodes) -> None:
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("task", ["Point-v0", "Walker2d-v5"])  # all end together; each ends when it falls
def test_an_episode_does_not_depend_on_its_batch(task: str) -> None:
    evaluate = local(task)
    rollouts = rollouts_of(task, 37, scale=3.0)
    together = evaluate.run(rollouts)
    for rows in (np.arange(37)[::-1], np.array([5]), np.arange(11, 30)):
        assert_equal(evaluate.run(take(rollouts, rows)), take(together, rows))
    if task == "Walker2d-v5":
        assert len(np.unique(together.lengths)) > 5


def test_an_episode_is_what_stepping_one_environment_gives() -> None:
    evaluate = local("Walker2d-v5")
    rollouts, policy = rollouts_of("Walker2d-v5", 6), policy_of("Walker2d-v5")
    episodes = evaluate.run(rollouts)
    envs = make_vec("Walker2d-v5", 1, autoreset_mode="Disabled")
    for i in (0, 5):
        obs, _ = envs.reset(seed=[int(rollouts.start[i])])
        seen, total, ended = [], 0.0, False
        while not ended:
            seen.append(obs[0])
            params, shift, scale = take(rollouts.agents, i)
            actions = policy.network.apply(params, ((obs - shift) * scale).astype(np.float32))  # bounds are -1 and 1
            obs, reward, terminated, truncated, _ = envs.step(actions)
            total += float(reward[0])
            ended = bool(terminated[0] or truncated[0])
        np.testing.assert_allclose(episodes.returns[i], total, rtol=1e-6)
        assert episodes.lengths[i] == len(seen)
        x = np.stack(seen)
        np.testing.assert_allclose(episodes.moments.mean[i], x.mean(axis=0), rtol=1e-4, atol=1e-5)
        squares = np.square(x - x.mean(axis=0)).sum(axis=0)
        np.testing.assert_allclose(episodes.moments.sum_squares[i], squares, rtol=1e-3, atol=1e-5)
        assert np.isclose(x.astype(np.float32), episodes.states[i], rtol=1e-5, atol=1e-6).all(axis=1).any()


def test_each_state_of_an_episode_is_kept_with_the_same_chance() -> None:
    keys = jax.random.key_data(jax.random.split(jax.random.key(0), 20_000))
    keep = np.asarray(replaces(keys, 0))
    assert keep[:, 0].all()  # the first state is kept until another is
    length = 10
    last = length - 1 - np.argmax(keep[:, :length][:, ::-1], axis=1)
    shares = np.bincount(last, minlength=length) / len(keys)
    # Deviation of a share: sqrt(.1 * .9 / 20,000) = 0.002; ten of them within five.
    np.testing.assert_allclose(shares, 1 / length, atol=0.0106)


def test_a_policy_that_is_not_finite_gives_a_return_that_is_not() -> None:
    evaluate = local("Point-v0")
    rollouts = rollouts_of("Point-v0", 3)
    params = rollouts.agents.params.copy()
    params[1, 0] = np.nan
    episodes = evaluate.run(rollouts._replace(agents=rollouts.agents._replace(params=params)))
    np.testing.assert_array_equal(np.isfinite(episodes.returns), [True, False, True])
    assert_equal(take(episodes, [0, 2]), take(evaluate.run(rollouts), [0, 2]))


def test_a_policy_for_another_task_is_refused() -> None:
    # Walker2d observes 17 numbers and Hopper 11.
    evaluate = Local(partial(make_vec, "Hopper-v5", autoreset_mode="Disabled"), policy_of("Walker2d-v5"))
    with pytest.raises(
        DvdrlError,
        match=r"the policy was made for observations of length 17 .* the environment has observations of length 11",
    ):
        evaluate.run(rollouts_of("Walker2d-v5", 2))
