import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dvdrl.runs import metrics
from dvdrl.runs.metrics import Metrics


def line(iteration: int) -> dict[str, object]:
    return {"iteration": iteration, "best_return": float(iteration), "member_returns": [1.0, 2.0]}


def test_lines_are_appended_and_read(tmp_path: Path) -> None:
    writer = Metrics(tmp_path, 0)
    for iteration in (1, 2):
        writer.write(line(iteration))
        assert metrics.read(tmp_path / "metrics.jsonl")[-1] == line(iteration)  # at once, not when closed
    writer.close()
    assert list(tmp_path.glob("tensorboard/events.*"))


def test_arrays_become_few_digits() -> None:
    values = {"log_det": np.float32(0.1), "distances": np.asarray([0.1, 2.0], np.float32), "none": np.zeros(0)}
    assert metrics.plain(values) == {"log_det": float(np.float32(0.1)), "distances": [0.1, 2.0], "none": []}


def test_a_line_cut_short_is_no_line(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1}\n{"iteration": 2, "best')
    assert metrics.read(tmp_path / "metrics.jsonl") == [{"iteration": 1}]


def test_going_on_from_an_iteration_drops_what_came_after_it(tmp_path: Path) -> None:
    writer = Metrics(tmp_path, 0)
    for iteration in (1, 2, 3):
        writer.write(line(iteration))
    writer.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"iteration": 4, "be')
    writer = Metrics(tmp_path, 2)
    writer.write(line(3) | {"best_return": 30.0})
    writer.close()
    assert [each["best_return"] for each in metrics.read(tmp_path / "metrics.jsonl")] == [1.0, 2.0, 30.0]


def test_what_is_not_finite_is_never_written(tmp_path: Path) -> None:
    writer = Metrics(tmp_path, 0)
    with pytest.raises(ValueError, match="not JSON compliant"):
        writer.write(line(1) | {"best_return": float("nan")})
    writer.close()
    assert metrics.read(tmp_path / "metrics.jsonl") == []


def test_weights_and_biases_gets_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[dict[str, float], int]] = []
    run = SimpleNamespace(log=lambda scalars, step: logged.append((scalars, step)), finish=lambda: None)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **about: run))
    writer = Metrics(tmp_path, 0, wandb={"task": "Point-v0"})
    writer.write(line(1) | {"distances": [0.5]})  # of pairs: for the report alone
    writer.close()
    assert logged == [({"best_return": 1.0, "member_returns/0": 1.0, "member_returns/1": 2.0}, 1)]
