"""What the report shows of niche-ES: where the members that it ends with are, how they differ, and how others fared.

Parts that a run does not have, as those of other algorithms, are left out.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvdrl.errors import DvdrlError
from dvdrl.policies import Places, Standing
from dvdrl.runs import policies

_MOST_NAMED = 4
"""A card names at most so many of the other members, the nearest ones."""


def ends_with(run: Path) -> dict[str, Any] | None:
    """What is known of the members that a run of niche-ES ends with. Coordinates are ordered by relevance."""
    try:
        standing = policies.load_standing(run / "policies")
    except DvdrlError:
        return None
    if standing is None or standing.places is None:
        return None
    places = standing.places
    order = np.argsort(-places.relevance, kind="stable")
    return {
        "returns": places.quality.tolist(),
        "shares": standing.shares.tolist(),
        "distinct": standing.distinct.tolist(),
        "coordinates": [places.coordinates[index] for index in order],
        "relevance": places.relevance[order].tolist(),
        "places": [[float(str(number)) for number in row] for row in places.behaviours[:, order]],
        "differences": differences(standing, places),
    }


def differences(standing: Standing, places: Places) -> list[list[dict[str, Any]]]:
    """For each distinct member, the nearest other ones, each with the coordinate in which the two differ most.

    As in niche-ES, differences count in units of noise, times the square root of the coordinate's relevance.
    """
    varies = places.noise > 0
    factors = np.where(varies, np.sqrt(np.maximum(places.relevance, 0)) / np.where(varies, places.noise, 1), 0)
    scaled = places.behaviours.astype(float) * factors
    distinct = np.flatnonzero(standing.distinct)
    found: list[list[dict[str, Any]]] = [[] for _ in standing.distinct]
    for member in distinct:
        others = distinct[distinct != member]
        apart = np.abs(scaled[others] - scaled[member])
        nearest = np.argsort(np.linalg.norm(apart, axis=1), kind="stable")[:_MOST_NAMED]
        for other, by in zip(others[nearest], apart[nearest], strict=True):
            if by.max() > 0:
                most = int(by.argmax())
                values = (float(str(places.behaviours[each, most])) for each in (member, other))
                named = {"member": int(other), "coordinate": places.coordinates[most]}
                found[member].append({**named, **dict(zip(("here", "there"), values, strict=True))})
    return found


def lives(lines: Sequence[Mapping[str, Any]], parts: int) -> dict[str, Any] | None:
    """When each present member was distinct, and when it was renewed; None if nobody ever was either.

    Both are by position in `x`, the iterations: stretches [from, to) and points. More than twice as many lines as
    `parts` become so many: distinct is who is so in most lines of a part, renewed who is so in any.
    """
    flags = {name: [_flags(line.get(name)) for line in lines] for name in ("distinct", "renewed")}
    members = max((len(row) for rows in flags.values() for row in rows), default=0)
    distinct, renewed = (np.array([row + [False] * (members - len(row)) for row in rows]) for rows in flags.values())
    if not members or not (distinct.any() or renewed.any()):
        return None
    if len(lines) > 2 * parts:
        begins = np.unique(np.linspace(0, len(lines), parts, endpoint=False).astype(int))
        sizes = np.diff([*begins, len(lines)])[:, None]
        distinct = 2 * np.add.reduceat(distinct.astype(int), begins) > sizes
        renewed = np.logical_or.reduceat(renewed, begins)
    else:
        begins = np.arange(len(lines))
    return {
        "x": [lines[begin]["iteration"] for begin in begins],
        "distinct": [_stretches(of_member) for of_member in distinct.T],
        "renewed": [np.flatnonzero(of_member).tolist() for of_member in renewed.T],
    }


def _flags(value: Any) -> list[bool]:
    """The value if it is a list of true and false, else nothing."""
    return value if isinstance(value, list) and all(type(item) is bool for item in value) else []


def _stretches(flags: NDArray[np.bool_]) -> list[list[int]]:
    """Where flags are set, as [from, to)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    stretches: list[list[int]] = edges.reshape(-1, 2).tolist()
    return stretches
