import json
import sys
from pathlib import Path

import pytest

from dvdrl import cli


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
        (("--task", "Point-v0", "--population", "0"), "population: expected at least 1, got 0"),
        (("--task", "Point-v0", "--sigma", "-0.1"), "sigma: expected a positive number, got -0.1"),
        (("--task", "HalfCheeta-v5"), "did you mean HalfCheetah-v5"),
        (("--task", "Point-v0", "--task-options", "wall_width", "4"), "Point-v0 has no option 'wall_width'"),
        (("--task", "Point-v0", "--seeds", "9..0"), "seeds: expected the first and the last"),
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
    assert dvdrl(monkeypatch, "evaluate", out, "--episodes", "1") == 0
    assert "member 0" in capsys.readouterr().out
