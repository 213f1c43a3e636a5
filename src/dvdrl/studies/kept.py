"""The numbers of each run, of which a study makes its tables and its figure, and the file that keeps those of a cell.

The file is JSON with one line per option, per measure and per curve. It has a digest, so a truncated or changed file is
never taken for results. A file that was rebuilt after its runs were deleted names its source in `rebuilt_from`.
"""

import hashlib
import json
import reprlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dvdrl import files
from dvdrl.runs.checkpoint import Damaged

_MOST = 1e100
"""Above every number that is kept; its square is finite."""


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
    out = path.parents[3]  # below it: cells, scale and seeds, the setting
    out.mkdir(parents=True, exist_ok=True)
    for folder in reversed(path.parents[:3]):
        files.make_folder(folder, within=out)
    content = (_lines({**values, "sha256": _digest(values)}) + "\n").encode()
    files.write_atomically(path, content, within=out)


def read(path: Path, setting: str, variant: str, curves: Collection[str] = ()) -> tuple[dict[str, Any], list[Result]]:
    """The options and results that `write` was given.

    Raises:
        Damaged: the file was changed after it was written.
    """
    try:
        values = dict(files.read_json(path, most=files.MOST_OF_CELL, within=path.parents[3]))
        if values.pop("sha256") != _digest(values):
            raise ValueError("its digest does not match")
        options, runs = dict(values["options"]), dict(values["runs"])
        if not runs:
            raise ValueError("there are no runs in it")
        cell = (setting, variant, str(options["executor"]))
        return options, [_result(*cell, int(seed), numbers, curves) for seed, numbers in runs.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{path} is damaged: {type(error).__name__}: {error}; move it away to train again") from error


def _result(
    setting: str, variant: str, executor: str, seed: int, numbers: Mapping[str, Any], drawn: Collection[str]
) -> Result:
    """What a file says of a run, once it has been looked at: whoever wants to can compute a digest."""
    result = Result(setting, variant, executor, seed, **numbers)
    curves = {name: np.asarray(curve) for name, curve in result.curves.items()}
    counted = [result.env_steps, result.seconds, *result.measures.values()]
    if any(isinstance(each, bool) or not abs(each) < _MOST for each in counted) or type(result.env_steps) is not int:
        raise ValueError(f"expected finite numbers, got {reprlib.repr(counted)}")
    if not all(isinstance(each, str) for each in (*result.versions, *result.versions.values())):
        raise ValueError(f"expected versions by name, got {reprlib.repr(result.versions)}")
    lengths = {curve.shape for curve in curves.values()}
    usual = all(curve.ndim == 1 and curve.dtype.kind in "if" for curve in curves.values())
    if not usual or len(lengths) > 1 or not all(np.all(np.abs(curve) < _MOST) for curve in curves.values()):
        raise ValueError("expected curves of finite numbers, all of one length")
    expected = {"x", "best", "lambda", *drawn}
    if curves and not expected <= curves.keys():
        raise ValueError(f"expected the curves {', '.join(sorted(expected))}, got {', '.join(curves)}")
    return replace(result, curves=curves)


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
