import json
import sys
from pathlib import Path

import numpy as np
import pytest

from dvdrl import cli
from dvdrl.policies import MLP
from dvdrl.runs import checkpoint
from written_runs import write_run


def dvdrl(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dvdrl", *arguments])
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--task", "Point-v0", "--population", "0"), "population: expected a number from 1 to 2047, got 0"),
        (("--task", "Point-v0", "--sigma", "-0.1"), "sigma: expected more than 0, got -0.1"),
        (("--task", "HalfCheeta-v5"), "did you mean HalfCheetah-v5"),
        (("--task", "Point-v0", "--task-options", "wall_width", "4"), "Point-v0 has no option 'wall_width'"),
        (
            ("--task", "Point-v0", "--task-options", "wall_half_width", "-3"),
            "Point-v0 has no model with wall_half_width",
        ),
        (
            ("--task", "Point-v0", "--task-options", "wall_half_width", "nan"),
            "wall_half_width: expected a finite number",
        ),
        (("--task", "Point-v0", "--task-options", "horizon", "inf"), "horizon: expected a finite number, got inf"),
        (("--task", "Point-v0", "--task-options", "horizon", "2.5"), "horizon: expected a whole number of at least 1"),
        (
            ("--task", "Hopper-v5", "--task-options", "frame_skip", "0"),
            "frame_skip: expected a whole number of at least",
        ),
        (("--task", "Hopper-v5", "--task-options", "reset_noise_scale", "-1"), "reset_noise_scale: expected 0 or more"),
        (("--task", "Point-v0", "--seeds", "9..0"), "seeds: expected the first and the last"),
        (("--task", "Point-v0", "--seeds", "0..1", "--seed", "4"), "seed: cannot be combined with seeds 0..1, got 4"),
        (("--task", "Point-v0", "--keep-checkpoints", "1"), "keep_checkpoints: expected at least 2, got 1"),
        (("--task", "Point-v0", "--seed", str(2**32)), "seed: expected at least 0 and less than 2**32"),
        (("--task", "Point-v0", "--seeds", f"0..{2**32}"), "seeds: expected less than 2**32"),
        (("--task", "Point-v0", "--seeds", "1..10001"), "seeds: expected at most 10,000 at once, got 10,001"),
        (("--task", "Pendulum-v1", "--task-options", "foo", "1"), "Pendulum-v1 cannot be made: TypeError"),
        (("--task", "Walker2d-v5", "--task-options", "healthy_z_range", "1"), "healthy_z_range: expected tuple"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    arguments: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert dvdrl(monkeypatch, "train", "dvd-es", *arguments, "--out", str(tmp_path / "run")) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


RUNS = {
    "a file in the way": (
        "train es --task Point-v0 --out DIR/config.json/below",
        "cannot write to DIR/config.json/below",
    ),
    "an existing run": (
        "train es --task Point-v0 --out DIR",
        "DIR exists; `dvdrl resume DIR` continues it, --out writes",
    ),
    "a later format": ("resume DIR", "reads formats up to 3; pip install --upgrade dvdrl"),
    "a state of another version": (
        "resume DIR",
        "file and can continue the run, if config.json has not changed since",
    ),
    "a module": ("resume DIR", "names the module evil, whose code would run; if you trust it, `--module evil`"),
    "a module, evaluated": ("evaluate DIR", "names the module evil, whose code would run"),
    "a module, filmed": ("render DIR", "names the module evil, whose code would run"),
    "a module, repeated": (
        "train --config DIR/config.json --out DIR/again",
        "names the module evil, whose code would run",
    ),
    "no such module": ("resume DIR --module no_such_module", "module: No module named 'no_such_module'"),
    "no run": ("resume DIR/policies", "there is no such file; a run directory has a config.json"),
    "no such directory": ("evaluate DIR/nowhere", "not a run directory, it has no config.json"),
}


@pytest.mark.parametrize("case", RUNS)
def test_a_directory_that_is_not_as_it_must_be_is_one_line_and_nothing_is_written(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('its code ran')")
    directory = tmp_path / "run"
    write_run(directory, MLP((6, 4, 2)))
    values = json.loads((directory / "config.json").read_text())
    if case == "a later format":
        values["format"] += 1
    if case.startswith("a module"):
        values["task"] = "evil:Evil-v0"
    (directory / "config.json").write_text(json.dumps(values))
    (directory / "metrics.jsonl").write_text('{"iteration": 1}\n')
    checkpoint.save(directory / "checkpoints", {"params": np.zeros(3)}, checkpoint.Progress(1, 10, 1.0))
    arguments, said = (text.replace("DIR", str(directory)) for text in RUNS[case])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert dvdrl(monkeypatch, *arguments.split()) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("dvdrl: ")
    assert error.count("\n") == 1
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"}
    assert {path: text for path, text in after.items() if "__pycache__" not in path.parts} == before


def test_a_module_is_imported_when_somebody_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "trusted_module.py").write_text("")
    write_run(tmp_path / "run", MLP((6, 4, 2)))
    values = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps(values | {"task": "trusted_module:Nothing-v0"}))
    assert dvdrl(monkeypatch, "evaluate", str(tmp_path / "run"), "--module", "trusted_module") == 2
    assert "no task 'Nothing-v0'" in capsys.readouterr().err  # imported, and it holds none
    sys.modules.pop("trusted_module")


def test_a_run_is_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert dvdrl(monkeypatch, "train", "es", "--task", "Point-v0", "--out", str(tmp_path)) == 2
    assert "exists; `dvdrl resume" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_train_repeat_resume_and_evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("--population", "1", "--sensings", "2", "--hidden", "4", "--iterations", "2", "--members", "all")
    out, again = str(tmp_path / "run"), str(tmp_path / "again")
    assert dvdrl(monkeypatch, "train", "nsr-es", "--task", "Point-v0", *small, "--out", out) == 0
    assert "nsr-es Point-v0 seed 0  2/2  best" in capsys.readouterr().err
    assert dvdrl(monkeypatch, "train", "--config", f"{out}/config.json", "--out", again) == 0
    assert dvdrl(monkeypatch, "resume", out) == 0  # nothing is left to do
    capsys.readouterr()
    results = []
    for directory in (out, again):
        assert dvdrl(monkeypatch, "evaluate", directory, "--episodes", "2", "--json") == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0] == results[1]
    assert len(results[0]["member_returns"]) == 1
    (tmp_path / "notes").mkdir()  # a folder that is no run does not matter beside those that are
    assert dvdrl(monkeypatch, "evaluate", str(tmp_path), "--episodes", "2", "--json") == 0
    of_folder = json.loads(capsys.readouterr().out)
    assert [each.pop("run") for each in of_folder] == [again, out]
    assert of_folder == [results[1], results[0]]
    assert dvdrl(monkeypatch, "evaluate", str(tmp_path), "--paths", "paths.png") == 2
    assert capsys.readouterr().err == "dvdrl: paths: expected one run, got 2\n"
    assert dvdrl(monkeypatch, "evaluate", out, "--episodes", "1") == 0
    assert "member 0" in capsys.readouterr().out
