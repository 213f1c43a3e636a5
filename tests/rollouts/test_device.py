"""Rollouts on a device, with the host's physics in place of a GPU's: the same episodes as `Local`."""

import functools
import json
from contextlib import closing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dvdrl
from dvdrl.engines import make_vec
from dvdrl.engines.host import HostVectorEnv
from dvdrl.errors import DvdrlError
from dvdrl.interfaces import Rollouts
from dvdrl.policies import Agents, policy_for
from dvdrl.rollouts import device
from dvdrl.rollouts.local import Local
from dvdrl.rollouts.measures import Measure, Measures
from dvdrl.tasks import registry
from stopped_runs import assert_same_run, numbers


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


def test_the_kept_states_are_among_those_that_the_host_visits_and_the_work_ends_with_the_last_episode(monkeypatch):
    # Hoppers that fall at different times, all within the first 100 steps, after which it is seen that none is left.
    n, task = 5, registry.make("Hopper-v5", horizon=250)
    policy = policy_of(task)
    rollouts = rollouts_of(policy, n)
    host = HostVectorEnv(task, n, "Disabled")
    observation, _ = host.reset(seed=np.asarray(rollouts.start).tolist())
    starts = [jnp.asarray(host.batch.bind(name), jnp.float32) for name in ("qpos", "qvel")]
    visited, ended = [[] for _ in range(n)], np.zeros(n, bool)
    while not ended.all():
        for i in np.flatnonzero(~ended):
            visited[i].append(observation[i])
        outputs = np.asarray(policy.outputs(rollouts.agents, observation.astype(np.float32)[:, None]))[:, 0]
        observation, _, terminated, truncated, _ = host.step(policy.head.actions(outputs))
        ended |= terminated | truncated
    assert len({len(each) for each in visited}) > 1

    steps = []

    class Counted(HostPhysics):
        def step(self, action):
            steps.append(action)
            super().step(action)

    monkeypatch.setattr(device, "draw_starts", lambda task, seeds: starts)
    episodes = device.Device(task, policy, Counted).run(rollouts)
    np.testing.assert_array_equal(episodes.lengths, [len(each) for each in visited])
    assert len(steps) == 100
    for state, of_episode in zip(np.asarray(episodes.states), visited, strict=True):
        assert np.abs(np.stack(of_episode) - state).max(axis=1).min() < 1e-3


def test_a_run_on_a_device_is_like_one_on_the_host_and_goes_on_after_a_stop(monkeypatch, tmp_path):
    def starts(task, seeds):
        """Those of the host's engine; by a callback, because `Device` compiles this function."""
        shapes = [jax.ShapeDtypeStruct((len(seeds), size), jnp.float32) for size in (task.model.nq, task.model.nv)]
        return jax.pure_callback(functools.partial(on_host, task), shapes, seeds)

    def on_host(task, seeds):
        host = HostVectorEnv(task, len(seeds))
        host.reset(seed=np.asarray(seeds).tolist())
        return [host.batch.bind(name).astype(np.float32) for name in ("qpos", "qvel")]

    monkeypatch.setattr(device, "draw_starts", starts)
    monkeypatch.setattr(device, "Device", functools.partial(device.Device, make_engine=HostPhysics))
    monkeypatch.setattr("dvdrl.engines.device.libraries", lambda: None)  # there is no GPU to be found
    monkeypatch.setattr("dvdrl.record.version", lambda package: f"the version of {package}")

    def train(executor, iterations=3):
        out = tmp_path / f"{executor}-{iterations}"
        small = {"population": 2, "sensings": 3, "hidden": (4,), "num_states": 4, "starts": "per-rollout"}
        dvdrl.train(
            dvdrl.DvDES(
                task="HalfCheetah-FwdBwd-v0",
                task_options={"horizon": 10},
                executor=executor,
                iterations=iterations,
                out=out,
                **small,
            )
        )
        return out

    whole, stopped = train("device"), train("device", iterations=2)
    assert json.loads((whole / "record.json").read_text())["versions"]["mujoco-warp"] == "the version of mujoco-warp"
    # As if it had been stopped here: nothing else in the directory says how many iterations were wanted.
    config = json.loads((stopped / "config.json").read_text())
    (stopped / "config.json").write_text(json.dumps(config | {"iterations": 3}))
    dvdrl.resume(stopped)
    assert_same_run(whole, stopped)
    # The first iteration has the parameters and the starts of the one on the host. Its kept states are drawn in another
    # way, so the second iteration has other parameters.
    on_device, local = (numbers(out)[0] for out in (whole, train("local")))
    assert on_device["env_steps"] == local["env_steps"] == 10 * (2 + 2 * 2 * 3)
    for name in ("member_returns", "mode_forward", "mode_backward"):
        np.testing.assert_allclose(on_device[name], local[name], rtol=1e-3, atol=1e-3)


def test_measures_agree_with_those_on_the_host(monkeypatch):
    # Hoppers fall at different times, and keep the values of their own last steps.
    n, task = 5, registry.make("Hopper-v5", horizon=60)
    pairs = [(last, key) for last in (False, True) for key in ("reward_forward", "reward_survive")]
    named = [Measure(key, last, key) for last, key in pairs]
    function = Measure("jax.numpy:tanh", True, "tanh", jnp.tanh, 11)
    measures = Measures((*named, function, function._replace(last=False)))
    rollouts = rollouts_of(policy_of(task), n)
    make = functools.partial(make_vec, task, autoreset_mode="Disabled")
    expected = Local(make, policy_of(task), measures).run(rollouts)
    assert len(np.unique(expected.lengths)) > 1

    host = HostVectorEnv(task, n)
    host.reset(seed=np.asarray(rollouts.start).tolist())
    starts = [jnp.asarray(host.batch.bind(name), jnp.float32) for name in ("qpos", "qvel")]
    monkeypatch.setattr(device, "draw_starts", lambda task, seeds: starts)
    episodes = device.Device(task, policy_of(task), HostPhysics, measures).run(rollouts)
    assert episodes.measures.shape == (n, 26)
    np.testing.assert_allclose(episodes.measures, expected.measures, rtol=1e-2, atol=1e-2)
    assert device.Device(task, policy_of(task), HostPhysics).run(rollouts).measures.shape == (n, 0)


def test_what_cannot_be_measured_on_a_device_is_refused_before_an_episode():
    task = registry.make("Point-v0", horizon=5)
    in_numpy = Measures((Measure("m:f", False, "f", lambda obs: np.tanh(np.asarray(obs)), 6),))
    with pytest.raises(DvdrlError, match=r"^measures: m:f failed for .*TracerArrayConversionError"):
        device.Device(task, policy_of(task), HostPhysics, in_numpy)
    unknown = Measures((Measure("unstable", False, "unstable"),))  # only the host tells it
    with pytest.raises(DvdrlError, match="expected unstable in the info of every step, which has "):
        device.Device(task, policy_of(task), HostPhysics, unknown).run(rollouts_of(policy_of(task), 2))


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
