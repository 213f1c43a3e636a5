"""Kernels against scikit-learn's, in float64, and their gradients where they have a kink."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as reference
from sklearn.metrics.pairwise import cosine_similarity

from dvdrl.diversity import KERNELS, distances, gram, kernels, median_length_scale
from dvdrl.diversity.kernels import _each_pair_once

DIMENSION = 12
# scikit-learn sums squares where we average them: our length scale l is theirs divided by sqrt(dimension).
SCALE = np.sqrt(DIMENSION)
REFERENCES = {
    "squared-exponential": lambda length: reference.RBF(length),
    "exponential": lambda length: reference.Matern(length, nu=0.5),
    "rational-quadratic": lambda length: reference.RationalQuadratic(length, alpha=1.0),
    "matern32": lambda length: reference.Matern(length, nu=1.5),
    "matern52": lambda length: reference.Matern(length, nu=2.5),
    "linear": lambda length: cosine_similarity,
}


def embeddings(members: int = 7, dimension: int = DIMENSION) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(members, dimension))


@functools.cache  # one program for each kernel, whatever the length scale: compiling takes the time
def compiled_gram(name: str):
    return jax.jit(lambda x, length_scale=1.0: gram(KERNELS[name](length_scale), x))


@pytest.mark.parametrize("length_scale", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("name", KERNELS)
def test_agrees_with_scikit_learn(name, length_scale):
    x = embeddings()
    with jax.enable_x64(True):
        ours = compiled_gram(name)(x, length_scale)
        assert ours.dtype == jnp.float64
        np.testing.assert_allclose(ours, REFERENCES[name](length_scale * SCALE)(x), rtol=0, atol=1e-10)


def test_rational_quadratic_takes_alpha():
    x = embeddings()
    with jax.enable_x64(True):
        ours = gram(KERNELS["rational-quadratic"](length_scale=0.7, alpha=2.5), x)
        np.testing.assert_allclose(ours, reference.RationalQuadratic(0.7 * SCALE, 2.5)(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", KERNELS)
def test_diagonal_is_one_and_matrix_symmetric(name):
    K = compiled_gram(name)(embeddings().astype(np.float32))
    # Normalising the linear kernel rounds; the others have exp(0) = 1 on the diagonal.
    np.testing.assert_allclose(np.diag(K), 1.0, rtol=0, atol=3e-7 if name == "linear" else 0)
    np.testing.assert_array_equal(K, K.T)


def _all_pairs(kernel, x):
    return kernels._all_pairs(kernel, x, x)


@pytest.mark.parametrize("name", KERNELS)
def test_accelerators_compute_the_same_matrix(name):
    # By broadcasting instead of pair by pair: the same to rounding, symmetric to the bit, and so is the derivative.
    x, direction = jnp.asarray(embeddings()), jnp.asarray(embeddings()[::-1])
    kernel = KERNELS[name]()
    (one, d_one), (other, d_other) = (
        jax.jit(functools.partial(jax.jvp, functools.partial(f, kernel)))((x,), (direction,))
        for f in (_each_pair_once, _all_pairs)
    )
    np.testing.assert_array_equal(other, other.T)
    np.testing.assert_allclose(other, one, atol=1e-6)
    np.testing.assert_allclose(d_other, d_one, atol=1e-6)


@pytest.mark.parametrize("members", [1, 2, 3, 8])
def test_pair_by_pair_the_second_derivative_is_the_same_too(members):
    # Where the number of members is even, those that face each other in the ring meet twice.
    x, direction = jnp.asarray(embeddings(members)), jnp.asarray(embeddings(members)[::-1])

    def derivatives(pairwise, length_scale):
        def score(x):
            return jnp.sum(jnp.sin(3 * pairwise(KERNELS["matern52"](length_scale), x)))

        return pairwise(KERNELS["matern52"](length_scale), x), *jax.jvp(jax.grad(score), (x,), (direction,))

    one, other = (jax.jit(functools.partial(derivatives, f))(0.7) for f in (_each_pair_once, _all_pairs))
    np.testing.assert_array_equal(one[0], one[0].T)
    assert members == 1 or np.abs(one[2]).max() > 0.1  # it is something
    for pair_by_pair, at_once in zip(one, other, strict=True):
        np.testing.assert_allclose(pair_by_pair, at_once, atol=1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_distance_is_per_dimension(name):
    # Repeating every coordinate leaves the mean square distance, and so every kernel, as it was.
    x = embeddings()
    with jax.enable_x64(True):
        once, often = map(compiled_gram(name), (x, np.repeat(x, 50, axis=1)))
        np.testing.assert_allclose(once, often, rtol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_at_a_coinciding_pair_is_zero(name):
    # k(x, y) is largest at x = y. The exponential kernel has a kink there, of which 0 is a subgradient.
    x = jnp.asarray([0.3, -0.2, 0.5])
    gradient = jax.grad(lambda a: KERNELS[name]()(a, x))(x)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)


def test_linear_kernel_of_zero_vectors():
    # Without a direction: alike among themselves, orthogonal to all others.
    K = gram(KERNELS["linear"](), jnp.asarray([[0.0, 0.0], [0.0, 0.0], [1.0, 2.0]]))
    np.testing.assert_allclose(K, [[1, 1, 0], [1, 1, 0], [0, 0, 1]], atol=1e-7)


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "linear"])
def test_members_that_are_far_apart_have_nothing_in_common(name):
    # However small the length scale or large the embeddings, and with finite gradients.
    for length_scale, x in ((1e-16, [[0.5], [0.3]]), (1e-30, [[0.5], [0.3]]), (1.0, [[2e15], [1e30]])):
        kernel = KERNELS[name](length_scale)
        K, gradient = jax.value_and_grad(lambda x, kernel=kernel: gram(kernel, x)[0, 1])(jnp.asarray(x))
        assert K < 1e-10
        assert np.isfinite(gradient).all()


def test_the_linear_kernel_does_not_depend_on_scale():
    x = embeddings(3)
    K = REFERENCES["linear"](1.0)(x)
    for scale in (1e-15, 1.0, 1e20, 1e37):
        np.testing.assert_allclose(compiled_gram("linear")((scale * x).astype(np.float32)), K, rtol=0, atol=1e-6)


def test_distances_are_root_mean_square():
    # (3, 4) against (0, 0): sqrt((9 + 16) / 2).
    d = jax.jit(distances)(jnp.asarray([[0.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(d, [[0, np.sqrt(12.5)], [np.sqrt(12.5), 0]], rtol=1e-6)


def test_median_length_scale():
    # Points 0, 1, 3 on a line: distances 1, 2, 3.
    median = jax.jit(median_length_scale)
    assert median(np.asarray([[0.0], [1.0], [3.0]])) == 2.0
    assert median(np.zeros((4, 3))) == 1.0  # all alike: no scale to be had
    assert median(np.ones((1, 3))) == 1.0


def test_median_length_scale_makes_the_gram_matrix_scale_free():
    x = jnp.asarray(embeddings(), jnp.float32)

    @jax.jit
    def scaled_gram(factor):
        y = factor * x
        return gram(KERNELS["squared-exponential"](length_scale=median_length_scale(y)), y)

    np.testing.assert_allclose(scaled_gram(1.0), scaled_gram(1024.0), rtol=1e-6)


def test_median_length_scale_is_a_constant_to_gradients():
    np.testing.assert_array_equal(jax.jit(jax.grad(median_length_scale))(embeddings()), 0.0)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: KERNELS["rbf"], KeyError, "kernel: expected one of squared-exponential.*got 'rbf'"),
        (lambda: KERNELS["linear"](length_scale=0.0), ValueError, "length_scale: expected a positive.*got 0.0"),
        (lambda: KERNELS["rational-quadratic"](alpha=-1.0), ValueError, "alpha: expected a positive.*got -1.0"),
        (lambda: gram("linear", np.ones((2, 2))), TypeError, "kernel: expected a function.*got 'linear'"),
        (
            lambda: gram(KERNELS["linear"](), np.ones(3)),
            ValueError,
            r"embeddings: expected.*\(M, l\), got shape \(3,\)",
        ),
        (lambda: gram(KERNELS["linear"](), np.ones((0, 3))), ValueError, r"embeddings: expected a non-empty.*\(0, 3\)"),
        (lambda: gram(KERNELS["linear"](), [[1.0, np.nan]]), ValueError, r"embeddings: .*got nan at index \(0, 1\)"),
        (lambda: gram(KERNELS["linear"](), [[1.0, -np.inf]]), ValueError, r"embeddings: .*got -inf at index \(0, 1\)"),
        (
            lambda: gram(KERNELS["linear"](), "abc"),
            TypeError,
            "embeddings: expected an array of real numbers, got dtype <U3",
        ),
        (lambda: gram(KERNELS["linear"](), [[1.0], [1.0, 2.0]]), TypeError, "embeddings: expected an array.*got list"),
        (
            lambda: gram(KERNELS["linear"](), [[1j]]),
            TypeError,
            "embeddings: expected an array of real numbers, got dtype complex128",
        ),
    ],
)
def test_errors_name_the_argument(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("name", KERNELS)
def test_others_are_compared_as_members_of_one_matrix_are(name):
    # Row and column blocks of the matrix of all of them together.
    x, kernel = embeddings(5), KERNELS[name](0.8)
    np.testing.assert_allclose(gram(kernel, x[:2], x[2:]), gram(kernel, x)[:2, 2:], atol=1e-6)
    np.testing.assert_allclose(distances(x[:2], x[2:]), distances(x)[:2, 2:], rtol=1e-6)


def test_others_of_another_length_are_named():
    with pytest.raises(ValueError, match="others: expected rows of 3 numbers, as embeddings has, got 2"):
        gram(KERNELS["linear"](), np.ones((2, 3)), np.ones((4, 2)))
