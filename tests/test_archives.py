import numpy as np
import pytest

from dvdrl.archives import CELLS, qd_score_and_coverage


def test_each_cell_counts_once_with_its_best_return_above_the_floor():
    middle = 8 / CELLS  # half the width of a cell of -8 to 8
    measures = np.array([[0.0, 0.0], [0.9 * middle, -0.9 * middle], [5.0, 0.0], [-7.9, 7.9], [-80.0, 80.0]])
    returns = np.array([10.0, 12.0, 1.0, 7.0, 6.0])
    score, coverage = qd_score_and_coverage(measures, returns, [(-8, 8), (-8, 8)], 4.0)
    # The first two share the cell in the middle, where 12 - 4 counts. The third is below the floor: 0, but a cell. The
    # last is beyond the corner that the fourth is in, and counts as being there, where 7 - 4 is better.
    assert score == pytest.approx(8 + 0 + 3)
    assert coverage == pytest.approx(3 / CELLS**2)


def test_one_measure_has_a_row_of_cells():
    score, coverage = qd_score_and_coverage(np.array([[-9.0], [9.0]]), np.array([-1.0, 2.0]), [(-10, 10)], -5.0)
    assert score == pytest.approx(4 + 7)
    assert coverage == pytest.approx(2 / CELLS)
