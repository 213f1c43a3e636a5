"""Adaptation of a trained population: simulated, on any callable, and on the command line."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.runs.adaptation import described
from dvdrl.runs.directory import Run
from dvdrl.views.summary import command
from stopped_runs import DVDRL

TINY: dict[str, Any] = {"sensings": 2, "hidden": (4,), "iterations": 1, "num_states": 5}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three members on Point, who go different ways because they are random."""
    out = tmp_path_factory.mktemp("adapt") / "run"
    dvdrl.train(dvdrl.ES(task="Point-v0", population=3, out=out, **TINY))
    return out


def test_on_the_unchanged_task_the_best_member_is_chosen(run: Path) -> None:
    undamaged = dvdrl.evaluate(run)["member_returns"]
    result = dvdrl.adapt(run)
    assert result["undamaged_returns"] == pytest.approx(undamaged, rel=1e-12)  # the same episodes
    assert result["undamaged_returns"][result["member"]] == max(result["undamaged_returns"])
    assert result["member"] == result["undamaged_best"]
    assert result["return"] == result["undamaged_best_return"]
    assert 1 <= result["trials"] == len(result["tried"]) <= 6


def test_a_trial_is_an_episode_on_the_perturbed_task(run: Path, tmp_path: Path) -> None:
    # Without motors, all members return the same from the same start. So trials tell only the start, and fresh episodes
    # of the chosen one and of the one that was best are equal.
    result = dvdrl.adapt(run, perturb={"motor": 0.0}, trials=4)
    assert result["return"] == result["undamaged_best_return"]
    assert result["return"] != pytest.approx(max(result["undamaged_returns"]), rel=1e-3)
    assert result["trials"] <= 4
    assert result["perturb"] == {"motor": 0.0}
    lines = described(result)
    assert lines[0] == "es on Point-v0 with motor=0, iteration 1"
    assert len(lines) == 1 + result["trials"] + 2
    again = dvdrl.adapt(run, perturb={"motor": np.float32(0)}, trials=4, state=tmp_path / "trials.json")
    assert again == result


def test_a_robot_of_ones_own_is_tried_one_trial_at_a_time_and_goes_on_after_an_interruption(
    run: Path, tmp_path: Path
) -> None:
    # A robot on which only the member that is worst undamaged still works.
    returns = dvdrl.adapt(run)["undamaged_returns"]
    works, scale = int(np.argmin(returns)), abs(min(returns))
    asked: list[int] = []

    def trial(member: dvdrl.Member) -> float:
        asked.append(member.index)
        assert member.act(np.zeros(6)).shape == (2,)
        return scale * (1.0 if member.index == works else -3.0)

    def tired(member: dvdrl.Member) -> float:
        if len(asked) == 2:
            raise KeyboardInterrupt
        return trial(member)

    whole = dvdrl.adapt(run, trial)
    assert whole["member"] == works
    assert whole["return"] > 0  # what the trials say
    assert "undamaged_best_return" not in whole  # nobody has tried that on the robot
    order, state = list(asked), tmp_path / "new" / "trials.json"
    assert order == [member for member, _ in whole["tried"]]
    asked.clear()
    with pytest.raises(KeyboardInterrupt):
        dvdrl.adapt(run, tired, state=state)
    assert len(json.loads(state.read_text())["tried"]) == 2
    result = dvdrl.adapt(run, trial, state=state)
    assert asked == order  # the two trials before count, and the third one was not lost
    assert result == whole
    assert dvdrl.adapt(run, trial, state=state) == whole  # nothing is left to try
    assert asked == order

    with pytest.raises(DvdrlError, match="has trials of another population or perturbation"):
        dvdrl.adapt(run, perturb={"motor": 0.5}, state=state)
    for content in ("{", "[]", state.read_text().replace('"tried": [', '"tried": [[7, 1.0], ')):
        state.write_text(content)
        with pytest.raises(DvdrlError, match=r"trials\.json: expected the trials of an adaptation, got"):
            dvdrl.adapt(run, trial, state=state)


