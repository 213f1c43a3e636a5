"""JAX environments as vector environments, in training, and by the names of the libraries that have them."""

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import dvdrl
from drift import Drift
from dvdrl import engines
from dvdrl.engines.jax import JaxEngine, JaxVectorEnv
from dvdrl.errors import DvdrlError
from dvdrl.runs.directory import Run
from dvdrl.views.render import render
from stopped_runs import assert_same_run

TINY: dict[str, Any] = {"population": 2, "sensings": 2, "hidden": (4,), "num_states": 3}
STILL = np.full((3, 1), -0.1, np.float32)  # cancels the drift
RISE = np.full((3, 1), 0.5, np.float32)  # 0.6 per step


@pytest.fixture(autouse=True)
def drift(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "ENGINES", dict(engines.ENGINES))
    engines.register_engine("tests", JaxEngine(lambda name, **options: Drift(horizon=5, **options)))


def test_a_seed_determines_an_episode() -> None:
    envs = JaxVectorEnv(Drift(noise=0.5), 3)
    first, _ = envs.reset(seed=[4, 4, 5])
    np.testing.assert_array_equal(first[0], first[1])
    assert first[0, 0] != first[2, 0]
    after, *_ = envs.step(STILL)
    np.testing.assert_array_equal(after[0], after[1])
    again, _ = envs.reset()  # the next episode of each seed
    assert again[0, 0] != first[0, 0]
    np.testing.assert_array_equal(again[0], again[1])
    np.testing.assert_array_equal(envs.reset(seed=[4, 4, 5])[0], first)
    np.testing.assert_array_equal(JaxVectorEnv(Drift(noise=0.5), 1).reset(seed=5)[0][0], first[2])


def test_ended_episodes_rest_or_begin_again() -> None:
    for mode in ("Disabled", "NextStep"):
        envs = JaxVectorEnv(Drift(horizon=4, threshold=1.0), 3, mode)
        start, _ = envs.reset(seed=0)
        actions = np.concatenate([RISE[:1], STILL[:2]])
        envs.step(actions)
        obs, reward, terminated, truncated, info = envs.step(actions)
        # The first one has risen by 1.2, above the threshold; the others are where they began.
        np.testing.assert_allclose(obs[:, 0], start[:, 0] + [1.2, 0, 0], rtol=1e-5)
        np.testing.assert_allclose(reward, obs[:, 0])
        np.testing.assert_array_equal(terminated, [True, False, False])
        np.testing.assert_allclose(info["reward_mode_down"], -obs[:, 0])
        assert not truncated.any()
        after, reward, terminated, truncated, info = envs.step(actions)
        assert reward[0] == 0
        np.testing.assert_array_equal(info["_x"], [False, True, True])
        assert terminated[0] == (mode == "Disabled")
        if mode == "Disabled":
            np.testing.assert_array_equal(after[0], obs[0])
        else:
            assert 0 < after[0, 0] < 0.1
        after, reward, terminated, truncated, info = envs.step(actions)
        np.testing.assert_array_equal(truncated, [False, True, True])  # after four steps
    envs = JaxVectorEnv(Drift(), 3, "Disabled")
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.step(STILL)
    envs.reset(seed=0)
    before, *_ = envs.step(RISE)
    after, _ = envs.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    assert after[1, 1] == 0  # its time


def test_what_they_cannot_do_is_said() -> None:
    with pytest.raises(DvdrlError, match="SameStep"):
        dvdrl.make_vec("tests:Drift", 2, autoreset_mode="SameStep")
    with pytest.raises(DvdrlError, match="wrappers"):
        dvdrl.make_vec("tests:Drift", 2, wrappers=[gymnasium.wrappers.FlattenObservation])
    envs = dvdrl.make_vec("tests:Drift", 2)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"finite actions of shape \(2, 1\)"):
        envs.step(STILL)
    for executor in ("ray", "device"):
        with pytest.raises(DvdrlError, match=r"tests:Drift.*--executor"):
            dvdrl.train(dvdrl.ES(task="tests:Drift", executor=executor, out=Path("never"), **TINY))
    assert not Path("never").exists()


