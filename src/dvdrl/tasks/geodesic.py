"""Distances along the shortest way between walls, on a grid of points, and anywhere between those points."""

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from dvdrl.tasks.task import xp_of

_STEPS = ((1, 0), (0, 1), (1, 1), (1, -1), (1, 2), (2, 1), (1, -2), (2, -1))
"""From a point of the grid to half of its neighbours; the others are opposite. Ways are at most 2.8 % too long."""


def grid_distances(
    free: Bool[np.ndarray, "x y"], goals: Int[np.ndarray, "goals 2"], spacing: float
) -> Float[Any, "x y goals"]:
    """The distance from each point of a grid to each goal, along free points.

    For a point that is not free it is that of the nearest free one, plus the distance from there. So values are finite
    everywhere, and grow into the walls.

    Args:
        free: which points are free. Walls are at least two points thick, also around the whole grid.
        goals: the indices of the points to reach; they are free and can be reached from all other free points.
        spacing: the distance between neighbours along an axis.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra
    from scipy.spatial import KDTree

    number = np.arange(free.size).reshape(free.shape)
    begins, ends, lengths = [], [], []
    for step in _STEPS:
        begin = number[free & np.roll(free, np.negative(step), axis=(0, 1))]
        begins.append(begin)
        ends.append(begin + step[0] * free.shape[1] + step[1])
        lengths.append(np.full(begin.shape, spacing * math.hypot(*step)))
    edges = (np.concatenate(lengths), (np.concatenate(begins), np.concatenate(ends)))
    graph = coo_array(edges, shape=(free.size, free.size)).tocsr()
    found = dijkstra(graph, directed=False, indices=number[tuple(goals.T)]).T.reshape(*free.shape, len(goals))

    inside, outside = np.argwhere(free), np.argwhere(~free)
    away, nearest = KDTree(inside).query(outside)
    found[~free] = found[tuple(inside[nearest].T)] + spacing * away[:, None]
    return found


def interpolate(
    table: Float[Any, "x y k"], corner: Any, spacing: float, places: Float[Any, "n 2"]
) -> Float[Any, "n k"]:
    """The values of a table over a grid at places between its points, bilinearly.

    Outside of the grid values are those at its edge. `corner` is the place of the table's first value.
    """
    xp = xp_of(places)
    table = xp.asarray(table, dtype=places.dtype)
    size, corner = (xp.asarray(numbers, dtype=places.dtype)[None] for numbers in (table.shape[:2], corner))
    at = (places - corner) / spacing
    at = xp.clip(xp.where(xp.isfinite(at), at, 0.0), 0.0, size - 1)  # a simulation may have been lost
    low = xp.minimum(xp.floor(at), size - 2)
    x, y = (at - low)[:, :1], (at - low)[:, 1:]
    first = xp.astype(low[:, 0] * table.shape[1] + low[:, 1], xp.int32)
    values = table.reshape(-1, table.shape[2])

    def between(number: Any) -> Any:
        """Between a point of the table and the next one along y."""
        return (1 - y) * xp.take(values, number, axis=0) + y * xp.take(values, number + 1, axis=0)

    return (1 - x) * between(first) + x * between(first + table.shape[1])
