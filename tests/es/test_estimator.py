import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl.es import estimator


@pytest.mark.parametrize("orthogonal", [False, True])
def test_gradient_is_unbiased_on_a_quadratic(orthogonal: bool) -> None:
    # F(x) = -x' A x / 2 + b' x: smoothing adds a constant, so its smoothed gradient at x is b - A x exactly.
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    A, b, x = jnp.asarray(root @ root.T / 5), jnp.asarray(rng.normal(size=5)), jnp.asarray(rng.normal(size=5))
    sigma, k, repeats = 0.3, 4, 4000

    def estimate(key: jax.Array) -> jax.Array:
        g = estimator.directions(key, k, 5, orthogonal=orthogonal)
        points = estimator.perturb(x, g, sigma)
        values = jax.vmap(lambda p: -0.5 * p @ A @ p + b @ p)(points)
        return estimator.gradient(values, g, sigma)

    estimates = jax.vmap(estimate)(jax.random.split(jax.random.key(1), repeats))
    error = np.asarray(jnp.mean(estimates, axis=0) - (b - A @ x))
    standard_error = np.asarray(jnp.std(estimates, axis=0)) / repeats**0.5
    # Five coordinates within 4 standard errors: a false alarm once in 3,000 seeds.
    np.testing.assert_array_less(np.abs(error), 4 * standard_error)


def test_orthogonal_directions_lower_the_variance() -> None:
    # For a linear function the antithetic estimate is g g' b averaged; with d orthogonal directions only lengths vary.
    b, d = jnp.arange(1.0, 9.0), 8

    def error(key: jax.Array, orthogonal: bool) -> jax.Array:
        g = estimator.directions(key, d, d, orthogonal=orthogonal)
        values = estimator.perturb(jnp.zeros(d), g, 0.1) @ b
        return jnp.sum(jnp.square(estimator.gradient(values, g, 0.1) - b))

    keys = jax.random.split(jax.random.key(0), 500)
    plain, orthogonal = (float(jnp.mean(jax.vmap(lambda k, o=o: error(k, o))(keys))) for o in (False, True))
    assert orthogonal < 0.5 * plain


@pytest.mark.parametrize("num", [3, 8, 20])
def test_orthogonal_directions_are_orthogonal_in_blocks_with_gaussian_lengths(num: int) -> None:
    d = 8
    g = np.asarray(estimator.directions(jax.random.key(0), num, d, orthogonal=True))
    assert g.shape == (num, d)
    for start in range(0, num, d):
        block = g[start : start + d]
        products = block @ block.T
        np.testing.assert_allclose(products - np.diag(np.diag(products)), 0, atol=1e-4)
    many = estimator.directions(jax.random.key(1), 4000, d, orthogonal=True)
    # E |g|^2 = d with deviation sqrt(2 d / n) = 0.06.
    np.testing.assert_allclose(np.mean(np.sum(np.square(many), axis=1)), d, atol=0.25)


def test_perturbations_come_in_pairs() -> None:
    g = jnp.asarray([[1.0, 0.0], [0.0, 2.0]])
    points = estimator.perturb(jnp.asarray([10.0, 20.0]), g, 0.5)
    np.testing.assert_array_equal(points, [[10.5, 20], [10, 21], [9.5, 20], [10, 19]])


def test_gradient_by_hand() -> None:
    # k = 2, sigma = 0.5: 1 / (2 * 2 * 0.5) = 1/2 of (5 - 1) g_1 + (2 - 8) g_2.
    g = jnp.asarray([[1.0, 0.0], [0.0, 2.0]])
    np.testing.assert_array_equal(estimator.gradient(jnp.asarray([5.0, 2.0, 1.0, 8.0]), g, 0.5), [2.0, -6.0])


def test_standardize() -> None:
    # Mean 2, deviation sqrt((4 + 0 + 4) / 3).
    np.testing.assert_allclose(estimator.standardize(jnp.asarray([0.0, 2.0, 4.0])), np.array([-1, 0, 1]) * 1.5**0.5)
    # 0.1 is not a float32 number: the mean of many is not quite 0.1, and the difference must not become a score.
    np.testing.assert_array_equal(estimator.standardize(jnp.full(201, -0.1)), 0)


def test_a_worker_draws_the_same_noise_alone() -> None:
    keys = jax.random.split(jax.random.key(3), 5)
    together = jax.jit(jax.vmap(lambda key: estimator.directions(key, 7, 13, orthogonal=False)))(keys)
    alone = jax.jit(lambda key: estimator.directions(key, 7, 13, orthogonal=False))(keys[3])
    np.testing.assert_array_equal(together[3], alone)
