"""Archives of quality-diversity: a grid of cells over a task's measures, each with the best that was found in it.

This is the only module that imports pyribs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dvdrl.errors import DvdrlError

try:
    from ribs.archives import CVTArchive, GridArchive
    from ribs.emitters import EvolutionStrategyEmitter
    from ribs.schedulers import Scheduler
except ModuleNotFoundError as _error:
    raise DvdrlError("pyribs is not installed; pip install 'dvdrl[qd]'") from _error

Ranges = Sequence[tuple[float, float]]

CELLS = 21
"""Cells along each measure. It is odd, so that 0, the middle of most ranges, is within a cell and not on its edge."""

FINE_CELLS = 50
"""Cells along each measure of the archives that CMA-MAE fills. With more than two measures such a grid would have too
many cells; then there are as many as with two, around centres drawn uniformly from the ranges."""
LEARNING_RATE, SIGMA = 0.01, 0.2
"""Of CMA-MAE: how fast thresholds rise, and the first deviation of perturbations."""


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


class Elites(NamedTuple):
    """What an archive holds: n policies, each the best that was found in its cell."""

    params: Float[np.ndarray, "n d"]
    measures: Float[np.ndarray, "n D"]
    returns: Float[np.ndarray, "n"]


class CMAMAE:
    """CMA-MAE, covariance matrix adaptation MAP-annealing (Fontaine and Nikolaidis, 2023), as pyribs has it.

    Each emitter climbs by what its solutions add to the archive. A cell's threshold, which a solution must exceed,
    rises by `LEARNING_RATE` of the difference. So emitters first climb towards high returns, and leave a place when its
    thresholds have risen. A second archive keeps the best solution of each cell.

    A full covariance matrix of a network's parameters is too large. Instead, emitters are pyribs' `lm_ma_es`, which
    learns as many directions as its batch is large (LM-MA-MAE in Tjanaka et al., "Training Diverse High-Dimensional
    Controllers by Scaling Covariance Matrix Adaptation MAP-Annealing", 2023). Of pyribs' three strategies for many
    parameters it did best on Landmarks-v0, on development seeds from 600 on.

    Args:
        starts: the parameters with which the emitters begin, one row for each.
        ranges: the low and the high end of each measure.
        floor: the first threshold of all cells. Solutions that return less add nothing.
        batch_size: how many solutions each emitter tries per iteration; at most the number of parameters.
        seed: of all perturbations.
    """

    def __init__(self, starts: Float[np.ndarray, "e d"], ranges: Ranges, floor: float, *, batch_size: int, seed: int):
        archive_seed, *emitter_seeds = np.random.SeedSequence(seed).generate_state(1 + len(starts)).tolist()
        cells: dict[str, Any] = {"solution_dim": starts.shape[1], "ranges": ranges}
        kind: type[GridArchive | CVTArchive] = GridArchive
        if len(ranges) <= 2:
            cells["dims"] = [FINE_CELLS] * len(ranges)
        else:
            low, high = np.asarray(ranges).T
            centres = np.random.default_rng(archive_seed).uniform(low, high, (FINE_CELLS**2, len(ranges)))
            kind, cells["centroids"] = CVTArchive, centres
        soft = kind(**cells, learning_rate=LEARNING_RATE, threshold_min=floor, seed=archive_seed)
        emitters = [
            EvolutionStrategyEmitter(
                soft,
                x0=start,
                sigma0=SIGMA,
                ranker="imp",
                es="lm_ma_es",
                selection_rule="mu",
                restart_rule="basic",
                batch_size=batch_size,
                seed=emitter_seed,
            )
            for start, emitter_seed in zip(starts, emitter_seeds, strict=True)
        ]
        self._scheduler = Scheduler(soft, emitters, result_archive=kind(**cells))

    def ask(self) -> Float[np.ndarray, "n d"]:
        """The parameters to try next."""
        return np.asarray(self._scheduler.ask())

    def tell(self, returns: Float[np.ndarray, "n"], measures: Float[np.ndarray, "n D"]) -> None:
        """What those of the last `ask` returned, and their measures."""
        self._scheduler.tell(returns, measures)

    @property
    def elites(self) -> Elites:
        """The best in each cell so far."""
        data = self._scheduler.result_archive.data()
        return Elites(data["solution"], data["measures"], data["objective"])
