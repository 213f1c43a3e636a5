"""Environments that are not ours: in worker processes, with the results that Gymnasium gives in this one."""

import contextlib
import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RescaleAction, TimeAwareObservation

import dvdrl
from dvdrl import engines
from dvdrl.engines import gymnasium as workers
from dvdrl.errors import DvdrlError
from dvdrl.interfaces import Rollouts
from dvdrl.policies import Agents
from dvdrl.rollouts import Local
from dvdrl.rollouts.collect import episode_returns
from dvdrl.studies import costs
from probes import policy_of
from stopped_runs import started

# A counter of steps: observes [seed, steps]; ends after as many steps as its seed says.
COUNTER = """
import gymnasium, numpy as np
from gymnasium.spaces import Box, Dict, Discrete

class Counter(gymnasium.Env):
    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1, 1, (1,), np.float32)
    def __init__(self, step_size=1): self.step_size = step_size
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed_, self.steps = (seed if seed is not None else 4), 0
        return np.array([self.seed_, 0.0]), {}
    def step(self, action):
        if action[0] == 0.5: raise RuntimeError("half is not allowed")
        self.steps += self.step_size
        ended = self.steps >= self.seed_
        return np.array([self.seed_, self.steps]), float(self.steps), ended, False, {"at": self.steps}

class DictAction(Counter):
    action_space = Dict(push=Box(-1, 1, (1,)), kind=Discrete(2))

class UnboundedAction(Counter):
    action_space = Box(-np.inf, np.inf, (1,))

class Faulty(Counter):
    "Goes wrong as it is told to, in step 3 of the episode of seed 12."
    def __init__(self, fault="none"): self.step_size, self.fault = 1, fault
    def step(self, action):
        import os, signal, time
        observation, reward, ended, _, info = super().step(action)
        if (self.seed_, self.steps) == (12, 3):
            if self.fault == "raise": raise RuntimeError("out of\\nluck")
            if self.fault == "hang": time.sleep(1000)
            if self.fault == "segfault": os.kill(os.getpid(), signal.SIGSEGV)
            if self.fault == "exit": os._exit(3)
            if self.fault == "observation": observation = np.array([12.0, np.inf])
            if self.fault == "reward": reward = float("nan")
            if self.fault == "shape": observation = observation[:1]
            if self.fault == "nothing": observation = None
        return observation, reward, ended, False, info

class WholeAction(Counter):
    action_space = Box(0, 10, (1,), np.int32)

class Bytes(Counter):
    "Observes 200, 180, ..: differences of unsigned numbers."
    observation_space = Box(0, 255, (2,), np.uint8)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([200, 5], np.uint8), {}
    def step(self, action):
        _, reward, _, _, info = super().step(action)
        return np.array([200 - 20 * self.steps, 5], np.uint8), reward, self.steps == 4, False, info

class Contacts(Counter):
    "As many contacts in `info` as there were steps."
    def step(self, action):
        *result, _ = super().step(action)
        return *result, {"contacts": np.arange(self.steps + self.seed_), "at": self.steps}

class Endless(Counter):
    def step(self, action): return np.zeros(2), 0.0, False, False, {}

class AlwaysFaulty(Counter):
    def step(self, action): raise RuntimeError("out of luck")

ENVIRONMENTS = (
    Counter, DictAction, UnboundedAction, WholeAction, Bytes, Contacts, Endless, Faulty, AlwaysFaulty
)
for env in ENVIRONMENTS:
    gymnasium.register(f"{env.__name__}-v0", entry_point=env, disable_env_checker=True)
"""


@pytest.fixture
def counters(tmp_path, monkeypatch):
    """The name of a module of somebody's own environments."""
    (tmp_path / "somebodys_counters.py").write_text(textwrap.dedent(COUNTER))
    monkeypatch.syspath_prepend(tmp_path)
    yield "somebodys_counters"
    module = sys.modules.pop("somebodys_counters", None)  # so that the next test's import registers again
    for environment in module.ENVIRONMENTS if module else ():
        gymnasium.registry.pop(f"{environment.__name__}-v0", None)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_steps_are_those_of_gymnasium_with_wrappers_and_options(mode):
    options = {"g": 5.0, "max_episode_steps": 7}
    wrappers = [lambda env: RescaleAction(env, np.float32(-1), np.float32(1)), TimeAwareObservation]
    envs = dvdrl.make_vec("Pendulum-v1", 3, autoreset_mode=mode, wrappers=wrappers, **options)
    theirs = gymnasium.make_vec(
        "Pendulum-v1",
        3,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        wrappers=wrappers,
        **options,
    )
    assert envs.metadata["autoreset_mode"] is mode
    assert (envs.action_space, envs.observation_space) == (theirs.action_space, theirs.observation_space)
    np.testing.assert_array_equal(envs.reset(seed=5)[0], theirs.reset(seed=5)[0])
    envs.action_space.seed(0)
    for _ in range(18):
        action = envs.action_space.sample()
        *results, info = envs.step(action)
        *want, want_info = theirs.step(action)
        for result, wanted in zip(results, want, strict=True):
            np.testing.assert_array_equal(result, wanted)
        assert info.keys() == want_info.keys()
        for final, wanted in zip(info.get("final_obs", []), want_info.get("final_obs", []), strict=True):
            np.testing.assert_array_equal(final, wanted)
    envs.close()


