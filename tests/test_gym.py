"""Our tasks as Gymnasium's environments: they pass its checker, and give the numbers of our engine."""

from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.passive_env_checker import env_render_passive_checker

import dvdrl
import dvdrl.gym
from dvdrl.errors import DvdrlError
from dvdrl.views.render import backend

IDS = sorted(name for name in gymnasium.registry if name.startswith("dvdrl/"))


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        monkeypatch.setenv("MUJOCO_GL", backend())  # Gymnasium's renderer reads it
    except DvdrlError as error:
        pytest.skip(str(error))


def test_which_tasks_are_registered() -> None:
    assert {name.removeprefix("dvdrl/") for name in IDS} == {
        *("Point-v0", "Landmarks-v0", "FourRooms-v0", "ForkedMaze-v0", "EightRooms-v0", "DeadEnd-v0"),
        *("HalfCheetah-FwdBwd-v0", "Ant-FwdBwd-v0"),
    }


@pytest.mark.parametrize("env_id", IDS)
# Gymnasium's own MuJoCo tasks cause these two, because observations have no bounds.
@pytest.mark.filterwarnings("ignore:.*Box observation space m.*imum value is -?infinity")
def test_gymnasiums_checker_accepts_them(env_id: str) -> None:
    with closing(gymnasium.make(env_id)) as env:
        check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("env_id", ["dvdrl/Point-v0", "dvdrl/Ant-FwdBwd-v0"])
def test_the_numbers_are_those_of_our_engine(env_id: str) -> None:
    num_steps = 8
    perturb = {"motor": 0.7}
    ours = dvdrl.make_vec(env_id.removeprefix("dvdrl/"), 3, horizon=num_steps - 1, perturb=perturb)
    theirs = gymnasium.make_vec(env_id, 3, max_episode_steps=num_steps - 1, perturb=perturb)
    single = gymnasium.make(env_id, max_episode_steps=num_steps - 1, perturb=perturb)
    with closing(ours), closing(theirs), closing(single):
        expected = ours.reset(seed=5)[0]
        np.testing.assert_array_equal(theirs.reset(seed=5)[0], expected)
        np.testing.assert_array_equal(single.reset(seed=5)[0], expected[0])
        ours.action_space.seed(0)
        for step in range(1, num_steps):
            actions = ours.action_space.sample()
            *expected, info = ours.step(actions)
            for got, value in zip(theirs.step(actions)[:4], expected, strict=True):
                np.testing.assert_array_equal(got, value)
            *alone, told = single.step(actions[0])
            for got, value in zip(alone, expected, strict=True):
                np.testing.assert_array_equal(got, value[0])
            assert told == {name: info[name][0] for name in told}
            assert {name for name in info if not name.startswith("_")} == set(told)
            assert expected[3].all() == (step == num_steps - 1)  # the time limit that was given, not the task's own


def test_options_are_those_of_the_task() -> None:
    with closing(gymnasium.make("dvdrl/Landmarks-v0", landmarks=6)) as env:
        env.reset(seed=0)
        assert "reward_mode_5" in env.step(env.action_space.sample())[4]
    with pytest.raises(DvdrlError, match=r"horizon.*max_episode_steps"):
        gymnasium.make("dvdrl/Point-v0", horizon=7)


@pytest.mark.usefixtures("drawing")
def test_a_picture_shows_where_the_body_is() -> None:
    with closing(gymnasium.make("dvdrl/Point-v0", render_mode="rgb_array", width=64, height=48)) as env:
        env.reset(seed=0)
        env_render_passive_checker(env.unwrapped)
        before = env.render()
        for _ in range(10):
            env.step(np.array([0.0, 1.0], np.float32))
        assert before.shape == (48, 64, 3)
        assert (before != env.render()).any()
