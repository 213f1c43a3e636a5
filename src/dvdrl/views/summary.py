"""The contents of the report, from each run's config.json and metrics.jsonl: plain lists and dicts, ready for JSON.

The only assumption about a line is that it is an object. A value that is missing or not a finite number becomes a gap.
So older runs, and runs of other algorithms, are shown with the fields that they have.
"""

import dataclasses
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import orthogonal_procrustes
from scipy.stats import beta as beta_distribution
from scipy.stats import t as student

from dvdrl import files
from dvdrl.errors import DvdrlError
from dvdrl.runs import metrics
from dvdrl.runs.file import from_json
from dvdrl.runs.options import with_role
from dvdrl.runs.training import as_word

Lines = Sequence[Mapping[str, Any]]

BUCKETS = 600
"""A long curve keeps the smallest and the largest value in each of this many parts of the axis, more than pixels."""
FRAMES = 300
"""The largest number of positions of the slider, spread evenly over the run."""
_NUMBERS_IN_FRAMES = 200_000
_CURVES = ("best_return", "mean_return", "held_out_return", "lambda", "log_det_per_member", "vendi_1", "min_distance")
COMPARED = {
    "best_return": "best return",
    "mean_return": "mean return",
    "log_det_per_member": "log det / M",
    "vendi_1": "Vendi score",
    "min_distance": "smallest distance",
}
_NOT_COMPARED = {"format", *with_role("incidental", "outside")}
"""Fields of config.json in which runs may differ and still differ by chance only. Older files also have ray_address."""


def read_config(directory: Path) -> dict[str, Any]:
    """The config.json of a run, unchecked except that it is an object."""
    path = directory / "config.json"
    try:
        options = files.read_json(path)
    except (OSError, ValueError) as error:
        raise DvdrlError(f"{path}: expected the config.json of a run, got {type(error).__name__}: {error}") from error
    if not isinstance(options, dict):
        raise DvdrlError(f"{path}: expected the config.json of a run, got {type(options).__name__}")
    return options


def read_record(directory: Path) -> dict[str, str]:
    """How the run was started, from record.json: the command as typed, the date and the versions, as texts."""
    try:
        record = files.read_json(directory / "record.json")
    except (OSError, ValueError):
        return {}
    if not isinstance(record, dict):
        return {}
    versions = record.pop("versions", {})
    record.pop("options", None)  # the page shows config.json
    return {key: _shown(value) for key, value in {**record, **(versions if isinstance(versions, dict) else {})}.items()}


def read_lines(directory: Path) -> Lines:
    """The lines of metrics.jsonl. Empty if the run has not written any yet."""
    return metrics.read(directory / "metrics.jsonl")


def summarize_run(directory: Path, options: Mapping[str, Any], lines: Lines) -> dict[str, Any]:
    """One run: its curves over iterations, its frames for the slider, and how it was made."""
    iterations = [_number(line["iteration"]) for line in lines]
    num_members = max((len(_numbers(line.get("member_returns"))) for line in lines), default=0)

    def curve(field: str, item: int | None = None) -> dict[str, list[float | None]]:
        values = (line.get(field) for line in lines)
        return thinned(iterations, [_number(value) if item is None else _item(value, item) for value in values])

    return {
        "name": str(directory),
        "algorithm": str(options.get("algorithm", "")),
        "task": str(options.get("task", "")),
        "config": {key: _shown(value) for key, value in options.items()},
        "command": command(directory),
        "record": read_record(directory),
        "lines": len(lines),
        "last": {key: _number(lines[-1].get(key)) for key in ("iteration", "env_steps", *_CURVES)} if lines else None,
        "curves": {field: curve(field) for field in _CURVES},
        "members": [curve("member_returns", member) for member in range(num_members)],
        "distinct": _flags(lines[-1].get("distinct"), num_members) if lines else None,
        "arms": _arms(options, lines, iterations),
        "frames": frames(lines),
        "thinned": len(lines) > 2 * BUCKETS,
    }