# Box2D warns while its C module is being imported, and crashes if that warning is an error.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_bipedal_walker_runs():
    envs = dvdrl.make_vec("BipedalWalker-v3", 3)
    theirs = gymnasium.make_vec("BipedalWalker-v3", 3, vectorization_mode="sync")
    np.testing.assert_array_equal(envs.reset(seed=0)[0], theirs.reset(seed=0)[0])
    envs.action_space.seed(0)
    for _ in range(10):
        action = envs.action_space.sample()
        for result, want in zip(envs.step(action)[:4], theirs.step(action)[:4], strict=True):
            np.testing.assert_array_equal(result, want)
    envs.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_episode_of_bipedal_walker_depends_on_its_seed_alone():
    # In one environment of Gymnasium, the third episode of these differs from that of a new environment.
    envs = dvdrl.make_vec("BipedalWalker-v3", 1, autoreset_mode="Disabled")
    for seed in range(4):
        new = gymnasium.make("BipedalWalker-v3")
        rng, ended = np.random.default_rng(seed), False
        np.testing.assert_array_equal(envs.reset(seed=seed)[0][0], new.reset(seed=seed)[0])
        while not ended:
            action = rng.uniform(-1, 1, (1, 4)).astype(np.float32)
            obs, reward, *_ = envs.step(action)
            want, wanted_reward, terminated, truncated, _ = new.step(action[0])
            np.testing.assert_array_equal(obs[0], want)
            assert reward[0] == wanted_reward
            ended = terminated or truncated
    envs.close()


def test_ones_own_environments_rest_when_autoreset_is_off(counters):
    envs = dvdrl.make_vec(f"{counters}:Counter-v0", 5, autoreset_mode="Disabled")
    with pytest.raises(ResetNeeded, match="call reset first"):
        envs.step(np.zeros((5, 1)))
    obs, _ = envs.reset(seed=1)  # episodes of 1, 2, 3, 4 and 5 steps
    np.testing.assert_array_equal(obs[:, 0], [1, 2, 3, 4, 5])  # and every result in its own place
    returns = np.zeros(5)
    for _ in range(6):
        obs, reward, terminated, _, info = envs.step(np.zeros((5, 1)))
        returns += reward
    np.testing.assert_array_equal(returns, [1, 3, 6, 10, 15])  # 1 + ... + length: nobody was paid while resting
    np.testing.assert_array_equal(obs[:, 1], [1, 2, 3, 4, 5])
    assert terminated.all()
    assert "at" not in info
    mask = np.array([False, True, False, False, True])
    obs, _ = envs.reset(seed=[9] * 5, options={"reset_mask": mask})
    np.testing.assert_array_equal(obs, [[1, 1], [9, 0], [3, 3], [4, 4], [9, 0]])
    envs.close()


