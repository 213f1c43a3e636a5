"""The metrics of a run, in metrics.jsonl. `dvdrl.runs.display` shows them in the terminal, `hooks` has the loggers."""

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dvdrl import files
from dvdrl.errors import DvdrlError

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

    def __init__(self, directory: Path, iteration: int):
        self._path = directory / "metrics.jsonl"
        files.create(self._path)
        self._size = sum(map(len, islice(files.read_lines(self._path), iteration)))
        with files.opened_to_append(self._path) as file:
            file.truncate(self._size)

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
        files.append(self._path, content, durable=True)
        self._size += len(content)
