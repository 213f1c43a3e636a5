import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dvdrl.policies import Moments
from dvdrl.policies import filter as observation_filter


def moments_of(x: np.ndarray) -> Moments:
    mean = x.mean(axis=0)
    return Moments(*(jnp.asarray(v, jnp.float32) for v in (len(x), mean, np.square(x - mean).sum(axis=0))))


def assert_close(a: Moments, b: Moments) -> None:
    for left, right in zip(a, b, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)


pool, merge = jax.jit(observation_filter.pool, static_argnames="axis"), jax.jit(observation_filter.merge)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 2**31))
def test_parts_pool_and_merge_to_the_whole(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.normal(rng.normal(0, 5), 2, (size, 3)) for size in sizes]
    whole = moments_of(np.concatenate(parts))
    each = [moments_of(part) for part in parts]
    stacked = Moments(*(np.stack(leaves) for leaves in zip(*each, strict=True)))
    assert_close(pool(stacked, axis=0), whole)
    merged = observation_filter.empty(3)
    for part in each:
        merged = merge(merged, part)
    assert_close(merged, whole)


def test_merging_with_nothing_changes_nothing() -> None:
    some = moments_of(np.random.default_rng(0).normal(size=(7, 3)))
    for merged in (
        observation_filter.merge(observation_filter.empty(3), some),
        observation_filter.merge(some, observation_filter.empty(3)),
    ):
        for left, right in zip(merged, some, strict=True):
            np.testing.assert_array_equal(left, right)


def test_affine_standardises() -> None:
    x = np.random.default_rng(0).normal(3, 2, (1000, 2))
    shift, scale = observation_filter.affine(moments_of(x))
    y = (x - np.asarray(shift)) * np.asarray(scale)
    np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(y.std(axis=0), 1, rtol=1e-5)


def test_before_any_observation_the_filter_is_the_identity() -> None:
    shift, scale = observation_filter.affine(observation_filter.empty(2))
    np.testing.assert_array_equal(shift, 0)
    np.testing.assert_array_equal(scale, 1)


def test_constant_coordinates_become_zero_however_large() -> None:
    # 1234.567 is not a float32 number and 200 rollouts round its mean 200 times; a variance that rounding left would
    # be amplified to noise of order 1.
    n = 200
    counts = jnp.arange(1.0, n + 1)
    each = Moments(counts, jnp.full((n, 1), 1234.567), jnp.zeros((n, 1)))
    pooled = observation_filter.pool(each, axis=0)
    merged = observation_filter.merge(observation_filter.merge(observation_filter.empty(1), pooled), pooled)
    assert float(merged.sum_squares[0]) == 0.0
    assert float(observation_filter.affine(merged)[1][0]) == 0.0


def test_the_threshold_is_a_deviation_of_1e_7() -> None:
    squares = jnp.array([(0.9e-7) ** 2, (1.1e-7) ** 2]) * 10
    _, scale = observation_filter.affine(Moments(jnp.asarray(10.0), jnp.zeros(2), squares))
    assert float(scale[0]) == 0.0
    np.testing.assert_allclose(scale[1], 1 / 1.1e-7, rtol=1e-4)
