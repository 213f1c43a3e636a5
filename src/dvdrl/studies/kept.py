"""The numbers of each run, of which a study makes its tables and its figure, and the file that keeps those of a cell.

The file is JSON with one line per option, per measure and per curve. It has a digest, so a truncated or changed file is
never taken for results. A file that was rebuilt after its runs were deleted names its source in `rebuilt_from`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dvdrl.runs.checkpoint import Damaged, write_atomically


@dataclass(frozen=True)
class Result:
    """The results of one run."""

    setting: str
    variant: str
    executor: str
    seed: int
    env_steps: int
    seconds: float
    measures: Mapping[str, float]
    """Name -> number. Measures that have no number in this run are missing."""
    curves: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Name -> curve: x (rollouts for gradients, or with TD3 environment steps), best (return of the best member),
    lambda, and the curves of measures. If curves are not kept, this is empty; then there are tables but no figure."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions of the software that trained it."""


def write(path: Path, options: Mapping[str, Any], results: Sequence[Result]) -> None:
    """Write the results of a cell, with the options of its runs."""
    elsewhere = ("setting", "variant", "executor", "seed")  # these are in the path, the options, and the keys of runs
    runs = {
        str(each.seed): {name: value for name, value in vars(each).items() if name not in elsewhere} for each in results
    }
    values = {"options": options, "runs": runs}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (_lines({**values, "sha256": _digest(values)}) + "\n").encode())


def read(path: Path, setting: str, variant: str) -> tuple[dict[str, Any], list[Result]]:
    """The options and results that `write` was given.

    Raises:
        Damaged: the file was changed after it was written.
    """
    try:
        values = dict(json.loads(path.read_text()))
        if values.pop("sha256") != _digest(values):
            raise ValueError("its digest does not match")
        options, runs = values["options"], values["runs"].items()
        return options, [_result(setting, variant, options["executor"], int(seed), numbers) for seed, numbers in runs]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{path} is damaged: {type(error).__name__}: {error}; move it away to train again") from error


def _result(setting: str, variant: str, executor: str, seed: int, numbers: Mapping[str, Any]) -> Result:
    curves = {name: np.asarray(curve) for name, curve in numbers["curves"].items()}
    return Result(setting, variant, executor, seed, **{**numbers, "curves": curves})


def _lines(value: Any, indent: str = "") -> str:
    """JSON with one line for each value that is not an object."""
    if not isinstance(value, Mapping) or not value:
        return _json(value)
    inside = ",\n".join(f"{indent}  {_json(name)}: {_lines(each, indent + '  ')}" for name, each in value.items())
    return f"{{\n{inside}\n{indent}}}"


def _json(value: Any) -> str:
    return json.dumps(value, default=np.ndarray.tolist)


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(_json(values).encode()).hexdigest()