def test_a_run_of_ones_own_environment(tmp_path: Path) -> None:
    options: dict[str, Any] = {"task": "tests:Drift", "behaviour": "measures", "measures": ("last:x",), **TINY}
    run = dvdrl.train(dvdrl.DvDES(**options, iterations=3, out=tmp_path / "whole"))
    assert isinstance(run, Run)
    # Two members, and both signs of two perturbations of each: ten episodes of five steps, three times.
    assert run.metrics[-1]["env_steps"] == 3 * 10 * 5
    # The number is at most 0.1 + 0.6 t after t steps, so their sum is at most 5 * 0.1 + 0.6 * 15.
    assert -6 < run.metrics[-1]["best_return"] <= 9.5
    assert len(run.metrics[-1]["mode_up"]) == 2
    found = dvdrl.evaluate(tmp_path / "whole", episodes=2)
    assert found["mode_returns"]["up"] == pytest.approx(found["member_returns"])
    assert dvdrl.load(tmp_path / "whole").act(np.zeros(3)).shape == (len(found["member_returns"]), 1)
    with pytest.raises(DvdrlError, match=r"tests:Drift cannot be rendered"):
        render(tmp_path / "whole")

    short = dvdrl.train(dvdrl.DvDES(**options, iterations=3, steps=60, out=tmp_path / "short"))
    assert isinstance(short, Run)
    config = short.directory / "config.json"
    config.write_text(config.read_text().replace('"steps": 60', '"steps": null'))
    dvdrl.resume(tmp_path / "short")
    assert_same_run(tmp_path / "whole", tmp_path / "short")


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for library, module in {"gymnax": "gymnax", "playground": "mujoco_playground"}.items():
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(DvdrlError, match=rf"pip install 'dvdrl\[{library}\]'"):
            dvdrl.make_vec(f"{library}:CartPole-v1")


def test_names_and_options_of_gymnax() -> None:
    pytest.importorskip("gymnax")
    with pytest.raises(DvdrlError, match=r"no environment 'CartPole-v0'; did you mean gymnax:CartPole-v1"):
        dvdrl.make_vec("gymnax:CartPole-v0")
    with pytest.raises(DvdrlError, match=r"gymnax:CartPole-v1 has no option 'mass'; it has force_mag, gravity"):
        dvdrl.make_vec("gymnax:CartPole-v1", mass=2.0)
    with pytest.raises(DvdrlError, match=r"max_steps_in_episode: expected int, such as 500; got 7.5"):
        dvdrl.make_vec("gymnax:CartPole-v1", max_steps_in_episode=7.5)
    envs = dvdrl.make_vec("gymnax:CartPole-v1", 2, max_steps_in_episode=4.0, autoreset_mode="Disabled")
    assert envs.single_action_space == gymnasium.spaces.Discrete(2)
    envs.reset(seed=0)
    for step in range(1, 5):
        _, _, terminated, truncated, _ = envs.step(np.array([0, 1]))
        assert not terminated.any()  # gymnax itself would say that the task ended the episode
        assert truncated.all() == (step == 4)


def test_gymnax_and_gymnasium_agree() -> None:
    pytest.importorskip("gymnax")
    n = 20
    envs = dvdrl.make_vec("gymnax:CartPole-v1", n, autoreset_mode="Disabled")
    obs, _ = envs.reset(seed=3)
    lead = np.random.default_rng(0).normal(size=(n, 4))  # the policies: push to where a weighted sum points
    starts, returns = obs.astype(np.float64), np.zeros(n)
    for _ in range(500):
        obs, rewards, terminated, truncated, _ = envs.step(((obs * lead).sum(axis=1) > 0).astype(int))
        returns += rewards
        if (terminated | truncated).all():
            break

    env = gymnasium.make("CartPole-v1")

    def theirs(start: Any, lead: Any) -> float:
        env.reset(seed=0)
        env.unwrapped.state = tuple(start)  # type: ignore[attr-defined]
        obs, total, ended = start.astype(np.float32), 0.0, False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(int(obs @ lead > 0))
            total, ended = total + float(reward), terminated or truncated
        return total

    expected = np.array(list(map(theirs, starts, lead)))
    # gymnax has single precision. Where so little more makes another return in Gymnasium too, they need not agree.
    decided = expected == np.array(list(map(theirs, starts + 1e-6, lead)))
    assert decided.sum() >= 12
    assert len({*expected[decided].tolist()}) > 5
    np.testing.assert_array_equal(returns[decided], expected[decided])


def test_an_off_policy_learner_steps_them(tmp_path: Path) -> None:
    pytest.importorskip("gymnax")
    small: dict[str, Any] = {"hidden": (4,), "batch_size": 4, "random_steps": 10, "iteration_steps": 20}
    task: dict[str, Any] = {"task": "gymnax:Pendulum-v1", "task_options": {"max_steps_in_episode": 10}}
    run = dvdrl.train(dvdrl.TD3(out=tmp_path / "run", iterations=2, **small, **task))
    assert isinstance(run, Run)
    assert -170 < run.metrics[-1]["best_return"] < 0  # ten steps of at most pi^2 + 0.1 * 8^2 + 0.001 * 2^2
