"""Measures of episodes: means and last values of their own steps, and what is refused with which words."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from dvdrl.engines import make_vec
from dvdrl.errors import DvdrlError
from dvdrl.interfaces import Rollouts
from dvdrl.policies import Agents, Policy, policy_for
from dvdrl.rollouts import Local
from dvdrl.rollouts.measures import Measure, Measures, checked
from probes import policy_of

STEPPED = np.array([True, True])


def two(obs: Any) -> Any:
    """The first observed number, and its square."""
    return np.stack([obs[:, 0], obs[:, 0] ** 2], axis=1)


ALL = Measures(
    (
        Measure("reward_forward", False, "reward_forward"),
        Measure("last:reward_forward", True, "reward_forward"),
        Measure("m:two", False, "two", two, 2),
        Measure("last:m:two", True, "two", two, 2),
    )
)


def test_means_and_last_values_by_hand() -> None:
    """Two episodes, of which the second ends after its first step; what comes later, even NaN, does not count."""
    measures = Measures((Measure("a", False, "a"), Measure("last:a", True, "a"), Measure("m:two", False, "", two, 2)))
    assert measures.size == 4
    assert measures.names == ("a", "last:a", "m:two", "m:two")
    added = np.zeros((2, 4))
    added = measures.added(added, {"a": np.array([1.0, 7.0])}, np.array([[2.0], [3.0]]), np.array([True, True]))
    later = {"a": np.array([4.0, np.nan])}
    added = measures.added(added, later, np.array([[4.0], [np.nan]]), np.array([True, False]))
    # The first has a = 1, 4 and observes 2, 4, whose squares are 4, 16; the second has a = 7 and observes 3.
    result = measures.of_episodes(added, np.array([2, 1], np.int32))
    np.testing.assert_array_equal(result, [[2.5, 4, 3, 10], [7, 7, 3, 9]])


def hopper() -> tuple[Callable[..., Any], Policy, Rollouts]:
    make = partial(make_vec, "Hopper-v5", autoreset_mode="Disabled")
    with closing(make(1)) as envs:
        policy = policy_for(envs.single_observation_space, envs.single_action_space, (8,))
    n, ones = 7, np.ones((7, policy.num_observed), np.float32)
    params = 3 * np.asarray(jax.vmap(policy.network.init)(jax.random.split(jax.random.key(0), n)))
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(1), n)))
    return make, policy, Rollouts(np.arange(n), Agents(params, 0 * ones, ones), np.arange(n, dtype=np.uint32), keys)


def test_episodes_are_measured_in_their_own_steps_and_alone_as_in_a_batch() -> None:
    make, policy, rollouts = hopper()
    evaluate = Local(make, policy, ALL)
    episodes = evaluate.run(rollouts)
    assert len(np.unique(episodes.lengths)) > 3  # they fall at different times
    envs = make(1)
    for i in (0, 6):
        obs, _ = envs.reset(seed=[i])
        paid, seen, ended = [], [], False
        while not ended:
            agent = Agents(*(array[i : i + 1] for array in rollouts.agents))
            obs, _, terminated, truncated, info = envs.step(policy.act(agent, obs[:, None])[:, 0])
            paid.append(info["reward_forward"][0])
            seen.append(obs[0, 0])
            ended = bool(terminated[0] or truncated[0])
        expected = [np.mean(paid), paid[-1], np.mean(seen), np.mean(np.square(seen)), seen[-1], seen[-1] ** 2]
        np.testing.assert_allclose(episodes.measures[i], expected, rtol=1e-5)
    for rows in (np.array([5]), np.array([6, 0, 3])):
        some = evaluate.run(jax.tree.map(lambda field, rows=rows: field[rows], rollouts))
        np.testing.assert_array_equal(some.measures, episodes.measures[rows])
    # Nothing else depends on whether something is measured; without measures there are rows of nothing.
    plain = Local(make, policy).run(rollouts)
    assert plain.measures.shape == (7, 0)
    rest = (jax.tree.leaves(each._replace(measures=0)) for each in (plain, episodes))
    for a, b in zip(*rest, strict=True):
        np.testing.assert_array_equal(a, b)


COUNTER = """
import gymnasium, numpy as np