def test_an_error_in_a_worker_is_shown_here(counters):
    envs = dvdrl.make_vec(f"{counters}:Counter-v0", 3, step_size=2)
    envs.reset(seed=10)
    assert envs.step(np.zeros((3, 1)))[1].tolist() == [2, 2, 2]
    with pytest.raises(DvdrlError, match="half is not allowed"):
        envs.step(np.array([[0.0], [0.0], [0.5]]))
    with pytest.raises(ValueError, match=r"finite actions of shape \(3, 1\); got shape \(3, 1\) with 1 values"):
        envs.step(np.array([[0.0], [np.nan], [0.0]]))
    envs.close()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise", "RuntimeError: out of luck (FILE, line 32)"),  # where the message of FILE is raised
        ("hang", "no answer in 1 seconds"),
        ("segfault", "its process died of SIGSEGV"),
        ("exit", "its process died with exit code 3"),
        ("observation", "ValueError: the observation is not finite: [12. inf]"),
        ("reward", "ValueError: the reward is not finite: nan"),
        ("shape", "ValueError: expected an observation of shape (2,), got (1,)"),
        ("nothing", "ValueError: expected an observation of shape (2,), got ()"),
    ],
)
def test_an_environment_that_misbehaves_is_named_with_seed_and_step(counters, monkeypatch, fault, said):
    envs = dvdrl.make_vec(f"{counters}:Faulty-v0", 4, autoreset_mode="Disabled", fault=fault)
    envs.reset(seed=10)  # 10, 11, 12 and 13
    for _ in range(2):
        envs.step(np.zeros((4, 1)))
    monkeypatch.setattr(workers, "TIME_LIMIT", 1.0)
    with pytest.raises(DvdrlError) as error:
        envs.step(np.zeros((4, 1)))
    said = said.replace("FILE", sys.modules[counters].__file__)
    assert str(error.value) == f"Faulty-v0 failed: {said}; in seed 12, episode 1, step 3"
    with pytest.raises(DvdrlError) if fault in ("hang", "segfault", "exit") else contextlib.nullcontext():
        envs.step(np.zeros((4, 1)))  # whoever goes on nevertheless is told again, and waits for nobody
    envs.close()
    assert not any(process.is_alive() for process in envs._processes)


def test_workers_end_with_environments_that_nobody_has_closed(counters):
    envs = dvdrl.make_vec(f"{counters}:Counter-v0", 2)
    processes = envs._processes
    assert all(process.is_alive() for process in processes)
    envs.cycle = envs
    del envs
    gc.collect()
    assert not any(process.is_alive() for process in processes)


def test_training_on_an_environment_that_misbehaves_stops_with_advice(counters, tmp_path):
    small = {"population": 1, "sensings": 1, "hidden": (2,), "iterations": 2}
    with pytest.raises(DvdrlError) as error:
        dvdrl.train(dvdrl.ES(task=f"{counters}:AlwaysFaulty-v0", seed=7, out=tmp_path / "run", **small))
    said = r"AlwaysFaulty-v0 failed: RuntimeError: out of luck \(.*somebodys_counters.py, line \d+\); "
    said += r"in seed \d+, episode 1, step 1; training with seed 7; "
    assert re.fullmatch(said + r"`dvdrl resume .* continues after iteration 0", str(error.value))
    assert not (tmp_path / "run" / "metrics.jsonl").read_text()
    assert dvdrl.load(tmp_path / "run").act(np.zeros(2)).shape == (1, 1)


def test_ctrl_c_is_not_answered_by_every_worker(tmp_path):
    small = ["--population", "1", "--sensings", "1", "--hidden", "2", "--iterations", "100000", "--out", "run"]
    arguments = ["train", "es", "--task", "Pendulum-v1", *small]
    process = started(arguments, tmp_path / "run", until=1, cwd=tmp_path, start_new_session=True)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the command and its workers all get it
    _, error = process.communicate(timeout=60)
    assert "Traceback" not in error
    assert "`dvdrl resume run` continues after iteration" in error.splitlines()[-1]


def test_spaces_that_policies_cannot_serve_are_named(counters):
    with pytest.raises(DvdrlError, match=r"has the action space Dict\("):
        dvdrl.make_vec(f"{counters}:DictAction-v0", 2)
    with pytest.raises(DvdrlError, match=r"UnboundedAction-v0 has actions without bounds, Box\(-inf.*TransformAction"):
        dvdrl.make_vec(f"{counters}:UnboundedAction-v0", 2)
    with pytest.raises(DvdrlError, match=r"WholeAction-v0 has integer actions, Box\(0, 10"):
        dvdrl.make_vec(f"{counters}:WholeAction-v0", 2)


def test_what_an_environment_says_in_arrays_of_different_shapes_is_given_as_it_is(counters):
    envs = dvdrl.make_vec(f"{counters}:Contacts-v0", 3)
    envs.reset(seed=[5, 5, 7])
    *_, info = envs.step(np.zeros((3, 1), np.float32))
    assert [contacts.tolist() for contacts in info["contacts"]] == [list(range(6)), list(range(6)), list(range(8))]
    assert info["_contacts"].all()
    assert info["at"].tolist() == [1, 1, 1]
    envs.close()


