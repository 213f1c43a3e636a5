"""Appendix B.3 of the paper, "Determinants vs. Distances", checked numerically.

The paper's theorem: to first order in the squared distances the determinant is proportional to their sum for M <= 3,
and 0 for M > 3. It holds for M = 2 and M > 3. For M = 3 the first order is 0 as well: the paper's expansion of
2 k12 k13 k23 loses a factor 2. What is left, for every M, is the squared volume that the members span.
"""

import jax
import numpy as np
import pytest
from jax import Array

from dvdrl.diversity import KERNELS, determinant, distances, gram

EPSILON = 1e-2
DIMENSION = 8


def shrunk_population(members: int) -> np.ndarray:
    """Members in general position, at distances of about epsilon."""
    return EPSILON * np.random.default_rng(members).normal(size=(members, DIMENSION))


@jax.jit
def determinant_and_distances(x: Array) -> tuple[Array, Array]:
    return determinant(gram(KERNELS["squared-exponential"](length_scale=1.0), x)), distances(x)


def det(x: np.ndarray) -> float:
    with jax.enable_x64(True):
        return float(determinant_and_distances(x)[0])


def sum_of_squared_distances(x: np.ndarray) -> float:
    with jax.enable_x64(True):
        return float(np.sum(np.square(determinant_and_distances(x)[1])) / 2)


def test_first_order_of_two_members_is_the_squared_distance():
    # det = 1 - k^2 with k = exp(-d^2 / 2), so d^2 up to d^4 / 2.
    x = shrunk_population(2)
    np.testing.assert_allclose(det(x), sum_of_squared_distances(x), rtol=EPSILON**2 * 3)


@pytest.mark.parametrize("members", [3, 4, 5])
def test_first_order_of_more_members_vanishes(members):
    # Were the first order there, halving the population would divide the determinant by 4. It divides it by
    # 4^(M - 1): one factor for each of the M - 1 directions of the volume.
    x = shrunk_population(members)
    np.testing.assert_allclose(det(x) / det(x / 2), 4.0 ** (members - 1), rtol=1e-2)
    assert det(x) < 1e-3 * sum_of_squared_distances(x)


@pytest.mark.parametrize("members", [2, 3, 4, 5])
def test_leading_order_is_the_squared_volume(members):
    # K_ij = exp(-|x_i|^2 / 2) exp(-|x_j|^2 / 2) exp(<x_i, x_j>), and exp(<x_i, x_j>) = 1 + <x_i, x_j> + ...: the
    # determinant is that of the Gram matrix of the rows (1, x_i), which is the Gram determinant of the differences
    # to one member: the squared volume of the parallelepiped that they span. Distances are per dimension.
    x = shrunk_population(members)
    differences = (x[1:] - x[0]) / np.sqrt(DIMENSION)
    np.testing.assert_allclose(det(x), np.linalg.det(differences @ differences.T), rtol=1e-2)


def test_clusters_far_apart_have_a_large_distance_and_no_volume():
    # Figure 1 (a): five members in two clusters at distance 20, against five spread evenly at distance 1 of each other.
    clusters = np.repeat([[10.0] * 5, [-10.0] * 5], [3, 2], axis=0)
    spread = np.eye(5) * np.sqrt(2.5)  # per dimension, |x_i - x_j|^2 = 2 * 2.5 / 5 = 1
    assert sum_of_squared_distances(clusters) > 100 * sum_of_squared_distances(spread)
    # Off-diagonal entries k = exp(-1/2) everywhere: det = (1 - k)^4 (1 + 4 k).
    k = np.exp(-0.5)
    np.testing.assert_allclose(det(spread), (1 - k) ** 4 * (1 + 4 * k), rtol=1e-9)
    assert det(clusters) < 1e-10
