"""Observations that are no vectors become vectors, with names; what cannot become one is refused with advice."""

import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import dvdrl
from dvdrl.engines import observation_names
from dvdrl.errors import DvdrlError
from dvdrl.views.export import export
from dvdrl.views.render import render

# A box with a light: pays 1 for each choice that is the number of the light, which is 1, 2, 3, 1, 2, .. in turn.
BOX = """
import gymnasium, numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

class Lights(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = Dict(
        light=Discrete(3, start=1), inside=Dict(size=Box(-1, 1, (2, 2))), pair=Tuple((MultiBinary(2), Box(0, 9, ())))
    )
    action_space = MultiDiscrete([3, 5], start=[1, 0])
    def __init__(self, render_mode=None): self.render_mode = render_mode
    def seen(self):
        size = np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)
        return {"light": self.light, "inside": {"size": size}, "pair": (np.array([1, 0], np.int8), np.float32(7))}
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.light, self.steps = 1, 0
        return self.seen(), {}
    def step(self, action):
        assert self.action_space.contains(action)
        reward = float(np.sum(action == self.light))
        self.light, self.steps = self.light % 3 + 1, self.steps + 1
        return self.seen(), reward, False, self.steps == 6, {}
    def render(self): return np.full((32, 32, 3), 80 * self.light, np.uint8)

class Camera(Lights):
    observation_space = Dict(camera=Box(0, 255, (8, 8, 3), np.uint8))

class Words(Lights):
    observation_space = Dict(order=Text(5))

class Dark(Lights):
    def render(self): raise RuntimeError("no light")

class TwoRewards(Lights):
    def step(self, action): return self.seen(), np.array([1.0, 2.0]), False, True, {}

class Seedless(Lights):
    def reset(self): return super().reset()

class Reach(gymnasium.Env):
    "As in robotics: a goal, parts in double precision without bounds, and whatever there is in infos."
    part = Box(-np.inf, np.inf, (2,), np.float64)
    observation_space = Dict(observation=part, achieved_goal=part, desired_goal=part)
    action_space = Box(np.array([-1, -2], np.float64), np.array([1, 2], np.float64), dtype=np.float64)
    metadata = {"render_modes": ["rgb_array"]}
    def __init__(self, render_mode=None): self.render_mode = render_mode
    def seen(self): return {"observation": self.goal - self.at, "achieved_goal": self.at, "desired_goal": self.goal}
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.goal, self.at, self.steps = self.np_random.normal(size=2), np.zeros(2), 0
        return self.seen(), {"of": "reset"}
    def step(self, action):
        self.at, self.steps = self.at + 0.1 * action, self.steps + 1
        odd = None if self.goal[1] > 0 else 3
        info = {"is_success": np.bool_(False), "odd": odd, "mixed": 2 if odd else {"a": 1}, "text": "x" * self.steps,
                "thing": object, "places": np.zeros(self.steps), "deep": {"deeper": {"number": 1}}}
        reward = np.array(-np.abs(self.goal - self.at).sum(), np.float32)
        return self.seen(), reward, np.bool_(False), self.steps == 3, info
    def render(self): return np.zeros((17, 31, 3), np.uint8)

ENVIRONMENTS = (Lights, Camera, Words, Dark, TwoRewards, Seedless, Reach)
for env in ENVIRONMENTS:
    gymnasium.register(f"{env.__name__}-v0", entry_point=f"somebodys_box:{env.__name__}", disable_env_checker=True)
"""


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "somebodys_box.py").write_text(BOX)
    monkeypatch.syspath_prepend(tmp_path)
    yield "somebodys_box"
    module = sys.modules.pop("somebodys_box", None)  # so that the next test's import registers again
    for environment in module.ENVIRONMENTS if module else ():
        gymnasium.registry.pop(f"{environment.__name__}-v0", None)


def test_dictionaries_become_vectors_with_names(box: str) -> None:
    envs = dvdrl.make_vec(f"{box}:Lights-v0", 2)
    # A Discrete is one number for each value: the light 1 of 1, 2 and 3 is 1, 0, 0.
    np.testing.assert_allclose(envs.reset(seed=0)[0], [[1, 0, 0, 0.1, 0.2, 0.3, 0.4, 1, 0, 7]] * 2, rtol=1e-6)
    obs, reward, *_ = envs.step(np.array([[1, 1], [2, 1]]))
    assert reward.tolist() == [2, 1]
    assert obs[:, :3].tolist() == [[0, 1, 0]] * 2
    envs.close()
    size = [f"inside.size[{row},{column}]" for row in (0, 1) for column in (0, 1)]
    lights = [f"light = {number}" for number in (1, 2, 3)]
    assert observation_names(f"{box}:Lights-v0", 10) == (*lights, *size, "pair[0][0]", "pair[0][1]", "pair[1]")
    assert observation_names("FrozenLake-v1", 16)[3] == "observation = 3"


