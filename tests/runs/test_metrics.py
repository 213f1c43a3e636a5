import struct
import warnings
from pathlib import Path

import numpy as np
import pytest

import dvdrl
from dvdrl.policies import MLP
from dvdrl.runs import metrics
from dvdrl.runs.hooks import Iteration, TensorBoard
from dvdrl.runs.metrics import Metrics
from written_runs import write_run

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tensorboardX.proto import event_pb2
    from tensorboardX.record_writer import masked_crc32c


def line(iteration: int) -> dict[str, object]:
    return {"iteration": iteration, "best_return": float(iteration), "member_returns": [1.0, 2.0]}


def test_lines_are_appended_and_read(tmp_path: Path) -> None:
    writer = Metrics(tmp_path, 0)
    for iteration in (1, 2):
        writer.write(line(iteration))
        assert metrics.read(tmp_path / "metrics.jsonl")[-1] == line(iteration)  # at once, not when closed
    Metrics(tmp_path, 1).write(line(2))
    assert metrics.read(tmp_path / "metrics.jsonl") == [line(1), line(2)]


def test_tensorboard_reads_the_numbers(tmp_path: Path) -> None:
    nobody = write_run(tmp_path / "run", MLP((6, 4, 2)))
    run = dvdrl.Run(tmp_path / "run")
    writer = TensorBoard(run.directory, 0)
    for iteration in (1, 2):
        writer(Iteration(run, line(iteration), nobody))
    TensorBoard(run.directory, 1)(Iteration(run, line(2), nobody))
    first, second = sorted(run.directory.glob("tensorboard/events.out.tfevents.*"))
    values = {"best_return": 1.0, "member_returns/0": 1.0, "member_returns/1": 2.0}
    assert events(first) == [(0, {}), (1, values), (2, values | {"best_return": 2.0})]
    assert events(second) == [(0, {}), (2, "START"), (2, values | {"best_return": 2.0})]  # which hides the first's


def events(path: Path) -> list[tuple[int, object]]:
    """The records of a file for TensorBoard: length, checksum, event, checksum."""
    content, found = path.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        data = content[12 : 12 + length]
        for part, at in ((content[:8], 8), (data, 12 + length)):
            assert struct.unpack("<I", content[at : at + 4]) == (masked_crc32c(part),)
        event = event_pb2.Event.FromString(data)
        values = {value.tag: value.simple_value for value in event.summary.value}
        found.append((event.step, "START" if event.HasField("session_log") else values))
        content = content[16 + length :]
    return found


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
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"iteration": 4, "be')
    writer = Metrics(tmp_path, 2)
    writer.write(line(3) | {"best_return": 30.0})
    assert [each["best_return"] for each in metrics.read(tmp_path / "metrics.jsonl")] == [1.0, 2.0, 30.0]


def test_what_is_not_finite_is_never_written(tmp_path: Path) -> None:
    writer = Metrics(tmp_path, 0)
    with pytest.raises(ValueError, match="not JSON compliant"):
        writer.write(line(1) | {"best_return": float("nan")})
    assert metrics.read(tmp_path / "metrics.jsonl") == []