def command(directory: Path) -> str:
    """The command that repeats the run. It refers to config.json if this version cannot read the options there."""
    try:
        options = from_json(directory / "config.json")
    except DvdrlError:
        return shlex.join(["dvdrl", "train", "--config", str(directory / "config.json")])
    words = ["dvdrl", "train", options.algorithm]
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if value == default:
            continue
        name = field.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, dict):
            words += [f"--{name}", *(word for key, item in value.items() for word in (key, as_word(item)))]
        elif field.name in ("wrappers", "perturb"):  # these are repeated
            words += [word for item in value for word in (f"--{name.removesuffix('s')}", item)]
        else:
            words += [f"--{name}", *map(str, value if isinstance(value, tuple) else (value,))]
    return shlex.join(words)


def thinned(x: Sequence[float | None], y: Sequence[float | None]) -> dict[str, list[float | None]]:
    """A curve of fewer points that looks the same: it keeps the smallest and the largest value of each bucket.

    A None between two points marks a gap. Points are missing there: the neighbours are farther apart than usual.
    """
    points = [(a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None]
    if not points:
        return {"x": [], "y": []}
    at, values = np.array(points, float).T
    steps = np.diff(at)
    gaps = np.flatnonzero(steps > 1.5 * np.median(steps)) + 1 if len(steps) else np.zeros(0, np.intp)
    kept: list[int | None] = []
    for stretch in np.split(np.arange(len(points)), gaps):
        kept.extend(_extremes(at, values, stretch) if len(points) > 2 * BUCKETS else stretch.tolist())
        kept.append(None)
    kept.pop()
    return {
        "x": [None if index is None else points[index][0] for index in kept],
        "y": [None if index is None else points[index][1] for index in kept],
    }


def _extremes(at: NDArray[np.float64], values: NDArray[np.float64], stretch: NDArray[np.intp]) -> list[int]:
    """Indices of the ends of a stretch, and of the smallest and the largest value in each of its buckets."""
    bucket = np.floor((at[stretch] - at[0]) / max(at[-1] - at[0], 1.0) * BUCKETS)
    kept = {int(stretch[0]), int(stretch[-1])}
    for part in np.split(stretch, np.flatnonzero(np.diff(bucket)) + 1):
        kept |= {int(part[np.argmin(values[part])]), int(part[np.argmax(values[part])])}
    return sorted(kept)


def frames(lines: Lines) -> list[dict[str, Any]]:
    """The frames of the slider: for some iterations the members' returns, Gram matrix, distances and map."""
    usable = []
    for line in lines:
        similarities, distances = _numbers(line.get("similarities")), _numbers(line.get("distances"))
        returns = _numbers(line.get("member_returns"))
        pairs = len(returns) * (len(returns) - 1) // 2
        if returns and len(similarities) == len(distances) == pairs and None not in (*similarities, *distances):
            distinct = _flags(line.get("distinct"), len(returns))
            usable.append((line["iteration"], returns, similarities, distances, distinct))
    if not usable:
        return []
    usable = [each for each in usable if len(each[1]) == len(usable[-1][1])]
    most = max(2, min(FRAMES, _NUMBERS_IN_FRAMES // max(1, len(usable[-1][2]))))
    chosen = sorted({round(index) for index in np.linspace(0, len(usable) - 1, min(most, len(usable)))})
    result = []
    before: NDArray[np.float64] | None = None
    for index in chosen:
        iteration, returns, similarities, distances, distinct = usable[index]
        before = aligned(scaled(distances, len(returns)), before)
        result.append(
            {
                "iteration": iteration,
                "returns": returns,
                "similarities": similarities,
                "distances": distances,
                "map": before.tolist(),
                "distinct": distinct,
            }
        )
    return result


def scaled(distances: Sequence[float], members: int) -> NDArray[np.float64]:
    """Classical multidimensional scaling: places in the plane, (M, 2), with distances as close as possible to these."""
    squared = np.zeros((members, members))
    squared[np.triu_indices(members, 1)] = np.square(distances)
    squared += squared.T
    centring = np.eye(members) - 1 / members
    values, vectors = np.linalg.eigh(-0.5 * centring @ squared @ centring)
    places = np.zeros((members, 2))
    largest = range(1, min(2, members) + 1)
    for axis, index in enumerate(largest):
        places[:, axis] = vectors[:, -index] * math.sqrt(max(values[-index], 0.0))
    return places


def aligned(places: NDArray[np.float64], before: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """The same map, rotated or mirrored to be as close as possible to the one before, so that only members move."""
    if before is None:
        return places
    rotation, _ = orthogonal_procrustes(places, before)
    turned: NDArray[np.float64] = places @ rotation
    return turned


def compare(runs: Sequence[tuple[Mapping[str, Any], Lines]]) -> dict[str, Any] | None:
    """Groups of runs that differ only in their seed: means over environment steps, with 95 % t-intervals."""
    groups: dict[str, list[Lines]] = {}
    options_of: dict[str, Mapping[str, Any]] = {}
    for options, lines in runs:
        if lines:
            like = {field: value for field, value in options.items() if field not in _NOT_COMPARED}
            key = json.dumps(like, sort_keys=True)
            groups.setdefault(key, []).append(lines)
            options_of[key] = like
    if sum(map(len, groups.values())) < 2:
        return None
    compared = []
    for key, group in groups.items():
        options = options_of[key]
        label = _label(options, list(options_of.values()))
        measures = {field: _interval(field, group) for field in COMPARED}
        compared.append({"label": label, "runs": len(group), "measures": measures})
    return {"groups": compared, "names": COMPARED}


def _label(options: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> str:
    """A group's algorithm, its task if there are several, and the options that differ among groups of its algorithm."""
    algorithm = options.get("algorithm", "")
    alike = [other for other in groups if other.get("algorithm", "") == algorithm]
    parts = [str(algorithm)]
    for field in sorted({field for other in alike for field in other} - {"algorithm"}):
        among = groups if field == "task" else alike
        if field in options and len({json.dumps(other.get(field)) for other in among}) > 1:
            parts.append(f"{field} {_shown(options[field])}")
    return ", ".join(parts)


def _interval(field: str, group: Sequence[Lines]) -> dict[str, Any]:
    """Mean of a group where all its runs have steps, with Student's 95 % interval (of width 0 for a single run)."""
    curves = []
    for lines in group:
        points = [(_number(line.get("env_steps")), _number(line.get(field))) for line in lines]
        known = [(x, y) for x, y in points if x is not None and y is not None]
        if known:
            curves.append(np.array(known).T)
    empty: dict[str, Any] = {"x": [], "y": [], "low": [], "high": []}
    if not curves:
        return empty
    begin, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if begin > end:
        return empty
    longest = max(len(x) for x, _ in curves)
    grid = np.linspace(begin, end, min(longest, BUCKETS // 2)) if end > begin else np.array([begin])
    values = np.array([np.interp(grid, x, y) for x, y in curves])
    mean, n = values.mean(axis=0), len(curves)
    half = student.ppf(0.975, n - 1) * values.std(axis=0, ddof=1) / math.sqrt(n) if n > 1 else np.zeros_like(mean)
    return {"x": grid.tolist(), "y": mean.tolist(), "low": (mean - half).tolist(), "high": (mean + half).tolist()}


def _arms(options: Mapping[str, Any], lines: Lines, iterations: Sequence[float | None]) -> list[dict[str, Any]]:
    """The Beta posterior of each arm: its mean, and its central 90 % interval."""
    alphas = [_numbers(line.get("arm_alpha")) for line in lines]
    betas = [_numbers(line.get("arm_beta")) for line in lines]
    names: Any = options.get("arms")
    arms = []
    for arm in range(max(map(len, alphas), default=0)):
        a, b = (np.array([_item(row, arm) or np.nan for row in rows], float) for rows in (alphas, betas))
        curves = {
            "mean": a / (a + b),
            "low": beta_distribution.ppf(0.05, a, b),
            "high": beta_distribution.ppf(0.95, a, b),
        }
        label = f"λ = {names[arm]}" if isinstance(names, list) and arm < len(names) else f"arm {arm}"
        arms.append({"label": label, **{k: thinned(iterations, [_number(v) for v in c]) for k, c in curves.items()}})
    return arms


def _number(value: Any) -> float | None:
    """The value if it is a finite number, otherwise None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= 1e100 else None


def _flags(value: Any, num: int) -> list[bool] | None:
    """The value if it is so many times true or false; older runs do not have it."""
    if not isinstance(value, list) or len(value) != num or not all(type(item) is bool for item in value):
        return None
    return value


def _numbers(value: Any) -> list[Any]:
    return [_number(item) for item in value] if isinstance(value, list) else []


def _item(value: Any, index: int) -> float | None:
    return _number(value[index]) if isinstance(value, list) and index < len(value) else None


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
