"""The metrics of a run, in metrics.jsonl. `dvdrl.runs.display` shows them in the terminal, `hooks` has the loggers."""

import difflib
import json
import math
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from dvdrl import files
from dvdrl.errors import DvdrlError

TIMINGS = ("seconds", "steps_per_second", "outside_simulation")
"""The fields that differ between two runs with the same seed."""

PAIRS = ("similarities", "distances")
"""The fields with a number for each pair of members: too many to draw a curve for each."""


class Lines(list[dict[str, Any]]):
    """The metrics of a run: a list with a dict for each iteration, whose columns are arrays.

    `lines[-1]` is the last iteration, `lines["best_return"]` a column, `lines.to_pandas()` a table.
    """

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(dict.fromkeys(name for line in self for name in line))

    @overload
    def __getitem__(self, key: SupportsIndex) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> "Lines": ...
    @overload
    def __getitem__(self, key: str) -> NDArray[Any]: ...
    def __getitem__(self, key: SupportsIndex | slice | str) -> Any:
        """A line, some of the lines, or a column: (n,), or (n, M) if it has a value for each member.

        A column has NaN where a line has no such values, and is an array of objects if its lines have different
        lengths.
        """
        if isinstance(key, slice):
            return Lines(super().__getitem__(key))
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in (columns := self.columns):
            close = difflib.get_close_matches(key, columns, n=1)
            raise KeyError(f"no column {key!r}" + (f"; did you mean {close[0]}?" if close else ""))
        lengths = {len(value) for line in self if isinstance(value := line.get(key), list)}
        missing = [math.nan] * lengths.pop() if len(lengths) == 1 else math.nan
        values = [line.get(key, missing) for line in self]
        try:
            return np.array(values)
        except ValueError:  # lists of different lengths
            column = np.empty(len(values), object)
            column[:] = values
            return column

    def to_pandas(self) -> Any:
        """The same as a pandas.DataFrame with a row for each iteration.

        Raises:
            DvdrlError: pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise DvdrlError("pandas is not installed; pip install pandas") from error
        return pandas.DataFrame.from_records(list(self), index="iteration" if self else None)

    def __repr__(self) -> str:
        """E.g. <200 lines with iteration, env_steps, best_return, ...>."""
        names = self.columns
        return f"<{len(self)} lines with {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}>"


def read(path: Path) -> Lines:
    """The lines of a metrics.jsonl. A last line that a crash cut short is left out.

    Raises:
        DvdrlError: the file holds something else.
    """
    try:
        lines = Lines(json.loads(line) for line in files.read_lines(path))
    except FileNotFoundError:
        return Lines()
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
