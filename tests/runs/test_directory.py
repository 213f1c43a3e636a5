"""Where the runs of several seeds go, and how they are found again; reading needs no training loop."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.runs.directory import of_seeds, planned, runs_in
from dvdrl.runs.options import ES
from written_runs import numbers, write_numbers


@pytest.mark.parametrize("seeds", ["3", "2..1", f"0..{2**32}", "0..99999999999999", [0, 1], 2])
def test_seeds_that_are_none_are_said(seeds: Any) -> None:
    with pytest.raises(DvdrlError, match="seeds: expected"):
        planned(ES(task="Point-v0", seeds=seeds))


def test_seeds_are_runs_of_their_own() -> None:
    runs = planned(ES(task="Point-v0", seeds="2..4", out=Path("here")))
    assert [(path, each.seed) for path, each in runs] == [(Path(f"here/seed-{i}"), i) for i in (2, 3, 4)]
    for wrong in ("3", "4..2", "a..b"):
        with pytest.raises(DvdrlError, match="seeds"):
            planned(ES(task="Point-v0", seeds=wrong))


def test_seeds_are_found_in_order(tmp_path: Path) -> None:
    for seed in (10, 2, 0):
        write_numbers(tmp_path / f"seed-{seed}", [])
    (tmp_path / "seed-notes").mkdir()
    assert [path.name for path in runs_in([tmp_path])] == ["seed-0", "seed-2", "seed-10"]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (["seeds/seed-1", "seeds"], ["seeds/seed-1", "seeds/seed-0"]),
        (["seeds", "seeds/seed-0"], ["seeds/seed-0", "seeds/seed-1"]),
        (["alone", "seeds/../alone"], ["alone"]),
        (["alone", "link"], ["alone"]),
    ],
)
def test_a_run_named_twice_is_one(named: list[str], expected: list[str], tmp_path: Path) -> None:
    for name in ("seeds/seed-0", "seeds/seed-1", "alone"):
        write_numbers(tmp_path / name, [])
    (tmp_path / "link").symlink_to(tmp_path / "alone")
    found = runs_in([tmp_path / name for name in named])
    assert found == [tmp_path / name for name in expected]


def test_a_folder_stands_for_the_runs_in_it(tmp_path: Path) -> None:
    for name in ("b", "several/seed-1", "several/seed-0", "c/deeper/d"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_text("{}")
    (tmp_path / "runs" / "a link").symlink_to(tmp_path / "runs" / "b")
    (tmp_path / "runs" / "notes.txt").write_text("no run")
    names = [str(path.relative_to(tmp_path / "runs")) for path in runs_in([tmp_path / "runs"])]
    assert names == ["b", "several/seed-0", "several/seed-1"]  # two levels, as `dvdrl train` makes them
    with pytest.raises(DvdrlError, match=r"no config\.json, and there are no runs in it"):
        runs_in([tmp_path])


def test_directories_of_seeds_are_those_that_training_names(tmp_path: Path) -> None:
    for name in ("seed-10", "seed-9", "seed-x", "seed-1.log", "other"):
        (tmp_path / name).mkdir()
    assert [path.name for path in of_seeds(tmp_path)] == ["seed-9", "seed-10"]
    assert of_seeds(tmp_path) == [path for path, _ in planned(ES(task="Point-v0", seeds="9..10", out=tmp_path))]


def test_a_run_is_finished_after_its_last_iteration(tmp_path: Path) -> None:
    assert not dvdrl.Run(write_numbers(tmp_path / "begun", [], iterations=2)).finished
    assert not dvdrl.Run(write_numbers(tmp_path / "half", numbers([1]), iterations=2)).finished
    assert dvdrl.Run(write_numbers(tmp_path / "done", numbers([1, 2]), iterations=2)).finished


@pytest.mark.parametrize("module", ["views.report", "views.watch", "views.render", "views.export", "runs.evaluation"])
def test_reading_a_run_imports_no_training(module: str) -> None:
    code = f"import sys, dvdrl.{module}; sys.exit('dvdrl.runs.loop' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
