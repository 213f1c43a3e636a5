"""Metrics against values known on paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import entropy

from dvdrl.diversity import (
    KERNELS,
    effective_rank,
    gram,
    log_determinant,
    mean_distance,
    measure,
    min_distance,
    vendi_score,
)

ORDERS = [0.1, 1.0, 2.0, float("inf")]


@pytest.mark.parametrize("order", ORDERS)
def test_vendi_counts_members(order):
    np.testing.assert_allclose(vendi_score(np.eye(6), order), 6, rtol=1e-5)  # all orthogonal
    np.testing.assert_allclose(vendi_score(np.ones((6, 6)), order), 1, rtol=1e-5)  # all alike
    pairs = np.kron(np.eye(3), np.ones((2, 2)))  # three different members, each twice
    np.testing.assert_allclose(vendi_score(pairs, order), 3, rtol=1e-5)


def test_vendi_by_hand():
    # Eigenvalues of [[1, 0.5], [0.5, 1]] / 2: 0.75 and 0.25.
    K = jnp.asarray([[1.0, 0.5], [0.5, 1.0]])
    np.testing.assert_allclose(vendi_score(K, 1.0), np.exp(entropy([0.75, 0.25])), rtol=1e-6)
    np.testing.assert_allclose(vendi_score(K, 2.0), 1 / (0.75**2 + 0.25**2), rtol=1e-6)
    np.testing.assert_allclose(vendi_score(K, float("inf")), 1 / 0.75, rtol=1e-6)
    np.testing.assert_allclose(vendi_score(K, 0.1), (0.75**0.1 + 0.25**0.1) ** (1 / 0.9), rtol=1e-6)


def test_vendi_near_order_one_is_continuous():
    K = jax.jit(lambda x: gram(KERNELS["matern32"](), x))(np.random.default_rng(0).normal(size=(6, 4)))
    with jax.enable_x64(True):
        K = jnp.asarray(K, jnp.float64)
        np.testing.assert_allclose(vendi_score(K, 1 + 1e-6), vendi_score(K, 1.0), rtol=1e-5)


def test_vendi_of_any_order_in_single_precision():
    # Five orthogonal members are five by any order; two alike and one apart have the eigenvalues 2/3 and 1/3.
    for order in (1 - 1e-6, 1 + 1e-7, 1.001, 1.4, 64.0, 1e6):
        np.testing.assert_allclose(vendi_score(jnp.eye(5), order), 5.0, rtol=1e-4)
    K = jnp.asarray([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    for order in (0.6, 1.2, 3.0, 64.0):
        expected = ((2 / 3) ** order + (1 / 3) ** order) ** (1 / (1 - order))
        np.testing.assert_allclose(vendi_score(K, order), expected, rtol=1e-5)


def test_effective_rank_by_hand():
    np.testing.assert_allclose(effective_rank(3.0 * np.eye(4, 6)), 4, rtol=1e-5)
    np.testing.assert_allclose(effective_rank(np.outer([1.0, 2, 3], [1.0, -1])), 1, rtol=1e-5)
    # Singular values 3 and 1: shares 0.75 and 0.25.
    np.testing.assert_allclose(effective_rank(np.diag([3.0, 1.0])), np.exp(entropy([0.75, 0.25])), rtol=1e-5)
    np.testing.assert_allclose(effective_rank(np.zeros((3, 2))), 1, rtol=1e-5)


def test_effective_rank_takes_no_more_memory_than_the_embeddings():
    embeddings = jax.ShapeDtypeStruct((2, 10**6), jnp.float32)  # the square of a million numbers is 4,000 GB
    compiled = jax.jit(effective_rank).lower(embeddings).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 10 * 2 * 10**6 * 4


def test_distances_by_hand():
    # On a line at 0, 1, 5: distances 1, 4, 5.
    x = jnp.asarray([[0.0], [1.0], [5.0]])
    np.testing.assert_allclose(mean_distance(x), 10 / 3, rtol=1e-6)
    np.testing.assert_allclose(min_distance(x), 1.0)


def test_single_member():
    x = jnp.ones((1, 3))
    metrics = jax.jit(lambda x: measure(gram(KERNELS["squared-exponential"](), x), x))(x)
    expected = {"log_det": 0, "log_det_per_member": 0, "mean_distance": 0, "min_distance": 0, "effective_rank": 1}
    expected |= {"vendi_0.1": 1, "vendi_1": 1, "vendi_2": 1, "vendi_inf": 1}
    assert metrics.pop("similarities").shape == metrics.pop("distances").shape == (0,)
    assert metrics.keys() == expected.keys()
    for name, value in metrics.items():
        np.testing.assert_allclose(value, expected[name], atol=1e-6, err_msg=name)


def test_log_det_per_member_compares_population_sizes():
    # Two copies of a population that know nothing of each other: K is block diagonal, log det doubles.
    K = jax.jit(lambda x: gram(KERNELS["squared-exponential"](), x))(np.random.default_rng(1).normal(size=(4, 5)))
    both = np.kron(np.eye(2), K)
    measured = jax.jit(measure)
    two, one = measured(both, np.zeros((8, 1))), measured(K, np.zeros((4, 1)))
    np.testing.assert_allclose(two["log_det_per_member"], one["log_det_per_member"], rtol=1e-3)
    np.testing.assert_allclose(one["log_det"], log_determinant(K), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: vendi_score(jnp.eye(2), 0.0), "order: expected a positive number or infinity, got 0.0"),
        (lambda: vendi_score(jnp.eye(2), float("nan")), "order: .*got nan"),
        (lambda: vendi_score(jnp.ones((2, 3))), r"K: expected a square matrix.*\(2, 3\)"),
        (lambda: effective_rank(jnp.ones(3)), r"embeddings: expected.*\(M, l\), got shape \(3,\)"),
        (lambda: mean_distance([[np.inf]]), "embeddings: expected finite numbers, got inf"),
    ],
)
def test_errors_name_the_argument(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_pairs_are_in_the_order_of_rows():
    # One dimension, so that distances are differences: of 0, 1, 3 they are 1, 3 and 2.
    embeddings = jnp.asarray([[0.0], [1.0], [3.0]])
    K = jnp.asarray([[1.0, 0.1, 0.2], [0.1, 1.0, 0.3], [0.2, 0.3, 1.0]])
    pairs = measure(K, embeddings)
    np.testing.assert_allclose(pairs["similarities"], [0.1, 0.2, 0.3])
    np.testing.assert_allclose(pairs["distances"], [1, 3, 2])
    assert measure(jnp.eye(1), embeddings[:1])["distances"].shape == (0,)
