"""What is called after each iteration of a run: the loggers, and a function of the user's own."""

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvdrl import files
from dvdrl.documented import documented
from dvdrl.errors import DvdrlError
from dvdrl.policies import Population
from dvdrl.runs import events
from dvdrl.runs.directory import Run
from dvdrl.runs.metrics import PAIRS

WANDB_FILE = "wandb.json"
"""Keeps the id that Weights & Biases knows a run by."""


class Stop(Exception):  # noqa: N818 - not an error
    """Raised by a function that is called after each iteration, it stops training. The message says why.

    `dvdrl.train` then returns as it does after the last iteration, and `dvdrl.resume` goes on.
    """


@documented
@dataclass(frozen=True, repr=False)
class Iteration:
    """An iteration of a run, when all its files are written."""

    run: Run
    """With several seeds, one of the runs."""
    metrics: Mapping[str, Any]
    """Its line in metrics.jsonl."""
    population: Population
    """The current members; in niche-ES, what the run would end with."""

    def __repr__(self) -> str:
        return f"Iteration({self.metrics.get('iteration')} of {self.run.directory})"


Hook = Callable[[Iteration], object]


class TensorBoard:
    """Writes the metrics of one run for TensorBoard, in a new file each time that the run is started or resumed."""

    def __init__(self, directory: Path, iteration: int):
        self._path = directory / "tensorboard" / f"events.out.tfevents.{time.time_ns()}"
        files.make_folder(self._path.parent)
        files.write_atomically(self._path, events.beginning(iteration), durable=False, within=directory)

    def __call__(self, done: Iteration) -> None:
        """Append the numbers of an iteration."""
        files.append(self._path, events.scalars(done.metrics["iteration"], scalars(done.metrics)), durable=False)

    def close(self) -> None:
        """Nothing is open between iterations."""


class WeightsAndBiases:
    """Sends the metrics of one run to Weights & Biases, where it stays one run however often it is resumed."""

    def __init__(self, directory: Path, project: str, config: Mapping[str, Any]):
        import wandb

        # Each seed is a run of its own there too. By default, wandb would return the first run for all seeds.
        about = {"project": project, "name": str(directory), "dir": str(directory), "config": dict(config)}
        self._run = wandb.init(**about, id=_id_of(directory), resume="allow", reinit="create_new")

    def __call__(self, done: Iteration) -> None:
        """Send the numbers of an iteration."""
        self._run.log(scalars(done.metrics), step=done.metrics["iteration"])

    def close(self) -> None:
        """Say that the run has ended."""
        self._run.finish()


def _id_of(directory: Path) -> str:
    """The id of the run in Weights & Biases; a new one if it has none."""
    path = directory / WANDB_FILE
    try:
        known = files.read_json(path)["id"]
        if not isinstance(known, str) or not known.isalnum() or len(known) > 64:
            raise ValueError("expected letters and digits")
    except FileNotFoundError:
        known = uuid.uuid4().hex
        files.write_atomically(path, json.dumps({"id": known}).encode() + b"\n")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DvdrlError(f"{path}: expected an id; remove the file for a new one: {error}") from error
    return known


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line by name; those in a list by name and position."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if name in PAIRS:
            continue
        if isinstance(value, list):
            found |= {f"{name}/{index}": float(item) for index, item in enumerate(value)}
        elif name != "iteration":
            found[name] = float(value)
    return found
