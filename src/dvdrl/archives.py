"""Archives of quality-diversity: a grid of cells over a task's measures, each with the best that was found in it.

This is the only module that imports pyribs.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from dvdrl.errors import DvdrlError

try:
    from ribs.archives import GridArchive
except ModuleNotFoundError as _error:
    raise DvdrlError("pyribs is not installed; pip install 'dvdrl[qd]'") from _error

Ranges = Sequence[tuple[float, float]]

CELLS = 21
"""Cells along each measure. It is odd, so that 0, the middle of most ranges, is within a cell and not on its edge."""


def qd_score_and_coverage(
    measures: Float[np.ndarray, "M D"], returns: Float[np.ndarray, "M"], ranges: Ranges, floor: float
) -> tuple[float, float]:
    """The QD score of some members, and the share of cells that they occupy.

    The QD score is the sum over cells of the best return in each, counted from the floor; a return below it counts as
    0. Measures outside the ranges count as their ends.
    """
    grid = GridArchive(solution_dim=0, dims=[CELLS] * len(ranges), ranges=ranges)
    grid.add(np.empty((len(returns), 0)), np.maximum(returns - floor, 0.0), measures)
    return float(grid.stats.qd_score), float(grid.stats.coverage)
