"""Figure 1 and appendix B: numbers that are known without computing them."""

import numpy as np
import pytest

from dvdrl.studies import theory


def test_what_the_determinant_sees_in_the_two_pictures():
    pictures = {(p.population, p.kernel): p for p in theory.pictures()}
    for name in theory._PICTURES:
        for kernel in ("squared-exponential", "linear"):
            crowded, spread = pictures[name, kernel], pictures[f"{name}, spread evenly", kernel]
            assert crowded.mean_distance == pytest.approx(spread.mean_distance)  # distances cannot tell them apart
            assert crowded.determinant < spread.determinant
        assert pictures[name, "linear"].determinant == pytest.approx(
            0, abs=1e-12
        )  # two dimensions, six or more members
    # Members at the same distance d from each other: K = (1 - s) I + s, s = exp(-d^2), det = (1-s)^(M-1) (1 + (M-1) s).
    spread = pictures["(b) in a plane, spread evenly", "squared-exponential"]
    s = np.exp(-(spread.mean_distance**2))
    assert spread.determinant == pytest.approx((1 - s) ** 5 * (1 + 5 * s), rel=1e-6)


def test_the_leading_term_is_the_squared_volume_for_every_population():
    for order in theory.orders():
        assert order.exponent == pytest.approx(2 * (order.population - 1), abs=0.01)
        assert order.volume_ratio == pytest.approx(1, abs=1e-3)


def test_the_exact_determinant_of_two_members():
    # det [[1, s], [s, 1]] = 1 - s^2, s = exp(-d^2) with d = 0.01.
    assert theory._determinant(np.asarray([[0.0], [0.01]])) == pytest.approx(-np.expm1(-2e-4), rel=1e-12)
