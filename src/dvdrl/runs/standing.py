"""Which members are good and different: as niches know it, or else by their shares and returns.

The rule for algorithms without niches is that of `dvdrl.niches`, without its memory: a share of at least a half, and a
return that is at least a quarter of the way from the start of the run to the best so far.
"""

import dataclasses
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from dvdrl.diversity import ordered_shares
from dvdrl.errors import DvdrlError
from dvdrl.niches import LEAST_GAIN, LEAST_SHARE, Known, Report
from dvdrl.policies import Places, Population, Standing
from dvdrl.runs import metrics


class Reached(NamedTuple):
    """What a run has reached so far, by which a return is good or not."""

    start: float
    """The mean return of the first iteration."""
    best: float
    """The best return of any member in any iteration."""


def reached(line: Mapping[str, Any], before: Reached | None) -> Reached:
    """What is reached with a line of metrics, after what was reached before it; None before the first line."""
    mean, best = float(line["mean_return"]), float(line["best_return"])
    return Reached(mean, best) if before is None else Reached(before.start, max(best, before.best))


def reached_by(path: Path, lines: Sequence[Mapping[str, Any]]) -> Reached | None:
    """What all lines of a metrics.jsonl have reached; None if there are none.

    Raises:
        DvdrlError: a line does not have the returns.
    """
    result = None
    for number, line in enumerate(lines, 1):
        for name in ("mean_return", "best_return"):
            value: Any = line.get(name)
            if type(value) not in (int, float) or not abs(value) <= 1e308:
                raise DvdrlError(f"{path}, line {number}: expected a number as {name}, got {reprlib.repr(value)}")
        result = reached(line, result)
    return result


def shares(similarities: Sequence[float], returns: Sequence[float]) -> list[float]:
    """The share of each member in the determinant, from the similarities of all pairs, as a line of metrics has them.

    Every kernel gives a similarity of 1 to equal behaviours.
    """
    K = np.eye(len(returns), dtype=np.float32)
    i, j = np.triu_indices(len(returns), 1)
    K[i, j] = K[j, i] = similarities
    found: list[float] = metrics.plain({"shares": _shares(K, np.asarray(returns, np.float32))})["shares"]
    return found


@jax.jit  # a program of its own, so that all others stay what they are
def _shares(K: Float[Array, "M M"], returns: Float[Array, "M"]) -> Float[Array, "M"]:
    return ordered_shares(K, returns)


def judged(line: Mapping[str, Any], so_far: Reached) -> dict[str, Any]:
    """A line with `distinct` and `renewed`; as it is if the algorithm has said both itself."""
    if "distinct" in line:
        return dict(line)
    members = distinct(line["shares"], line["member_returns"], so_far)
    return {**line, "distinct": members, "renewed": [False] * len(members)}


def in_line(line: Mapping[str, Any], members: int) -> Standing | None:
    """How so many members compare by a line of metrics; None if it does not say, as in earlier versions."""
    shares, distinct = line.get("shares"), line.get("distinct")
    if not isinstance(shares, list) or not isinstance(distinct, list) or not len(shares) == len(distinct) == members:
        return None
    if not all(type(share) is float and 0 <= share <= 2 for share in shares) or {*map(type, distinct)} != {bool}:
        return None
    return Standing(np.asarray(shares, np.float32), np.asarray(distinct))


def distinct(shares: Sequence[float], returns: Sequence[float], so_far: Reached) -> list[bool]:
    """Whether each member is good and different."""
    floor = so_far.start + LEAST_GAIN * (so_far.best - so_far.start)
    return [share >= LEAST_SHARE and value >= floor for share, value in zip(shares, returns, strict=True)]


def of_niches(report: Report) -> dict[str, Any]:
    """What niches say of each member: its share, whether it is good and different, and whether it begins anew."""
    return {
        **metrics.plain({"shares": report.shares}),
        "distinct": np.asarray(report.distinct).tolist(),
        "renewed": np.asarray(report.renewed).tolist(),
    }


def of_known(members: Population, known: Known, coordinates: tuple[str, ...], *, distinct_only: bool) -> Population:
    """The best members and elites that niches know, as many as there are members; or all that are distinct.

    Before the first iteration nothing is known yet, and the members stay.
    """
    known = jax.tree.map(np.asarray, known)
    M = len(members)
    if not np.isfinite(known.quality[:M]).all():
        return members
    kept = max(int(known.distinct.sum()), 1) if distinct_only else M
    agents, quality, behaviours, distinct, shares = (jax.tree.map(lambda leaf: leaf[:kept], part) for part in known[:5])
    places = Places(quality, behaviours, coordinates, np.asarray(known.relevance), np.asarray(known.units))
    return dataclasses.replace(members, agents=agents, standing=Standing(shares, distinct, places))
