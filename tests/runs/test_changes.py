"""What changes when a run is resumed: its end, how it is computed; and what must not."""

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dvdrl
from dvdrl.cli.train import Resume
from dvdrl.errors import DvdrlError
from dvdrl.runs import changes, loop
from dvdrl.runs.options import ALGORITHMS
from stopped_runs import assert_same_run, numbers

TINY = dvdrl.ES(task="Point-v0", task_options={"horizon": 5}, population=2, sensings=2, hidden=(4,), iterations=3)
STEPS = (2 + 2 * 2 * 2) * 5
"""Environment steps of an iteration: two members and four perturbations of each, five steps each."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six iterations that was never stopped."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    loop.train(replace(TINY, iterations=6, out=directory))
    return directory


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three."""
    return trained(tmp_path_factory.mktemp("three") / "run").directory


def trained(directory: Path, **options: Any) -> dvdrl.Run:
    run = loop.train(replace(TINY, out=directory, **options))
    assert isinstance(run, dvdrl.Run)
    return run


def test_a_finished_run_is_extended_as_if_it_had_been_longer_from_the_start(whole: Path, tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    assert run.ended == "it has done its 3 iterations"
    loop.resume(run.directory, iterations=5)
    assert run.ended == "it has done its 5 iterations"
    loop.resume(run.directory, steps=6 * STEPS)  # the new end replaces the old one
    assert run.ended == f"it has done its {6 * STEPS} environment steps"
    assert_same_run(run.directory, whole)
    assert run.record["options"]["iterations"] == 3
    assert run.record["changes"] == [
        {"iteration": 3, "iterations": 5},
        # 300 steps take at most 30 iterations, since each of its ten episodes has at least one step.
        {"iteration": 5, "iterations": 30, "steps": 300},
    ]
    before = (run.directory / "record.json").read_text()
    loop.resume(run.directory)  # nothing is left to do, and nothing changes
    assert (run.directory / "record.json").read_text() == before


def test_several_seeds_are_extended_together_though_they_ended_apart(tmp_path: Path) -> None:
    loop.train(replace(TINY, seeds="0..1", iterations=8, out=tmp_path / "whole"))
    loop.train(replace(TINY, seeds="0..1", out=tmp_path / "runs"))
    # As where episodes end early and a budget of steps does: seed 1 has gone on for four iterations more.
    loop.resume(tmp_path / "runs" / "seed-1", iterations=7)
    with pytest.raises(DvdrlError, match="differ in more than their seeds, in iterations; resume them one by one"):
        loop.resume(tmp_path / "runs")
    loop.resume(tmp_path / "runs", iterations=8)
    for seed in ("seed-0", "seed-1"):
        assert_same_run(tmp_path / "runs" / seed, tmp_path / "whole" / seed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sigma": 0.1}, "sigma: cannot change when a run of es is resumed; these can: executor, iterations"),
        ({"seed": 3}, "seed: cannot change"),
        ({"nonsense": 3}, "nonsense: cannot change"),
        ({"iterations": 2}, "iterations: DIR has done 3 already, got 2"),
        ({"iterations": 0}, "iterations: expected at least 1, got 0"),
        ({"steps": 3 * STEPS - 1}, f"steps: DIR has done {3 * STEPS} already, got {3 * STEPS - 1}"),
        ({"steps": 1}, f"steps: DIR has done {3 * STEPS} already, got 1"),
        ({"keep_checkpoints": 1}, "keep_checkpoints: expected at least 2, got 1"),
        ({"executor": "moon"}, "executor: expected one of local, ray, device, got 'moon'"),
    ],
)
def test_what_cannot_change_is_one_line_and_nothing_is_written(change: dict[str, Any], said: str, three: Path) -> None:
    before = {path: path.read_bytes() for path in three.rglob("*") if path.is_file()}
    with pytest.raises(DvdrlError) as error:
        loop.resume(three, **change)
    assert said.replace("DIR", str(three)) in str(error.value)
    assert {path: path.read_bytes() for path in three.rglob("*") if path.is_file()} == before


def test_what_does_not_change_a_number_may_change_and_is_recorded(whole: Path, tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    loop.resume(run.directory, iterations=6, keep_checkpoints=2)
    assert numbers(run.directory) == numbers(whole)
    assert len(list((run.directory / "checkpoints").iterdir())) == 2
    assert run.record["changes"] == [{"iteration": 3, "iterations": 6, "keep_checkpoints": 2}]


def test_an_edited_config_that_misdescribes_the_run_is_refused(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    path = run.directory / "config.json"
    sound = json.loads(path.read_text())
    for name, value in {"sigma": 0.2, "task_options": {"horizon": 6}, "seed": 1, "algorithm": "dvd-es"}.items():
        path.write_text(json.dumps(sound | {name: value}))
        for function in (loop.resume, dvdrl.evaluate, dvdrl.adapt, dvdrl.render):
            with pytest.raises(DvdrlError, match=rf"config\.json: {name} was .* when the run began, and is .* now"):
                function(run.directory)
    # One that may change is a change like any other.
    path.write_text(json.dumps(sound | {"iterations": 4}))
    loop.resume(run.directory)
    assert run.record["changes"] == [{"iteration": 3, "iterations": 4}]
    path.write_text(json.dumps(sound | {"iterations": 1}))
    with pytest.raises(DvdrlError, match=r"iterations: .* has done 4 already, got 1"):
        loop.resume(run.directory)
    path.write_text(json.dumps(sound | {"iterations": 4}))
    record = run.directory / "record.json"
    for wrong in ({"options": []}, {"options": {}, "changes": [3]}, {"options": {}, "changes": {}}):
        record.write_text(json.dumps(wrong))
        with pytest.raises(DvdrlError, match=r"record\.json: expected the options of a run and their changes"):
            loop.resume(run.directory)
    record.write_text("{}")  # of an earlier version
    loop.resume(run.directory)


def test_the_command_has_all_that_may_change() -> None:
    possible = set.union(*(changes.changeable(kind) for kind in ALGORITHMS.values()))
    given = {field.name for field in dataclasses.fields(Resume)}
    assert given - possible == {"directory", "for_", "ray_address", "module"}
    assert possible <= given
