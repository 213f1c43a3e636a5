"""What is called after iterations: a function of the user's own, and the loggers."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.runs import hooks, loop
from stopped_runs import assert_same_run, numbers

TINY = dvdrl.ES(task="Point-v0", task_options={"horizon": 5}, population=2, sensings=2, hidden=(4,), iterations=4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    loop.train(replace(TINY, out=directory))
    return directory


def test_a_function_sees_each_iteration_when_its_files_are_there(whole: Path, tmp_path: Path) -> None:
    seen: list[dvdrl.Iteration] = []

    def look(done: dvdrl.Iteration) -> None:
        seen.append(done)
        assert done.run.metrics[-1] == done.metrics
        np.testing.assert_array_equal(done.run.population.agents.params, done.population.agents.params)

    run = dvdrl.train(replace(TINY, out=tmp_path / "run"), on_iteration=look)
    assert isinstance(run, dvdrl.Run)
    assert [done.metrics for done in seen] == run.metrics
    assert_same_run(run.directory, whole)


def test_it_may_stop_the_run_which_can_go_on(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stop_at(iteration: int, error: type[Exception]) -> Any:
        def look(done: dvdrl.Iteration) -> None:
            if done.metrics["iteration"] == iteration:
                raise error("that is enough")

        return look

    directory = tmp_path / "run"
    run = dvdrl.train(replace(TINY, out=directory), on_iteration=stop_at(1, dvdrl.Stop))
    assert isinstance(run, dvdrl.Run)
    assert "stopped after iteration 1: that is enough; `dvdrl resume" in capsys.readouterr().err
    assert (len(run.metrics), run.ended) == (1, None)
    with pytest.raises(ZeroDivisionError, match="that is enough"):
        dvdrl.resume(directory, on_iteration=stop_at(2, ZeroDivisionError))
    assert len(run.metrics) == 2
    dvdrl.resume(directory)
    assert_same_run(directory, whole)


def test_seeds_are_seen_one_after_the_other(tmp_path: Path) -> None:
    seen = []

    def look(done: dvdrl.Iteration) -> None:
        seen.append((done.metrics["iteration"], done.run.directory.name))

    dvdrl.train(replace(TINY, iterations=2, seeds="0..1", out=tmp_path / "runs"), on_iteration=look)
    assert seen == [(1, "seed-0"), (1, "seed-1"), (2, "seed-0"), (2, "seed-1")]


class Wandb(SimpleNamespace):
    """Weights & Biases without a network."""

    def __init__(self) -> None:
        self.runs: dict[str, SimpleNamespace] = {}
        super().__init__()

    def init(self, *, id: str, name: str, reinit: str, resume: str, project: str, **_: Any) -> SimpleNamespace:
        assert resume == "allow"
        # As wandb does: while a run is active, that one is returned, unless a new one is asked for.
        if reinit != "create_new" and self.runs:
            return next(iter(self.runs.values()))
        run = self.runs.setdefault(id, SimpleNamespace(name=name, project=project, lines=[], finished=0))

        def finish() -> None:
            run.finished += 1

        run.log, run.finish = lambda scalars, step: run.lines.append((step, scalars)), finish
        return run


def test_weights_and_biases_has_one_run_for_each_seed_however_often_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setattr("dvdrl.runs.presets.find_spec", lambda name: name)
    options = replace(TINY, iterations=2, seeds="0..1", wandb=True, wandb_project="legs", out=tmp_path / "runs")
    dvdrl.train(options)
    dvdrl.resume(tmp_path / "runs", iterations=3)
    assert len(wandb.runs) == 2
    for seed, (name, run) in enumerate(wandb.runs.items()):
        directory = tmp_path / "runs" / f"seed-{seed}"
        assert (run.name, run.project, run.finished) == (str(directory), "legs", 2)
        assert json.loads((directory / hooks.WANDB_FILE).read_text()) == {"id": name}
        lines = dvdrl.Run(directory).metrics
        assert run.lines == [(line["iteration"], hooks.scalars(line)) for line in lines]
    (tmp_path / "runs" / "seed-0" / hooks.WANDB_FILE).write_text('{"id": "../x"}')
    with pytest.raises(DvdrlError, match=r"wandb\.json: expected an id; remove the file for a new one"):
        dvdrl.resume(tmp_path / "runs", iterations=4)


def test_numbers_are_logged_by_name_and_position(whole: Path) -> None:
    found = hooks.scalars({"iteration": 3, "best_return": 2, "member_returns": [1.0, 2.0], "distances": [0.5]})
    assert found == {"best_return": 2.0, "member_returns/0": 1.0, "member_returns/1": 2.0}
    assert len(numbers(whole)) == 4