def test_a_population_learns_to_choose(box: str, tmp_path: Path) -> None:
    small = {"population": 2, "sensings": 10, "hidden": (), "num_states": 4, "iterations": 20}
    larger = {"sigma": 0.2, "learning_rate": 0.1}  # than the default, because there are few iterations
    options = dvdrl.NicheES(task=f"{box}:Lights-v0", out=tmp_path / "run", **small, **larger)
    run = dvdrl.train(options)
    assert isinstance(run, dvdrl.Run)
    # Both choices can be the light, which is observed, in each of six steps: 12 is the most.
    assert dvdrl.evaluate(tmp_path / "run", episodes=1)["best_return"] == 12
    places = run.population.standing.places
    assert places.coordinates[0] == "light = 1"
    for member, episode_return in zip(run.population, dvdrl.evaluate(tmp_path / "run")["member_returns"], strict=True):
        lights = np.eye(3)[[0, 1, 2, 0, 1, 2]]
        observed = np.concatenate([lights, np.tile([0.1, 0.2, 0.3, 0.4, 1, 0, 7], (6, 1))], axis=1)
        assert (member.act(observed) == np.array([1, 2, 3, 1, 2, 3])[:, None]).sum() == episode_return
    assert len(render(tmp_path / "run")) == 4


def test_what_does_not_become_a_vector_is_refused_with_advice(box: str) -> None:
    with pytest.raises(
        DvdrlError, match=r"Camera-v0 observes camera, Box\(0, 255, \(8, 8, 3\), uint8\): an image.*192"
    ):
        dvdrl.make_vec(f"{box}:Camera-v0", 2)
    with pytest.raises(DvdrlError, match=r"Words-v0 observes order, Text\(.*--wrapper your_module:callable"):
        dvdrl.make_vec(f"{box}:Words-v0", 2)


TINY = {"population": 2, "sensings": 1, "hidden": (), "num_states": 3, "iterations": 1}


def test_goals_double_precision_and_odd_infos_are_trained_on_seen_and_exported(box: str, tmp_path: Path) -> None:
    run = dvdrl.train(dvdrl.DvDES(task=f"{box}:Reach-v0", out=tmp_path / "run", **TINY))
    assert isinstance(run, dvdrl.Run)
    # The goal stays, and actions of at most 0.1 and 0.2 in three steps do not reach far: every return is negative.
    assert max(dvdrl.evaluate(run.directory, episodes=2)["member_returns"]) < 0
    assert len(render(run.directory)) == 4
    assert len(export(run.directory, "onnx")) == 3
    assert {*run.record["versions"]} == {"python", "dvdrl", "jax", "mujoco", "gymnasium"}  # this module has no version
    envs = dvdrl.make_vec(f"{box}:Reach-v0", 3)
    envs.reset(seed=[0, 1, 2])
    *_, info = envs.step(envs.action_space.sample())
    assert [value if value is None else int(value) for value in info["odd"]] == [3, None, 3]
    assert info["mixed"].tolist() == [2, {"a": 1}, 2]
    envs.close()


def test_an_environment_that_does_not_draw_or_has_no_seeds_or_several_rewards_says_so(box: str, tmp_path: Path) -> None:
    dvdrl.train(dvdrl.ES(task=f"{box}:Dark-v0", out=tmp_path / "dark", **TINY))
    with pytest.raises(DvdrlError, match=r"^Dark-v0 cannot be rendered: RuntimeError: no light \(.*, line \d+\)$"):
        render(tmp_path / "dark")
    with pytest.raises(
        DvdrlError, match=r"TwoRewards-v0 failed: ValueError: the reward is not one number: \[1. 2.\]; a"
    ):
        dvdrl.train(dvdrl.ES(task=f"{box}:TwoRewards-v0", out=tmp_path / "rewards", **TINY))
    with pytest.raises(DvdrlError, match=r"Seedless-v0 failed: TypeError: .*unexpected keyword argument 'seed'"):
        dvdrl.train(dvdrl.ES(task=f"{box}:Seedless-v0", out=tmp_path / "seeds", **TINY))
