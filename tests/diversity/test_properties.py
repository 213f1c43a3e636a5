"""What must hold for any finite input in single precision: values and gradients finite, bounds, invariances."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dvdrl.diversity import KERNELS, gram, least_shrinkage, log_determinant, measure, normalize

# Few shapes, as each is compiled once for each kernel; corners of M from 1 to 100 and l from 1 to 20,000.
SHAPES = [(1, 1), (2, 3), (5, 20_000), (100, 1), (100, 85)]


@st.composite
def populations(draw: st.DrawFn) -> np.ndarray:
    """Embeddings of any scale from 1e-6 to 1e6: spread, constant, with exact duplicates, or with near duplicates."""
    members, dimension = draw(st.sampled_from(SHAPES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.normal(size=(members, dimension)) * 10.0 ** draw(st.floats(-6, 6))
    kind = draw(st.sampled_from(["spread", "constant", "duplicates", "near duplicates", "offset", "saturated"]))
    if kind == "constant":
        x = np.broadcast_to(x[:1, :1], x.shape)
    elif kind == "duplicates":
        x = x[rng.integers(0, members, size=members)]
    elif kind == "near duplicates":
        x = x[:1] * (1 + 1e-7 * rng.normal(size=x.shape))
    elif kind == "offset":
        x = x + 10.0 ** draw(st.floats(-6, 6))
    elif kind == "saturated":
        x = np.sign(x)  # the actions of tanh policies that have gone to the bounds
    return x.astype(np.float32)


@functools.cache
def value_and_gradient(name: str):
    return jax.jit(jax.value_and_grad(lambda x: log_determinant(gram(KERNELS[name](length_scale=1.0), x))))


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=40)
@given(x=populations(), seed=st.integers(0, 2**32 - 1))
def test_log_determinant(name, x, seed):
    value, gradient = value_and_gradient(name)(x)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    # Hadamard: det <= product of the diagonal = 1; rounding of M logarithms and of the linear kernel's diagonal.
    assert value <= 1e-6 * len(x)
    # The shrinkage bounds every eigenvalue from below, up to the half of it that rounding may take.
    assert value >= len(x) * np.log(least_shrinkage(len(x)) / 2)

    permuted, _ = value_and_gradient(name)(x[np.random.default_rng(seed).permutation(len(x))])
    # The factor's pivots differ in rounding by about M u, against pivots of at least the shrinkage, 4 M (M + 1) u.
    np.testing.assert_allclose(permuted, value, rtol=1e-3, atol=0.5)


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=20)
@given(x=populations().filter(lambda x: len(x) > 1))
def test_an_exact_duplicate_gives_the_floor(name, x):
    x = np.concatenate([x[:-1], x[:1]])
    value, _ = value_and_gradient(name)(x)
    # det K <= det of the duplicates' 2x2 block = 1 - (1 - s)^2 < 2 s; a factor 2 for rounding.
    assert value <= np.log(4 * least_shrinkage(len(x)))


@settings(max_examples=40)
@given(x=populations())
def test_normalization_across_members(x):
    normalized, gradient = normalized_and_gradient(x)
    assert np.isfinite(normalized).all()
    assert np.isfinite(gradient).all()
    assert np.abs(normalized).max() <= 2.0


@jax.jit
def normalized_and_gradient(x):
    def mean_square(x):
        return jnp.mean(jnp.square(normalize(x, "across-members")))

    return normalize(x, "across-members"), jax.grad(mean_square)(x)


@jax.jit
def metrics_of(x):
    return measure(gram(KERNELS["squared-exponential"](), x), x)


@settings(max_examples=40)
@given(x=populations())
def test_metrics_are_within_their_bounds(x):
    M = len(x)
    metrics = {name: float(value) for name, value in metrics_of(x).items() if value.ndim == 0}
    assert all(np.isfinite(value) for value in metrics.values())
    vendi = [metrics[f"vendi_{order}"] for order in ("0.1", "1", "2", "inf")]
    # Renyi entropy falls with its order; all alike counts as 1, all orthogonal as M.
    assert all(before >= after * (1 - 1e-4) for before, after in zip([M, *vendi], [*vendi, 1], strict=True))
    assert 1 - 1e-4 <= metrics["effective_rank"] <= min(x.shape) * (1 + 1e-4)
    assert 0 <= metrics["min_distance"] <= metrics["mean_distance"] * (1 + 1e-5)
