"""What the tables and the figure of a study are made of: the numbers of each run, and the file that keeps a cell's.

The file is JSON with a line for each option, each measure and each curve. It has a digest: a file that was cut short or
changed is not taken for results. Those that were rebuilt when their runs were gone say what of, in `rebuilt_from`.
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
    """One run."""

    setting: str
    variant: str
    executor: str
    seed: int
    env_steps: int
    seconds: float
    measures: Mapping[str, float]
    """By name; without those that have no number in this run."""
    curves: Mapping[str, np.ndarray] = field(default_factory=dict)
    """By name: x (rollouts of the gradient, or with TD3 environment steps), best (return of the best member), lambda,
    and those of measures. Empty where they are not kept: then there are tables and no figure."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of what it was trained with."""


def write(path: Path, options: Mapping[str, Any], results: Sequence[Result]) -> None:
    """Keep the results of a cell, with the options of its runs."""
    elsewhere = ("setting", "variant", "executor", "seed")  # in the file's name, the options, and the name of a run
    runs = {
        str(each.seed): {name: value for name, value in vars(each).items() if name not in elsewhere} for each in results
    }
    values = {"options": options, "runs": runs}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (_lines({**values, "sha256": _digest(values)}) + "\n").encode())


def read(path: Path, setting: str, variant: str) -> tuple[dict[str, Any], list[Result]]:
    """What `write` was given.

    Raises:
        Damaged: the file is not as it was written.
    """
    try:
        values = dict(json.loads(path.read_text()))
        if values.pop("sha256") != _digest(values):
            raise ValueError("its digest is another")
        options, runs = values["options"], values["runs"].items()
        return options, [_result(setting, variant, options["executor"], int(seed), numbers) for seed, numbers in runs]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(
            f"{path} is not as it was written: {type(error).__name__}: {error}; move it away to train it anew"
        ) from error


def _result(setting: str, variant: str, executor: str, seed: int, numbers: Mapping[str, Any]) -> Result:
    curves = {name: np.asarray(curve) for name, curve in numbers["curves"].items()}
    return Result(setting, variant, executor, seed, **{**numbers, "curves": curves})


def _lines(value: Any, indent: str = "") -> str:
    """As JSON, with a line for whatever is not an object."""
    if not isinstance(value, Mapping) or not value:
        return _json(value)
    inside = ",\n".join(f"{indent}  {_json(name)}: {_lines(each, indent + '  ')}" for name, each in value.items())
    return f"{{\n{inside}\n{indent}}}"


def _json(value: Any) -> str:
    return json.dumps(value, default=np.ndarray.tolist)


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(_json(values).encode()).hexdigest()
