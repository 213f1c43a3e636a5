"""Rollouts on a device, with the host's physics in place of a GPU's: the same episodes as `Local`."""

import functools
from contextlib import closing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl.engines import make_vec
from dvdrl.engines.host import HostVectorEnv
from dvdrl.interfaces import Rollouts
from dvdrl.policies import Agents, policy_for
from dvdrl.rollouts import device
from dvdrl.rollouts.local import Local
from dvdrl.tasks import registry


class HostPhysics:
    """The interface of DeviceEngine, over a batch of the host engine."""

    def __init__(self, task, num_envs):
        self.envs = HostVectorEnv(task, num_envs)
        self.envs.reset(seed=0)

    def reset(self, qpos, qvel):
        self.envs.batch.bind("qpos")[...] = qpos
        self.envs.batch.bind("qvel")[...] = qvel
        self.envs.batch.bind("qacc_warmstart")[...] = 0.0
        self.envs.batch.forward()

    def step(self, action):
        self.envs.batch.bind("ctrl")[...] = action
        self.envs.batch.step(nstep=self.envs.task.frame_skip)

    def data(self):
        # Copies: a GPU's buffers are read before they are overwritten, which nothing orders here.
        fields = {name: jnp.asarray(np.array(value), jnp.float32) for name, value in self.envs._fields.items()}
        return {**fields, "nefc": jnp.zeros(self.envs.num_envs, jnp.int32)}


def policy_of(task):
    with closing(make_vec(task)) as envs:
        return policy_for(envs.single_observation_space, envs.single_action_space, (8, 8))


def rollouts_of(policy, n):
    keys = jax.random.split(jax.random.key(0), n)
    ones = jnp.ones((n, policy.num_observed))
    return Rollouts(
        member=jnp.zeros(n, jnp.int32),
        agents=Agents(jax.vmap(policy.network.init)(keys), 0.1 * ones, 0.5 * ones),
        start=jnp.arange(n, dtype=jnp.uint32),
        key=jax.random.key_data(keys),
    )


@pytest.mark.parametrize("task_id", ["Hopper-v5", "HalfCheetah-FwdBwd-v0"])
def test_episodes_agree_with_those_on_the_host(task_id, monkeypatch):
    n, task = 5, registry.make(task_id, horizon=20)
    local = Local(functools.partial(make_vec, task, autoreset_mode="Disabled"), policy_of(task))
    rollouts = rollouts_of(policy_of(task), n)
    expected = local.run(rollouts)

    host = HostVectorEnv(task, n)
    host.reset(seed=np.asarray(rollouts.start).tolist())
    starts = [jnp.asarray(host.batch.bind(name), jnp.float32) for name in ("qpos", "qvel")]
    monkeypatch.setattr(device, "draw_starts", lambda task, seeds: starts)
    on_device = device.Device(task, policy_of(task), HostPhysics)
    episodes = on_device.run(rollouts)
    assert set(episodes.modes) == set(expected.modes) == set(task.modes)
    for mode in task.modes:
        np.testing.assert_allclose(episodes.modes[mode], expected.modes[mode], rtol=1e-3, atol=1e-3)

    np.testing.assert_array_equal(episodes.lengths, expected.lengths)
    # Observations are single precision here: about 1e-6 of an observation's size, grown over twenty steps.
    np.testing.assert_allclose(episodes.returns, expected.returns, rtol=1e-3)
    np.testing.assert_allclose(episodes.moments.num, expected.moments.num)
    np.testing.assert_allclose(episodes.moments.mean, expected.moments.mean, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(episodes.moments.sum_squares, expected.moments.sum_squares, rtol=2e-2, atol=1e-3)


def test_the_kept_state_is_one_that_was_seen():
    # With a horizon of one step only the first observation is acted on: it is the one that is kept.
    task = registry.make("Point-v0", horizon=1)
    on_device = device.Device(task, policy_of(task), HostPhysics)
    episodes = on_device.run(rollouts_of(policy_of(task), 4))
    np.testing.assert_array_equal(episodes.lengths, 1)
    np.testing.assert_allclose(episodes.states, episodes.moments.mean)
    np.testing.assert_array_equal(episodes.moments.sum_squares, 0.0)


def test_every_state_is_kept_with_the_same_chance():
    # Point's x moves on in every step under full thrust: the kept state tells its step.
    task = registry.make("Point-v0", horizon=4)
    on_device = device.Device(task, policy_of(task), HostPhysics)
    n = 600
    rollouts = rollouts_of(policy_of(task), n)
    same = jax.tree.map(lambda leaf: jnp.tile(leaf[:1], (n, 1)), rollouts.agents)
    rollouts = rollouts._replace(start=jnp.zeros(n, jnp.uint32), agents=same)
    states = np.asarray(on_device.run(rollouts).states)
    _, counts = np.unique(states, axis=0, return_counts=True)
    assert len(counts) == 4
    assert np.abs(counts - n / 4).max() < 4 * np.sqrt(n * 0.25 * 0.75)  # four standard deviations, fixed seed


def test_an_action_that_is_not_finite_ends_its_episode_and_says_so():
    task = registry.make("Point-v0", horizon=5)
    on_device = device.Device(task, policy_of(task), HostPhysics)
    rollouts = rollouts_of(policy_of(task), 3)
    with jax.debug_nans(False):
        params = rollouts.agents.params.at[1].set(jnp.nan)
        episodes = on_device.run(rollouts._replace(agents=rollouts.agents._replace(params=params)))
    np.testing.assert_array_equal(np.isnan(episodes.returns), [False, True, False])
    np.testing.assert_array_equal(episodes.lengths, [5, 0, 5])


def test_states_are_asked_together_and_answered_apart():
    task = registry.make("Point-v0", horizon=5)
    on_device = device.Device(task, policy_of(task), HostPhysics)
    rollouts = rollouts_of(policy_of(task), 5)
    parts = [jax.tree.map(lambda field: field[:2], rollouts), jax.tree.map(lambda field: field[2:], rollouts)]
    first, second = on_device.evaluate(lambda number: parts[number], [0, 1])
    together = on_device.run(rollouts)
    np.testing.assert_array_equal(np.concatenate([first.returns, second.returns]), together.returns)
    np.testing.assert_array_equal(np.concatenate([first.states, second.states]), together.states)
