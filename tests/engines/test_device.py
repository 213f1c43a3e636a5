"""What the device engine does between two physics steps, against the host engine on the host's own physics.

The physics of the GPU itself is compared by `dvdrl bench tasks --engine device`, where there is one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dvdrl
from dvdrl.engines import device
from dvdrl.engines.host import HostVectorEnv
from dvdrl.errors import DvdrlError
from dvdrl.tasks import registry

NUM_ENVS = 6


def data_of(host: HostVectorEnv, **changes) -> dict[str, jax.Array]:
    """The host's fields as a device would show them."""
    fields = {name: jnp.asarray(value) for name, value in host._data(np.arange(host.num_envs)).items()}
    return {**fields, "nefc": jnp.zeros(host.num_envs, jnp.int32), **changes}


@pytest.mark.parametrize("task_id", ["Hopper-v5", "Ant-v5", "HalfCheetah-FwdBwd-v0", "Point-v0"])
def test_episodes_agree_with_the_host_engine(task_id):
    task = registry.make(task_id, horizon=25)
    host = HostVectorEnv(task, NUM_ENVS, "Disabled")
    observation, _ = host.reset(seed=3)
    rng = np.random.default_rng(0)
    returned = np.zeros(NUM_ENVS)
    with jax.enable_x64(True):
        step = jax.jit(lambda episode, action, data: device.advance(task, episode, action, data)[0])
        episode = device.begin(task, jnp.arange(NUM_ENVS, dtype=jnp.uint32), data_of(host))
        for _ in range(30):  # beyond the horizon: ended episodes must rest on both
            action = rng.uniform(-1, 1, (NUM_ENVS, task.action_size)).astype(np.float32)
            observation, reward, terminated, truncated, _ = host.step(action)
            returned += reward
            episode = step(episode, jnp.asarray(action), data_of(host))
            np.testing.assert_array_equal(episode.terminated, terminated)
            np.testing.assert_array_equal(episode.truncated, truncated)
            np.testing.assert_allclose(episode.observation, observation, rtol=1e-12, atol=1e-12)
            # Actions are single, and so is the sum of their squares, which XLA takes in another order: an ulp a step.
            np.testing.assert_allclose(episode.returned, returned, rtol=0, atol=30 * 2.5e-7)
    assert np.asarray(episode.ended).all()
    assert task_id != "Hopper-v5" or np.asarray(episode.terminated).any()  # it falls: both kinds of end are compared


@pytest.mark.parametrize("wrong", ["not finite", "too many constraints"])
def test_a_lost_world_ends_its_episode_and_no_other(wrong):
    task = registry.make("HalfCheetah-v5")
    host = HostVectorEnv(task, NUM_ENVS)
    host.reset(seed=0)
    before = device.begin(task, jnp.arange(NUM_ENVS, dtype=jnp.uint32), data_of(host))
    action = np.ones((NUM_ENVS, task.action_size), np.float32)
    host.step(action)
    changes = {
        "not finite": {"qvel": jnp.asarray(host.batch.bind("qvel")).at[2, 0].set(jnp.inf)},
        "too many constraints": {"nefc": jnp.zeros(NUM_ENVS, jnp.int32).at[2].set(device.MOST_CONSTRAINTS + 1)},
    }[wrong]
    after, paid, parts = device.advance(task, before, jnp.asarray(action), data_of(host, **changes))
    only_the_third = np.arange(NUM_ENVS) == 2
    np.testing.assert_array_equal(after.unstable, only_the_third)
    np.testing.assert_array_equal(after.terminated, only_the_third)
    assert not np.asarray(after.truncated).any()
    assert paid[2] == parts["reward_forward"][2] == after.returned[2] == 0.0
    assert np.asarray(paid != 0)[~only_the_third].all()
    np.testing.assert_array_equal(after.observation[2], before.observation[2])
    assert np.isfinite(after.observation).all()


def test_starts_follow_their_seeds_whatever_batch_they_are_in():
    task = registry.make("Ant-v5")
    seeds = jnp.asarray([5, 9, 5], jnp.uint32)
    qpos, qvel = device.draw_starts(task, seeds)
    np.testing.assert_array_equal(qpos[0], qpos[2])
    assert np.abs(qpos[0] - qpos[1]).max() > 0
    alone, _ = device.draw_starts(task, seeds[1:2])
    np.testing.assert_array_equal(alone[0], qpos[1])
    # Gymnasium's distribution: uniform noise of 0.1 on positions, around the model's own.
    many, _ = device.draw_starts(task, jnp.arange(2000, dtype=jnp.uint32))
    noise = np.asarray(many) - task.model.qpos0.astype(np.float32)
    assert np.abs(noise).max() <= 0.1 + 1e-6
    np.testing.assert_allclose(noise.std(axis=0), 0.1 / np.sqrt(3), rtol=0.1)
    assert qvel.shape == (3, task.model.nv)


def test_one_clear_message_without_a_gpu_or_without_warp(tmp_path):
    message = r"the device engine needs (MuJoCo Warp .*dvdrl\[gpu\]|an NVIDIA GPU)"
    with pytest.raises(DvdrlError, match=message):
        device.DeviceEngine(registry.make("HalfCheetah-v5"), 4)
    with pytest.raises(DvdrlError, match=message):
        dvdrl.train(dvdrl.ES(task="Point-v0", executor="device", out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()  # nothing was written