def test_other_gymnasium_environments_adapt_too(tmp_path: Path) -> None:
    out = tmp_path / "run"
    dvdrl.train(dvdrl.ES(task="Pendulum-v1", population=2, out=out, **TINY))
    result = dvdrl.adapt(out, perturb={"motor:0": 0.0}, trials=2, episodes=2)
    # A pendulum without a motor returns the same whoever drives it, but for the cost of trying, which is for the torque
    # that arrives.
    assert result["return"] == result["undamaged_best_return"]


def test_a_run_may_be_trained_on_a_perturbed_task(tmp_path: Path) -> None:
    options = {"task": "Point-v0", "population": 2, **TINY}
    run = dvdrl.train(dvdrl.ES(perturb=("motor=0", "delay=1"), out=tmp_path / "run", **options))
    assert dvdrl.Run(tmp_path / "run").config.perturb == ("motor=0", "delay=1")
    # Without motors nobody pays for trying, so both members return what drifting pays.
    assert run.metrics[0]["member_returns"][0] == run.metrics[0]["member_returns"][1]
    assert len(set(dvdrl.evaluate(tmp_path / "run", 2)["member_returns"])) == 1
    # What is given besides counts: with its motors, members differ.
    assert len(set(dvdrl.evaluate(tmp_path / "run", 2, perturb={"motor": 1.0})["member_returns"])) == 2
    assert "--perturb motor=0 --perturb delay=1" in command(tmp_path / "run")  # what the report shows to repeat it
    for perturb, said in (
        ("moter=0", "Point-v0 has no perturbation 'moter'; did you mean motor"),
        ("motor", "perturb: expected NAME=VALUE, such as friction=0.5, got 'motor'"),
    ):
        with pytest.raises(DvdrlError) as error:
            dvdrl.train(dvdrl.ES(perturb=(perturb,), out=tmp_path / "other", **options))
        assert said in str(error.value)
        assert not (tmp_path / "other").exists()


def test_what_cannot_be_is_named(run: Path) -> None:
    for options, said in (
        ({"perturb": {"moter": 0.0}}, "Point-v0 has no perturbation 'moter'; did you mean motor"),
        ({"trials": 0}, "trials: expected 1 to 10000, got 0"),
        ({"episodes": 0}, "episodes: expected at least 1, got 0"),
        ({"trials": 2.5}, "trials: expected int, got 2.5"),
        ({"perturb": ["motor=0"]}, "perturb: expected Mapping, got ['motor=0']"),
        ({"trial": lambda member: "good"}, "trial: expected the return of an episode, a finite number; got 'good'"),
        ({"trial": "robot"}, "trial: expected a function of a member, got 'robot'"),
        ({"trial": pytest.fail, "state": "/proc/none/trials.json"}, "/proc/none/trials.json: cannot be written: "),
        ({"trial": lambda member: 1.0, "perturb": {"motor": 0.0}}, "perturb: is for the simulation"),
    ):
        with pytest.raises(DvdrlError) as error:
            dvdrl.adapt(run, **options)
        assert said in str(error.value)


def test_the_command(run: Path) -> None:
    words = [*DVDRL, "adapt", str(run), "--perturb", "motor:x=0.5", "--perturb", "delay=1", "--trials", "3", "--json"]
    said = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    result = dvdrl.adapt(run, perturb={"motor:x": 0.5, "delay": 1.0}, trials=3)
    assert {name: said[name] for name in ("member", "trials", "return", "perturb")} == {
        name: result[name] for name in ("member", "trials", "return", "perturb")
    }
    wrong = subprocess.run([*words[:-1], "--perturb", "motor:w=0"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("dvdrl: perturb: Point-v0 has no perturbation 'motor:w'; did you mean motor:")
    assert wrong.stderr.count("\n") == 1
    assert Run(run).finished  # adapting only reads the run
