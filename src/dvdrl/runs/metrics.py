"""The numbers of a run: metrics.jsonl, TensorBoard, Weights & Biases where asked for, and what the terminal shows."""

import json
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

TIMINGS = ("seconds", "steps_per_second", "outside_simulation")
"""The fields that differ between two runs with the same seed."""

PAIRS = ("similarities", "distances")
"""The fields with a number for each pair of members: too many for a curve each."""


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl, without one that a crash has cut short."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]


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
        end = sum(len(line) for line in before[:iteration])
        self._file = open(self._path, "ab")  # noqa: SIM115 - closed by close()
        self._file.truncate(end)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tensorboardX imports what NumPy and protobuf have deprecated
            from tensorboardX import SummaryWriter

        self._board = SummaryWriter(str(directory / "tensorboard"), purge_step=iteration + 1 if iteration else None)
        self._wandb = _start_wandb(directory, wandb) if wandb is not None else None

    def write(self, line: Mapping[str, Any]) -> None:
        """Append the metrics of an iteration."""
        self._file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        scalars = dict(_scalars(line))
        for name, value in scalars.items():
            self._board.add_scalar(name, value, line["iteration"])
        if self._wandb is not None:
            self._wandb.log(scalars, step=line["iteration"])

    def close(self) -> None:
        """Flush and close everything."""
        self._file.close()
        self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


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
            f"best {line['best_return']:.1f}  mean {line['mean_return']:.1f}  lambda {line['lambda']:g}  "
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

    return wandb.init(project="dvdrl", name=str(directory), dir=str(directory), config=dict(config))
