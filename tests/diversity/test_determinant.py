"""The determinant and its gradient: against NumPy, central differences and the trace identity, in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl.diversity import KERNELS, determinant, gram, least_shrinkage, log_determinant
from dvdrl.diversity.determinant import _by_kernel


def embeddings(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape)


def log_det_of_embeddings(name: str, shrinkage: float | None = None):
    return lambda x: log_determinant(gram(KERNELS[name](length_scale=0.8), x), shrinkage=shrinkage)


@pytest.mark.parametrize("name", KERNELS)
def test_agrees_with_numpy(name):
    with jax.enable_x64(True):
        K = jax.jit(lambda x: gram(KERNELS[name](), x))(embeddings(6, 9))
        # The shrinkage, 2e-14 for M = 6, changes log det by at most that times the condition of K.
        np.testing.assert_allclose(log_determinant(K), np.linalg.slogdet(K)[1], atol=1e-11)
        np.testing.assert_allclose(determinant(K), np.linalg.det(K), atol=1e-11)


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_agrees_with_central_differences(name):
    x, direction = embeddings(2, 5, 8)
    with jax.enable_x64(True):
        function = jax.jit(jax.value_and_grad(log_det_of_embeddings(name)))
        step = 1e-5
        (above, _), (below, _), (_, gradient) = map(function, (x + step * direction, x - step * direction, x))
        central = (float(above) - float(below)) / (2 * step)
        along = np.sum(np.asarray(gradient) * direction)
        np.testing.assert_allclose(along, central, atol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_is_plus_the_inverse(name):
    # d log det K = + trace(K^-1 dK): the corrected sign of the paper's lemma 4.1.
    x, direction = embeddings(2, 5, 8)
    with jax.enable_x64(True):
        functions = lambda y: (gram(KERNELS[name](length_scale=0.8), y), log_det_of_embeddings(name)(y))  # noqa: E731
        (K, _), (dK, along) = jax.jit(functools.partial(jax.jvp, functions))((x,), (direction,))
        np.testing.assert_allclose(along, np.trace(np.linalg.inv(K) @ dK), rtol=1e-9)


def test_gradient_with_respect_to_the_matrix():
    # K = [[1, c], [c, 1]] has det 1 - c^2 and inverse [[1, -c], [-c, 1]] / (1 - c^2). With c = 0.6: 0.64.
    with jax.enable_x64(True):
        gradient = jax.jit(jax.grad(log_determinant))(np.asarray([[1.0, 0.6], [0.6, 1.0]]))
        np.testing.assert_allclose(gradient, np.asarray([[1, -0.6], [-0.6, 1]]) / 0.64, rtol=1e-12)


by_kernel = jax.jit(functools.partial(_by_kernel, interpret=True))


@pytest.mark.parametrize("M", [1, 5, 18])
def test_kernel_for_gpus_agrees_with_numpy(M):
    # Two matrices at once, as with several seeds; odd, even, and sizes that fill no block.
    x = embeddings(2, M, 60)
    with jax.enable_x64(True):
        K = np.exp(-0.5 * np.mean(np.square(x[:, :, None] - x[:, None]), axis=-1))
        log_determinants, inverse = by_kernel(K)
        np.testing.assert_allclose(log_determinants, np.linalg.slogdet(K)[1], atol=1e-11)
        np.testing.assert_allclose(inverse, np.linalg.inv(K), atol=1e-11)


@pytest.mark.parametrize("M", [5, 18])
def test_kernel_for_gpus_stands_members_that_coincide(M):
    # With the least shrinkage, in single precision: the case that Cholesky's algorithm is guaranteed for.
    amount = least_shrinkage(M)
    K = np.where(np.eye(M, dtype=bool), 1.0, 1 - amount).astype(np.float32)
    log_determinant_, inverse = by_kernel(K)
    # Eigenvalues: amount, M - 1 times, and M - (M - 1) amount.
    expected = (M - 1) * np.log(amount) + np.log(M - (M - 1) * amount)
    assert float(log_determinant_) == pytest.approx(expected, rel=0.01)
    # 1 / amount is the inverse's largest eigenvalue, and its entries on the diagonal are nearly that.
    np.testing.assert_allclose(np.diagonal(inverse), (1 - 1 / M) / amount, rtol=0.1)


def test_second_derivatives_exist():
    # log det of [[1, c], [c, 1]] is log(1 - c^2), whose second derivative is -2 (1 + c^2) / (1 - c^2)^2.
    with jax.enable_x64(True):
        function = lambda c: log_determinant(jnp.ones((2, 2)).at[0, 1].set(c).at[1, 0].set(c))  # noqa: E731
        np.testing.assert_allclose(jax.jit(jax.grad(jax.grad(function)))(0.6), -2 * 1.36 / 0.64**2, rtol=1e-10)


def test_batched_and_mapped():
    with jax.enable_x64(True):
        mapped_gram = jax.jit(jax.vmap(lambda x: gram(KERNELS["matern32"](), x)))
        K = np.asarray(mapped_gram(embeddings(3, 4, 5, 6).reshape(12, 5, 6)))
        compiled = jax.jit(log_determinant)
        one_by_one = np.stack([compiled(k) for k in K])
        np.testing.assert_allclose(log_determinant(K), one_by_one, rtol=1e-12)
        np.testing.assert_allclose(compiled(K.reshape(3, 4, 5, 5)).reshape(12), one_by_one, rtol=1e-12)
        np.testing.assert_allclose(jax.jit(jax.vmap(log_determinant))(K), one_by_one, rtol=1e-12)
        gradients = jax.jit(jax.vmap(jax.grad(log_determinant)))(K)
        np.testing.assert_allclose(gradients, np.linalg.inv(K), rtol=1e-9, atol=1e-11)


def test_single_member():
    # One member alone: K = [1], whatever it does.
    value, gradient = jax.jit(jax.value_and_grad(log_det_of_embeddings("squared-exponential")))(np.ones((1, 3)))
    assert value == 0.0
    np.testing.assert_array_equal(gradient, 0.0)
    assert determinant(jnp.ones((1, 1))) == 1.0


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("population", [2, 5, 100])
def test_all_alike_gives_the_floor(population, dtype):
    with jax.enable_x64(True):
        # Shrunk, the matrix of ones has eigenvalue s on M - 1 directions and M - (M - 1) s on the last.
        s = least_shrinkage(population, dtype)
        floor = (population - 1) * np.log(s) + np.log(population - (population - 1) * s)
        value = jax.jit(log_determinant)(np.ones((population, population), dtype))
        # Each pivot is off by at most about M u, a 1 / (2 M) part of the shrinkage; there are M of them.
        np.testing.assert_allclose(value, floor, atol=0.5)


def test_a_chosen_shrinkage_bounds_the_gradient():
    # The off-diagonal entries are scaled by 1 - s: with s = 0.1, [[1, 1], [1, 1]] becomes [[1, 0.9], [0.9, 1]].
    ones = jnp.ones((2, 2))
    np.testing.assert_allclose(determinant(ones, shrinkage=0.1), 1 - 0.81, rtol=1e-5)
    # Its inverse has norm 1 / s = 10.
    gradient = jax.jit(jax.grad(lambda K: log_determinant(K, shrinkage=0.1)))(ones)
    assert np.linalg.norm(gradient, 2) <= 10.001


def test_a_shrinkage_below_the_least_is_raised_to_it():
    ones = jnp.ones((5, 5))
    assert log_determinant(ones, shrinkage=0.0) == log_determinant(ones)


@pytest.mark.parametrize(
    ("K", "words"),
    [
        (np.ones((2, 3)), r"K: expected square matrices.*\(2, 3\)"),
        (np.ones(4), r"K: expected.*\(\.\.\., M, M\), got shape \(4,\)"),
        ([[1.0, np.nan], [np.nan, 1.0]], r"K: expected finite numbers, got nan at index \(0, 1\)"),
        ([[1.0, 0.5], [0.2, 1.0]], "K: expected symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], "K: expected positive semidefinite"),
        (np.eye(4000, dtype=np.float32), "too imprecise for the determinant of 4000 members"),
    ],
)
def test_errors_name_what_is_wrong_with_the_matrix(K, words):
    with jax.debug_nans(False), pytest.raises(ValueError, match=words):
        log_determinant(K)


@pytest.mark.parametrize("shrinkage", [-0.1, 1.5, float("nan")])
def test_shrinkage_is_a_fraction(shrinkage):
    with pytest.raises(ValueError, match="shrinkage: expected a number from 0 to 1, got"):
        log_determinant(np.eye(2), shrinkage=shrinkage)


@pytest.mark.parametrize("population", [32, 33, 40])
def test_the_inverse_is_the_same_whole_or_in_blocks(population):
    # On a CPU up to 32 members are one block of columns; 33 are two, of 31 and 2; 40 are two, of 25 and 15.
    x = np.random.default_rng(0).normal(size=(2, population, 60))
    K = np.exp(-np.square(x[:, :, None] - x[:, None]).mean(axis=-1))
    with jax.enable_x64(True):
        gradient = jax.jit(jax.grad(lambda K: jnp.sum(log_determinant(K))))(jnp.asarray(K))
        # The least shrinkage in double precision is 1e-12, and the condition of these matrices below 10.
        np.testing.assert_allclose(gradient, np.linalg.inv(K), atol=1e-10)
