"""The metrics of a run: in metrics.jsonl, TensorBoard, the terminal and, if requested, Weights & Biases."""

import json
import os
import sys
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dvdrl import files
from dvdrl.errors import DvdrlError, printable
from dvdrl.runs import events

TIMINGS = ("seconds", "steps_per_second", "outside_simulation")
"""The fields that differ between two runs with the same seed."""

PAIRS = ("similarities", "distances")
"""The fields with a number for each pair of members: too many to draw a curve for each."""


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl. A last line that a crash cut short is left out.

    Raises:
        DvdrlError: the file holds something else.
    """
    try:
        lines = [json.loads(line) for line in files.read_lines(path)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        raise DvdrlError(f"{path}: expected one JSON object per line, got {type(error).__name__}: {error}") from error
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict) or type(line.get("iteration")) is not int:
            raise DvdrlError(f"{path}, line {number}: expected a JSON object with an iteration")
    return lines


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as JSON values: scalars with all digits, vectors with the fewest digits that identify each number."""
    return {
        name: float(value) if np.ndim(value) == 0 else [float(str(item)) for item in np.asarray(value)]
        for name, value in values.items()
    }


class Metrics:
    """Writes the metrics of one run. It first removes lines of iterations after the given one."""

    def __init__(self, directory: Path, iteration: int, *, wandb: Mapping[str, Any] | None = None):
        self._path = directory / "metrics.jsonl"
        files.create(self._path)
        self._size = sum(map(len, islice(files.read_lines(self._path), iteration)))
        with files.opened_to_append(self._path) as file:
            file.truncate(self._size)
        # TensorBoard gets a new file each time that the run is started or resumed.
        self._events = directory / "tensorboard" / f"events.out.tfevents.{time.time_ns()}"
        files.make_folder(self._events.parent)
        files.write_atomically(self._events, events.beginning(iteration), durable=False, within=directory)
        self._wandb = _start_wandb(directory, wandb) if wandb is not None else None

    def write(self, line: Mapping[str, Any]) -> None:
        """Append the metrics of an iteration.

        Raises:
            DvdrlError: metrics.jsonl has been removed or changed by another program.
        """
        content = json.dumps(line, allow_nan=False).encode() + b"\n"
        try:
            size = self._path.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            size = None
        if size != self._size:
            became = "was removed" if size is None else f"has {size} bytes instead of {self._size}: it was changed"
            raise DvdrlError(f"{self._path} {became} during training; put it back as it was, then resume the run")
        _append(self._path, content, durable=True)
        self._size += len(content)
        scalars = dict(_scalars(line))
        _append(self._events, events.scalars(line["iteration"], scalars), durable=False)
        if self._wandb is not None:
            self._wandb.log(scalars, step=line["iteration"])

    def close(self) -> None:
        """Tell Weights & Biases that the run has ended."""
        if self._wandb is not None:
            self._wandb.finish()


def _append(path: Path, content: bytes, *, durable: bool) -> None:
    """Append to a file, without keeping it open. With `durable`, wait for the disk."""
    with files.opened_to_append(path) as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


class Display:
    """In a terminal, a live line for each run; elsewhere, a plain line for each iteration."""

    def __init__(self, names: Mapping[Path, str], iterations: int, done: int):
        names = {path: printable(name) for path, name in names.items()}
        self._names, self._iterations = names, iterations
        self._live = sys.stderr.isatty()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[shown]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not self._live,
        )
        self._tasks = {
            path: self._progress.add_task(name, total=iterations, completed=done, shown="")
            for path, name in names.items()
        }

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, path: Path, line: Mapping[str, Any]) -> None:
        """Show the metrics of an iteration."""
        shown = (
            f"best {line['best_return']:.1f}  mean {line['mean_return']:.1f}  lambda {line['lambda']:.2g}  "
            f"log det {line['log_det']:.2f}  {line['steps_per_second']:,.0f} steps/s"
        )
        self._progress.update(self._tasks[path], completed=line["iteration"], shown=shown)
        if not self._live:
            print(f"{self._names[path]}  {line['iteration']}/{self._iterations}  {shown}", file=sys.stderr, flush=True)


def _scalars(line: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The numbers by name; those in a list by name and position."""
    pairs: list[tuple[str, float]] = []
    for name, value in line.items():
        if name in PAIRS:
            continue
        if isinstance(value, list):
            pairs.extend((f"{name}/{index}", float(item)) for index, item in enumerate(value))
        elif name != "iteration":
            pairs.append((name, float(value)))
    return pairs


def _start_wandb(directory: Path, config: Mapping[str, Any]) -> Any:
    import wandb

    # Each seed is a run of its own there too. By default, wandb would return the first run for all seeds.
    about = {"project": "dvdrl", "name": str(directory), "dir": str(directory), "config": dict(config)}
    return wandb.init(**about, reinit="create_new")