class Counter(gymnasium.Env):
    "Ends after as many steps as its seed says. Each step tells how many there were, and in which direction."
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length, self.steps = seed, 0
        return np.zeros(2), {}
    def step(self, action):
        self.steps += 1
        info = {"at": self.steps, "odd": np.bool_(self.steps % 2), "where": np.zeros(2), "name": "x"}
        if self.steps == 1: info["first"] = 1.0
        return np.full(2, self.steps), 1.0, self.steps >= self.length, False, info

gymnasium.register("Counter-v0", entry_point=Counter, disable_env_checker=True)
"""


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes somebody's own Gymnasium environments, in worker processes."""
    (tmp_path / "somebodys_counter.py").write_text(COUNTER)
    monkeypatch.syspath_prepend(tmp_path)
    return partial(make_vec, "somebodys_counter:Counter-v0", autoreset_mode="Disabled")


def test_numbers_in_the_info_of_a_gymnasium_environment(counter: Callable[..., Any]) -> None:
    policy = policy_of(2, 1)
    zeros = np.zeros((2, 2), np.float32)
    agents = Agents(np.zeros((2, policy.network.num_params), np.float32), zeros, zeros)
    rollouts = Rollouts(np.arange(2), agents, np.array([3, 6], np.uint32), np.zeros((2, 2), np.uint32))
    names = Measures((Measure("at", False, "at"), Measure("last:at", True, "at"), Measure("odd", False, "odd")))
    with closing(Local(counter, policy, names)) as evaluate:
        # 1, 2, 3 have the mean 2, and 1 to 6 the mean 3.5; of the former two in three are odd, of the latter half.
        np.testing.assert_allclose(evaluate.run(rollouts).measures, [[2, 3, 2 / 3], [3.5, 6, 0.5]], rtol=1e-6)
    sparse = Measures((Measure("last:first", True, "first"),))
    with (
        closing(Local(counter, policy, sparse)) as evaluate,
        pytest.raises(DvdrlError, match=r"expected first in the info of every step, which has at, .*odd, where$"),
    ):
        evaluate.run(rollouts)
    with closing(counter(2)) as envs:
        envs.reset(seed=5)
        obs, _, _, _, info = envs.step(np.zeros((2, 1), np.float32))
    for key, said in (
        ("where", r"where: expected a number for each environment, got an array of shape \(2, 2\)"),
        ("name", "expected a number as name, got 'x'"),
        ("there", "expected there in the info of every step, which has at, "),
    ):
        with pytest.raises(DvdrlError, match=f"^measures: {said}"):
            checked((Measure(key, False, key),), info, obs)


def fails(obs: Any) -> Any:  # noqa: ARG001
    raise RuntimeError("out of\nluck")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (fails, r"m:f failed for observations of shape \(2, 3\): RuntimeError: out of$"),
        (lambda obs: obs[:, 0], r"m:f: expected a row for each of 2 observations, .*, got an array of shape \(2,\)$"),
        (lambda obs: obs[:1], r"got an array of shape \(1, 3\)$"),
        (lambda obs: obs[:, :0], r"got an array of shape \(2, 0\)$"),
        (lambda obs: "x", "m:f failed .* could not convert"),
        (lambda obs: obs * np.inf, r"m:f is not finite in the first step: \[inf inf inf\]$"),
    ],
)
def test_functions_that_do_not_give_rows_of_numbers_are_refused(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(DvdrlError, match=f"^measures: .*{said}"):
        checked((Measure("m:f", False, "f", function),), {}, np.ones((2, 3)))


def test_a_function_whose_rows_change_their_length_is_refused() -> None:
    growing = Measures((Measure("m:f", False, "f", lambda obs: obs, 2),))
    with pytest.raises(DvdrlError, match=r"m:f: expected 2 columns as before, got an array of shape \(2, 3\)"):
        growing.added(np.zeros((2, 2)), {}, np.ones((2, 3)), STEPPED)
