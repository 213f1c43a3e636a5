"""Wrappers, options and modules of one's own on the command line, found from the working directory."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dvdrl
from dvdrl import cli
from dvdrl.cli.parse import parsed
from dvdrl.cli.train import Train
from dvdrl.errors import DvdrlError
from dvdrl.runs.trainer import make_envs
from dvdrl.views.export import export
from dvdrl.views.render import render

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = ("--population", "1", "--sensings", "1", "--hidden", "2", "--iterations", "1")
WRAPPERS = """
from gymnasium.wrappers import TransformReward
def one_a_step(env): return TransformReward(env, lambda reward: 1.0)
def no_environment(env): return 3
def broken(env):
    raise RuntimeError("out of luck")
"""


@pytest.fixture
def wrappers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "somebodys_wrappers.py").write_text(WRAPPERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "somebodys_wrappers"
    sys.modules.pop("somebodys_wrappers", None)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dvdrl", *arguments])
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_wrappers_go_around_each_environment_wherever_it_is_made(
    wrappers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--wrapper", f"{wrappers}:one_a_step", "--wrapper", "gymnasium.wrappers:TimeAwareObservation")
    assert run(monkeypatch, "train", "es", "--task", "Pendulum-v1", *SMALL, *more, "--out", "run") == 0
    population = dvdrl.load("run")
    assert population.policy.num_observed == 3 + 1  # and the time
    values = json.loads((tmp_path / "run" / "config.json").read_text())
    assert values["wrappers"] == list(more[1::2])
    # An episode has 200 steps, each of which pays 1.
    assert dvdrl.Run(tmp_path / "run").metrics[0]["member_returns"] == [200]
    assert dvdrl.evaluate("run", episodes=2)["member_returns"] == [200]
    assert len(render(tmp_path / "run", steps=2)) == 3
    assert len(export(tmp_path / "run", "safetensors")) == 2
    sys.modules.pop(wrappers)
    sys.path.remove(str(tmp_path))
    capsys.readouterr()
    assert run(monkeypatch, "evaluate", "run", "--json") == 2
    assert f"the file names the module {wrappers}, whose code would run; if you trust it" in capsys.readouterr().err
    assert run(monkeypatch, "evaluate", "run", "--json", "--module", "json", "--module", wrappers) == 0
    assert json.loads(capsys.readouterr().out)["member_returns"] == [200]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_environment", r"Pendulum-v1: expected an environment from the wrapper <function no_environment.*, got 3"),
        ("broken", r"Pendulum-v1 cannot be made: RuntimeError: out of luck \(.*somebodys_wrappers.py, line 6\)"),
        ("nothing", "wrappers: somebodys_wrappers has no function nothing"),
    ],
)
def test_a_wrapper_that_is_none_is_one_line(
    wrappers: str, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(".")
    with pytest.raises(DvdrlError, match=said):
        make_envs(dvdrl.ES(task="Pendulum-v1", wrappers=(f"{wrappers}:{name}",)))(1)


def test_wrappers_of_a_task_of_ours_go_around_that_of_gymnasium() -> None:
    with pytest.raises(DvdrlError, match=r"Point-v0 is not one of Gymnasium's environments"):
        make_envs(dvdrl.ES(task="Point-v0", wrappers=("gymnasium.wrappers:TimeAwareObservation",)))(1)
    envs = make_envs(dvdrl.ES(task="Hopper-v5", wrappers=("gymnasium.wrappers:TimeAwareObservation",)))(1)
    assert envs.single_observation_space.shape == (11 + 1,)
    envs.close()


def test_options_of_tasks_are_json_or_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given = 'a 1 b true c foo.xml d [0.8,2] e null f -1e3 g {"h":[]} i "7"'.split()  # noqa: SIM905
    command = parsed(["train", "es", "--task", "x", "--task-options", *given])
    assert isinstance(command, Train)
    assert command.options.task_options == {
        "a": 1, "b": True, "c": "foo.xml", "d": [0.8, 2], "e": None, "f": -1000.0, "g": {"h": []}, "i": "7"
    }  # fmt: skip
    for task, name, value, said in (
        ("HalfCheetah-v5", "xml_file", "./nope.xml", "HalfCheetah-v5: no model file nope.xml"),
        ("Walker2d-v5", "healthy_z_range", "[1]", "healthy_z_range: expected tuple[float, float], got (1,)"),
        ("Walker2d-v5", "healthy_z_range", '["a",1]', "healthy_z_range: expected tuple[float, float], got ('a', 1)"),
        ("Point-v0", "wall_half_width", "true", "wall_half_width: expected float, got True"),
        ("Point-v0", "wall_half_width", "wide", "wall_half_width: expected float, got 'wide'"),
        ("AntMaze", "x", "1", "no task 'AntMaze'"),
    ):
        assert run(monkeypatch, "train", "es", "--task", task, "--task-options", name, value) == 2
        assert said in capsys.readouterr().err
    envs = dvdrl.make_vec("Walker2d-v5", 1, healthy_z_range=[0.9, 2.0])
    assert envs.unwrapped.task.healthy_z_range == (0.9, 2.0)


def test_the_command_of_an_example_works_as_written(tmp_path: Path) -> None:
    written = "cd examples && dvdrl train dvd-es --task gymnasium_environment:Valleys-v0"
    assert written in (EXAMPLES / "gymnasium_environment.py").read_text()
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    script = written.replace("dvdrl", f"{sys.executable} -m dvdrl") + " " + " ".join(SMALL)
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "examples" / "runs").is_dir()


def test_a_module_that_does_not_load_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "somebodys_broken.py").write_text("import gymnasium\n\nraise RuntimeError('out of luck')\n")
    (tmp_path / "somebodys_typo.py").write_text("x = = 1\n")
    (tmp_path / "somebodys_needs.py").write_text("import no_such_package\n")
    for name, said in (
        ("somebodys_broken", r"cannot be imported: RuntimeError: out of luck \(.*somebodys_broken.py, line 3\)"),
        ("somebodys_typo", r"cannot be imported: SyntaxError: .* \(.*somebodys_typo.py, line 1\)"),
        ("somebodys_needs", r"cannot be imported: ModuleNotFoundError: No module named 'no_such_package' .*line 1\)"),
        ("somebodys_brokn", r"No module named 'somebodys_brokn'; did you mean somebodys_broken\?"),
    ):
        with pytest.raises(DvdrlError, match=said):
            dvdrl.make_vec(f"{name}:Thing-v0")
