"""The state filter of the paper's ES experiments: running mean and variance of observations, which merge exactly.

Moments of separate rollouts combine into the moments of all their observations (Chan, Golub and LeVeque 1979). So it
does not matter which worker saw which observations.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

_LEAST_DEVIATION = 1e-7

BORROWED = 1000
"""Observations that a filter counts for where it comes from others: enough to begin with, few enough to be outweighed
by an agent's own."""


class Moments(NamedTuple):
    """The moments of any number of observations. Leading axes hold independent moments."""

    num: Float[Any, "..."]
    mean: Float[Any, "... obs"]
    sum_squares: Float[Any, "... obs"]
    """The sum of squared differences from the mean."""


def empty(num_observed: int) -> Moments:
    """The moments before any observation."""
    return Moments(jnp.zeros(()), jnp.zeros(num_observed), jnp.zeros(num_observed))


def pool(moments: Moments, axis: int) -> Moments:
    """Merge the moments along one axis.

    Means are taken relative to the first one, not to 0. So a constant coordinate keeps a variance of exactly 0, which
    it would otherwise lose to the rounding of large means.
    """
    count = moments.num[..., None]
    total = jnp.sum(count, axis, keepdims=True)
    reference = jnp.take(moments.mean, jnp.array([0]), axis)
    share = count / jnp.maximum(total, 1.0)
    mean = reference + jnp.sum(share * (moments.mean - reference), axis, keepdims=True)
    between = jnp.sum(count * jnp.square(moments.mean - mean), axis)
    return Moments(jnp.sum(moments.num, axis), jnp.squeeze(mean, axis), jnp.sum(moments.sum_squares, axis) + between)


def merge(a: Moments, b: Moments) -> Moments:
    """The moments of both sets of observations together; exact if one of them is empty."""
    total = jnp.maximum(a.num + b.num, 1.0)
    difference = b.mean - a.mean
    share = (b.num / total)[..., None]
    between = jnp.square(difference) * (a.num[..., None] * share)
    return Moments(a.num + b.num, a.mean + difference * share, a.sum_squares + b.sum_squares + between)


def lightened(moments: Moments, most: float) -> Moments:
    """The same mean and deviation, as if of at most so many observations: what is merged later counts for more."""
    num = jnp.minimum(moments.num, most)
    share = num / jnp.maximum(moments.num, 1.0)
    return Moments(num, moments.mean, moments.sum_squares * share[..., None])


def as_of(shift: Float[Any, "... obs"], scale: Float[Any, "... obs"], num: float) -> Moments:
    """Moments whose `affine` is (shift, scale), as if of so many observations; none if it is that of none."""
    shift, scale = jnp.asarray(shift), jnp.asarray(scale)
    constant = scale == 0
    variance = jnp.where(constant, 0.0, jnp.square(1.0 / jnp.where(constant, 1.0, scale)))
    none = jnp.all((shift == 0) & (scale == 1), axis=-1)
    counts = jnp.where(none, 0.0, num)
    return Moments(counts, jnp.where(none[..., None], 0.0, shift), counts[..., None] * variance)


def affine(moments: Moments) -> tuple[Float[Array, "... obs"], Float[Array, "... obs"]]:
    """(shift, scale) such that (x - shift) * scale has mean 0 and standard deviation 1.

    Before the first observation, x stays as it is. A coordinate with a standard deviation below 1e-7 becomes 0, as in
    the authors' code.
    """
    seen = (moments.num > 0)[..., None]
    deviation = jnp.sqrt(moments.sum_squares / jnp.maximum(moments.num, 1.0)[..., None])
    constant = deviation < _LEAST_DEVIATION
    scale = jnp.where(constant, 0.0, 1.0 / jnp.where(constant, 1.0, deviation))
    return jnp.where(seen, moments.mean, 0.0), jnp.where(seen, scale, 1.0)
