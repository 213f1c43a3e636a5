"""Shares of the determinant by quality: against float64 NumPy, as an identity for every order, and at its edges."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl.diversity import KERNELS, determinant, gram, least_shrinkage, ordered_shares


def a_gram_matrix(members: int, seed: int = 0, spread: float = 1.0) -> np.ndarray:
    x = spread * np.random.default_rng(seed).normal(size=(members, 7))
    return np.exp(-0.5 * np.square(x[:, None] - x[None]).mean(axis=-1))


def reference(K: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """The definition, a linear system a member: what is left of its variance given those before it in the order."""
    shares = np.zeros(len(K))
    for m in range(len(K)):
        fitter = [i for i in range(len(K)) if (-quality[i], i) < (-quality[m], m)]
        explained = K[m, fitter] @ np.linalg.solve(K[np.ix_(fitter, fitter)], K[fitter, m]) if fitter else 0.0
        shares[m] = K[m, m] - explained
    return shares


@pytest.mark.parametrize("members", [1, 2, 5, 20])
def test_agrees_with_the_definition(members):
    K, quality = a_gram_matrix(members), np.random.default_rng(1).normal(size=members)
    with jax.enable_x64(True):
        # The least shrinkage in float64 is 2e-13 at M = 20, and the condition of these matrices below 1,000.
        np.testing.assert_allclose(jax.jit(ordered_shares)(K, quality), reference(K, quality), atol=1e-9)


def test_the_product_is_the_determinant_for_every_order():
    K = a_gram_matrix(4)
    with jax.enable_x64(True):
        for order in itertools.permutations(range(4)):
            shares = ordered_shares(K, np.array(order, float))
            np.testing.assert_allclose(jnp.prod(shares), determinant(K), rtol=1e-12)
            # The fittest has its own variance, and the least fit det K over that of all others.
            assert shares[order.index(3)] == 1.0
            others = [i for i in range(4) if i != order.index(0)]
            least = np.linalg.det(K) / np.linalg.det(K[np.ix_(others, others)])
            np.testing.assert_allclose(shares[order.index(0)], least, rtol=1e-9)


def test_a_worse_copy_has_no_share_and_takes_none():
    # Members 0 and 2 coincide, member 1 is far from both; member 2 is the fitter of the two.
    K = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], np.float32)
    shares = ordered_shares(K, [1.0, 0.0, 2.0])
    # [[1, 1 - s], [1 - s, 1]] leaves 1 - (1 - s)^2 = 2 s of the second one.
    np.testing.assert_allclose(shares, [2 * least_shrinkage(3), 1, 1], rtol=0.01)


def test_of_equally_fit_members_the_first_is_the_fitter():
    shares = ordered_shares(np.ones((3, 3), np.float32), [5.0, 5.0, 5.0])
    assert shares[0] == 1.0
    assert (shares[1:] < 1e-3).all()
    np.testing.assert_array_equal(shares, ordered_shares(np.ones((3, 3), np.float32), [3.0, 2.0, 1.0]))


def test_minus_infinity_is_the_worst_quality():
    K = a_gram_matrix(3).astype(np.float32)
    np.testing.assert_array_equal(ordered_shares(K, [-np.inf, 0.0, 1.0]), ordered_shares(K, [-1.0, 0.0, 1.0]))


def test_gradient_agrees_with_central_differences():
    quality, step = np.array([0.3, 0.1, 0.2, 0.4]), 1e-5
    x, direction = np.random.default_rng(0).normal(size=(2, 4, 6))
    weights = np.arange(1.0, 5.0)  # each share by itself counts, not their product alone
    with jax.enable_x64(True):
        objective = lambda x: ordered_shares(gram(KERNELS["squared-exponential"](), x), quality) @ weights  # noqa: E731
        value_and_gradient = jax.jit(jax.value_and_grad(objective))
        above, below = (value_and_gradient(x + sign * step * direction)[0] for sign in (1, -1))
        along = jnp.sum(value_and_gradient(x)[1] * direction)
        np.testing.assert_allclose(along, (above - below) / (2 * step), rtol=1e-7)


@pytest.mark.parametrize("members", [1, 2, 5, 100])
@pytest.mark.parametrize("kind", ["one place", "two places", "nearly one place"])
def test_members_that_coincide_leave_values_and_gradients_finite(members, kind):
    x = np.zeros((members, 3), np.float32)
    if kind == "two places":
        x[::2] = 1.0
    elif kind == "nearly one place":
        x += 1e-7 * np.random.default_rng(0).normal(size=x.shape).astype(np.float32)

    def log_product(x):
        return jnp.sum(jnp.log(ordered_shares(gram(KERNELS["squared-exponential"](), x), jnp.arange(members))))

    value, gradient = jax.jit(jax.value_and_grad(log_product))(x)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_batched_and_mapped():
    K = np.stack([a_gram_matrix(5, seed) for seed in range(6)]).astype(np.float32)
    quality = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    one_by_one = np.stack([ordered_shares(k, q) for k, q in zip(K, quality, strict=True)])
    np.testing.assert_allclose(ordered_shares(K, quality), one_by_one, rtol=1e-5)
    np.testing.assert_allclose(
        ordered_shares(K.reshape(2, 3, 5, 5), quality.reshape(2, 3, 5)).reshape(6, 5), one_by_one, rtol=1e-5
    )
    np.testing.assert_allclose(jax.jit(jax.vmap(ordered_shares))(K, quality), one_by_one, rtol=1e-5)
    np.testing.assert_allclose(ordered_shares(K, quality[0])[0], one_by_one[0], rtol=1e-5)  # one order for all


@pytest.mark.parametrize(
    ("K", "quality", "words"),
    [
        (np.ones((2, 3)), [0, 1], r"K: expected square matrices.*\(2, 3\)"),
        ([[1.0, 0.5], [0.2, 1.0]], [0, 1], "K: expected symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], [0, 1], "K: expected positive semidefinite"),
        (np.eye(3), [0.0, 1.0], r"quality: expected shape \(\.\.\., 3\).*got shape \(2,\)"),
        (np.eye(3), 1.0, r"quality: expected shape \(\.\.\., 3\).*got shape \(\)"),
        (np.eye(2), [0.0, np.nan], "quality: expected numbers, got"),
    ],
)
def test_errors_name_what_is_wrong(K, quality, words):
    with jax.debug_nans(False), pytest.raises(ValueError, match=words):
        ordered_shares(K, quality)
