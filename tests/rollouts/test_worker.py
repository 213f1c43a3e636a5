"""Whole episodes inside worker processes, against the same episodes stepped from here."""

import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import VectorWrapper

from dvdrl.engines import gymnasium as workers
from dvdrl.engines import make_vec
from dvdrl.engines.worker import AT_ONCE, Queue
from dvdrl.errors import DvdrlError
from dvdrl.interfaces import Episodes, Rollouts
from dvdrl.policies import Agents
from dvdrl.rollouts import Local
from dvdrl.rollouts.measures import Measure, Measures
from probes import policy_of

# Walks at random, and as it is pushed, until it is too far away. The seeds below give episodes of 2 to 700 steps.
WALK = """
import os, signal, time
import gymnasium, numpy as np
from gymnasium.spaces import Box

class Walk(gymnasium.Env):
    observation_space = Box(-np.inf, np.inf, (3,), np.float32)
    action_space = Box(-1, 1, (2,), np.float32)
    def __init__(self, fault="none"): self.fault = fault
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed_, self.at, self.steps = seed, self.np_random.normal(size=2), 0
        return self.seen(), {}
    def seen(self): return np.array([*self.at, self.steps % 7], np.float32)
    def step(self, action):
        self.steps += 1
        self.at += self.np_random.normal(size=2) + 0.3 * action
        if self.fault != "none" and self.seed_ < 100:
            if (self.seed_, self.steps) == (3, 2): self.fail()
            time.sleep(0.001)  # all others walk on and on
            return self.seen(), 0.0, False, False, {}
        right = self.at[0]
        info = {"reward_mode_left": -right, "reward_mode_right": np.float32(right), "distance": abs(right)}
        if self.steps > 2: info["reward_mode_later"] = 1.0
        ended = abs(self.at).max() > 3 + self.seed_ % 20
        return self.seen(), float(self.at @ action), bool(ended), self.steps == 700, info
    def fail(self):
        if self.fault == "raise": raise RuntimeError("out of luck")
        if self.fault == "hang": time.sleep(1000)
        if self.fault == "killed": os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "not finite": self.at[0] = np.nan

gymnasium.register("Walk-v0", entry_point=Walk, disable_env_checker=True)
"""
MEASURES = Measures((Measure("distance", False, "distance"), Measure("last:distance", True, "distance")))


class Step(VectorWrapper):
    """Hides that environments are in worker processes, so that they are stepped from here."""


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "somebodys_walk.py").write_text(WALK)
    monkeypatch.syspath_prepend(tmp_path)
    yield partial(make_vec, "somebodys_walk:Walk-v0", autoreset_mode="Disabled", num_threads=2)
    gymnasium.registry.pop("Walk-v0", None)
    sys.modules.pop("somebodys_walk", None)  # so that the next test's import registers it again


def rollouts_of(n: int) -> Rollouts:
    policy = policy_of(3, 8, 2)
    keys = jax.random.key_data(jax.random.split(jax.random.key(1), n))
    params = np.array(jax.vmap(policy.network.init)(jax.random.split(jax.random.key(0), n)))
    rng = np.random.default_rng(0)
    shift, scale = rng.normal(0, 0.1, (n, 3)).astype(np.float32), rng.uniform(0.5, 1.5, (n, 3)).astype(np.float32)
    return Rollouts(np.arange(n), Agents(params, shift, scale), np.arange(n, dtype=np.uint32), np.asarray(keys))


def assert_equal(a: Episodes, b: Episodes) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def test_episodes_in_workers_are_those_of_steps_from_here(make: Any) -> None:
    n = 3 * AT_ONCE  # so that two workers begin more episodes while others go on
    rollouts = rollouts_of(n)
    rollouts.agents.params[5, 0] = np.nan  # an episode that is lost
    with closing(Local(make, policy_of(3, 8, 2), MEASURES)) as whole:
        episodes = whole.run(rollouts)
        half = whole.run(jax.tree.map(lambda field: field[::-2], rollouts))
    with closing(Local(lambda num: Step(make(num)), policy_of(3, 8, 2), MEASURES)) as stepped:
        expected = stepped.run(rollouts)
    # Some are long enough to draw random numbers again, and some end while others have just begun.
    assert expected.lengths.min() < 20
    assert expected.lengths.max() > 256
    assert np.flatnonzero(~np.isfinite(expected.returns)).tolist() == [5]
    # Of what a lost episode would have been paid in its modes, nothing is promised.
    sound = np.delete(np.arange(n), 5)
    assert_equal(*(jax.tree.map(lambda field: field[sound], each) for each in (episodes, expected)))
    assert_equal(half._replace(modes={}), jax.tree.map(lambda field: field[::-2], expected._replace(modes={})))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise", "RuntimeError: out of luck"),
        ("hang", "no answer in 2 seconds"),
        ("killed", "its process died of SIGKILL"),
        ("not finite", "ValueError: the observation is not finite: ["),
    ],
)
def test_a_failure_is_named_at_once_and_ends_all_workers(
    make: Any, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    made: list[Any] = []

    def remembered(num: int) -> Any:
        made.append(make(num, fault=fault))
        return made[-1]

    with closing(Local(remembered, policy_of(3, 8, 2))) as evaluate:
        faulty = rollouts_of(2 * AT_ONCE)
        healthy = faulty._replace(start=faulty.start + 100)
        lengths = evaluate.run(healthy).lengths  # this also starts the workers, which takes longer than the limit
        if fault == "hang":
            monkeypatch.setattr(workers, "TIME_LIMIT", 2.0)
        # The episodes of the other seeds would go on for 100,000 steps.
        with pytest.raises(DvdrlError) as error:
            evaluate.run(faulty)
        assert str(error.value).startswith(f"Walk-v0 failed: {said}")
        assert str(error.value).endswith("; in seed 3, episode 1, step 2")
        codes = [process.exitcode for process in made[0]._processes]
        assert None not in codes
        assert 0 in codes  # the worker that had no failure has noticed that nobody waits, and closed its environments
        monkeypatch.setattr(workers, "TIME_LIMIT", 300.0)
        np.testing.assert_array_equal(evaluate.run(healthy).lengths, lengths)  # in new workers
    assert len(made) == 2


def test_workers_share_numbers_so_that_they_finish_together() -> None:
    counter = multiprocessing.get_context("forkserver").Value("q", 0)
    one, other = Queue(counter, 10, 2), Queue(counter, 10, 2)
    # Ten are left, half of them for each; after each taken one there is less to share: 0 of 10, 1 of 9, .. 3 of 7.
    assert [one.take(having) for having in range(5)] == [0, 1, 2, 3, None]
    assert [other.take(having) for having in range(3)] == [4, 5, None]
    # Whoever has ended all of its own takes the next one, to the last.
    assert [one.take(0), other.take(0), one.take(0), other.take(0)] == [6, 7, 8, 9]
    assert one.take(0) is None
