"""The numbers of a run: metrics.jsonl, TensorBoard, Weights & Biases where asked for, and what the terminal shows."""

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dvdrl.errors import DvdrlError
from dvdrl.runs import events

TIMINGS = ("seconds", "steps_per_second", "outside_simulation")
"""The fields that differ between two runs with the same seed."""

PAIRS = ("similarities", "distances")
"""The fields with a number for each pair of members: too many for a curve each."""


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl, without one that a crash has cut short.

    Raises:
        DvdrlError: it holds something else.
    """
    try:
        whole = path.read_bytes().split(b"\n")[:-1]
        lines = [json.loads(line) for line in whole]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        raise DvdrlError(f"{path}: expected a JSON object a line, got {type(error).__name__}: {error}") from error
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict) or type(line.get("iteration")) is not int:
            raise DvdrlError(f"{path}, line {number}: expected an object with an iteration")
    return lines


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as JSON can hold them: scalars as they are, vectors in the fewest digits that tell their numbers apart."""
    return {
        name: float(value) if np.ndim(value) == 0 else [float(str(item)) for item in np.asarray(value)]
        for name, value in values.items()
    }


class Metrics:
    """Writes the metrics of one run; opened at a number of completed iterations, it forgets what came after them."""

    def __init__(self, directory: Path, iteration: int, *, wandb: Mapping[str, Any] | None = None):
        self._path = directory / "metrics.jsonl"
        before = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        with open(self._path, "ab") as file:
            file.truncate(sum(len(line) for line in before[:iteration]))
        # For TensorBoard a file each time that the run is started or resumed.
        self._events = directory / "tensorboard" / f"events.out.tfevents.{time.time_ns()}"
        self._events.parent.mkdir(exist_ok=True)
        _append(self._events, events.beginning(iteration), durable=False)
        self._wandb = _start_wandb(directory, wandb) if wandb is not None else None

    def write(self, line: Mapping[str, Any]) -> None:
        """Append the metrics of an iteration."""
        _append(self._path, json.dumps(line, allow_nan=False).encode() + b"\n", durable=True)
        scalars = dict(_scalars(line))
        _append(self._events, events.scalars(line["iteration"], scalars), durable=False)
        if self._wandb is not None:
            self._wandb.log(scalars, step=line["iteration"])

    def close(self) -> None:
        """Tell Weights & Biases that this was all."""
        if self._wandb is not None:
            self._wandb.finish()


def _append(path: Path, content: bytes, *, durable: bool) -> None:
    """Write at the end of a file, of which nothing is kept open; durable: wait for the disk."""
    with open(path, "ab") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


class Display:
    """A live line for each run in a terminal; a plain line for each iteration elsewhere."""

    def __init__(self, names: Mapping[Path, str], iterations: int, done: int):
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
    """Numbers by name; those of a list by name and position."""
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

    # Seeds that are trained together are runs of their own there too; by default wandb would give all the first one.
    about = {"project": "dvdrl", "name": str(directory), "dir": str(directory), "config": dict(config)}
    return wandb.init(**about, reinit="create_new")