def test_observations_in_bytes_have_their_mean_and_deviation(counters):
    policy = policy_of(2, 2, 1)
    evaluate = Local(partial(dvdrl.make_vec, f"{counters}:Bytes-v0", autoreset_mode="Disabled"), policy)
    n, d = 2, policy.network.num_params
    zeros = np.zeros((n, 2), np.float32)
    agents = Agents(np.zeros((n, d), np.float32), zeros, zeros)
    rollouts = Rollouts(np.arange(n), agents, np.arange(n), np.zeros((n, 2), np.uint32))
    moments = evaluate.run(rollouts).moments
    # Acted on are 200, 180, 160 and 140, of which the mean is 170, and the squares of 30, 10, 10 and 30 sum to 2,000.
    np.testing.assert_allclose(moments.mean, [[170, 5]] * 2)
    np.testing.assert_allclose(moments.sum_squares, [[2000, 0]] * 2)
    evaluate.close()


def test_an_episode_that_does_not_end_is_not_waited_for_forever(counters, monkeypatch):
    monkeypatch.setattr(engines, "LONGEST", 50)
    make = partial(dvdrl.make_vec, f"{counters}:Endless-v0", autoreset_mode="Disabled")
    said = "Endless-v0: an episode has not ended after 50 steps, and the environment has no time limit"
    with pytest.raises(DvdrlError, match=said):
        episode_returns(make(1), lambda obs: np.zeros((1, 1)), [0])
    # With a limit of its own it ends there, which may be later.
    assert episode_returns(make(1, max_episode_steps=60.0), lambda obs: np.zeros((1, 1)), [0]).tolist() == [0.0]


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        ("Pendulum-v1", {"foo": 1.0}, "Pendulum-v1 cannot be made: TypeError: .*foo"),
        ("HalfCheetah-v2", {}, "HalfCheetah-v2 cannot be made: "),
    ],
)
def test_what_gymnasium_refuses_is_one_line(task, options, said):
    with pytest.raises(DvdrlError, match=said) as error:
        dvdrl.make_vec(task, 2, **options)
    assert "\n" not in str(error.value)


def test_what_is_not_installed_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d", raising=False)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d.bipedal_walker", raising=False)
    with pytest.raises(
        DvdrlError, match=r"BipedalWalker-v3 cannot be made: Dependency.*; pip install 'dvdrl\[box2d\]'$"
    ):
        dvdrl.make_vec("BipedalWalker-v3")
    assert np.isnan(costs._speed("BipedalWalker-v3").env_steps)  # so `reproduce --list` goes on


def test_a_script_that_workers_import_is_told_what_it_lacks(tmp_path):
    (tmp_path / "script.py").write_text("import dvdrl\ndvdrl.make_vec('Pendulum-v1', 1).reset(seed=0)\n")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    said = 'Pendulum-v1 failed: its worker imports your script; put what runs there below `if __name__ == "__main__":`'
    assert done.stderr.splitlines()[-1].startswith(f"dvdrl.errors.DvdrlError: {said}")
    assert done.stderr.count("Traceback") == 1  # that of the script itself


def test_a_script_from_standard_input_is_told_that_workers_cannot_import_it(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "<stdin>", raising=False)  # none in a worker of xdist
    with pytest.raises(DvdrlError, match="standard input; save it as a file"):
        dvdrl.make_vec("Pendulum-v1", 1)


def test_unknown_ids_and_modules_are_named(counters):
    with pytest.raises(DvdrlError, match=r"no task 'Conter-v0'; did you mean .*Counter-v0"):
        dvdrl.make_vec(f"{counters}:Conter-v0")
    with pytest.raises(DvdrlError, match=r"no task 'XYZ/7-v5'; .*other packages need their module: MODULE:XYZ/7-v5"):
        dvdrl.make_vec("XYZ/7-v5")
    with pytest.raises(DvdrlError, match=r"no task 'BipedalWlker-v3'; did you mean .*BipedalWalker-v3"):
        dvdrl.make_vec("BipedalWlker-v3")
    with pytest.raises(DvdrlError, match=r"did you mean .*HalfCheetah-FwdBwd-v0"):
        dvdrl.make_vec("HalfCheetah-FwdBack-v0")
    with pytest.raises(DvdrlError, match="No module named 'no_such_module'; the part before"):
        dvdrl.make_vec("no_such_module:Thing-v0")
    with pytest.raises(DvdrlError, match=r"\.relative:Thing-v0: .*the part before"):
        dvdrl.make_vec(".relative:Thing-v0")
