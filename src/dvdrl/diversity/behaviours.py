"""Behaviours as rows of numbers, one a rollout, and what is learned about their coordinates.

The paper compares members by their actions on shared states (`embeddings`). Members whose actions differ may still do
the same, so here a behaviour is what a rollout visits. Which of its coordinates matter ("which dimensions are of
particular interest", in the paper's words) and in which unit they count is learned from the perturbed rollouts that an
evolution strategy has anyway.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from dvdrl.diversity import _checks

Behaviours = Float[Array, "M n D"]
"""Of n perturbations of each member."""

_RATE = 0.2
"""The share of what is learned in an iteration."""

_LEAST_PART = 0.1
"""Of the largest deviation between members so far, which is the least unit of a coordinate. A member that has learned
all it can may hardly be noisy any more, and what is left of differences to its copies should not count."""

_LEAST_NOISE = 1e-6
"""Relative to a coordinate's size, in single precision: what varies less is constant but for rounding."""


class Coordinates(NamedTuple):
    """What is known about the D coordinates of a behaviour."""

    noise: Float[Array, "D"]
    """The deviation of each over the perturbations of one member. 0 where it never varied."""
    spread: Float[Array, "D"]
    """The largest deviation between members so far."""
    relevance: Float[Array, "D"]
    """How much of the return each explains; sums to 1."""
    num_learned: Int[Array, ""]
    """Iterations that went into both."""


def visits(mean: ArrayLike) -> Float[Array, "... D"]:
    """What a rollout visits: the mean of its observations, (..., obs) -> (..., obs).

    Measured on landmarks and on the wide wall, means alone serve as well as 32 random Fourier features, and better than
    means with deviations. They keep the names that observations have, and need no scale to agree on.
    """
    return _checks.as_float_array("mean", mean, ndim=1, shape="(..., obs)", batched=True)


def unknown(num_coordinates: int) -> Coordinates:
    """Nothing is known yet: no coordinate counts."""
    if num_coordinates < 1:
        raise ValueError(f"num_coordinates: expected at least 1, got {num_coordinates}")
    zeros = jnp.zeros(num_coordinates)
    return Coordinates(zeros, zeros, zeros, jnp.zeros((), jnp.int32))


def learn(
    coordinates: Coordinates, behaviours: Behaviours, returns: Float[Array, "M n"], settled: Bool[Array, "M"]
) -> Coordinates:
    """What an iteration teaches.

    The noise is the median over settled members, as those that are on their way somewhere may be far more noisy; it
    stays what it was where none has settled. A coordinate's relevance is the squared correlation with the return over
    a member's perturbations, less what chance gives, averaged over all members; it stays what it was where no
    perturbation of any member changes anything. Both are averaged over iterations, recent ones counting more.
    """
    n = behaviours.shape[1]
    centred = behaviours - jnp.mean(behaviours, axis=1, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(jnp.square(centred), axis=1))  # (M, D)
    varies = deviation > _LEAST_NOISE * jnp.max(jnp.abs(behaviours), axis=1)
    deviation = jnp.where(varies, deviation, 0.0)
    pays = returns - jnp.mean(returns, axis=1, keepdims=True)
    spread = jnp.sqrt(jnp.mean(jnp.square(pays), axis=1))
    tells = varies & (spread > _LEAST_NOISE * jnp.max(jnp.abs(returns), axis=1))[:, None]

    correlation = jnp.mean(centred * pays[..., None], axis=1) / jnp.where(tells, deviation * spread[:, None], 1.0)
    explained = jnp.where(tells, jnp.maximum(jnp.square(correlation) - 2 / n, 0.0), 0.0)
    total = jnp.sum(jnp.mean(explained, axis=0))
    anywhere = jnp.any(varies, axis=0)
    unexplained = jnp.where(jnp.any(anywhere), _equal(anywhere), coordinates.relevance)
    relevance = jnp.where(total > 0, jnp.mean(explained, axis=0) / jnp.where(total > 0, total, 1.0), unexplained)

    num_settled = jnp.maximum(jnp.sum(settled), 1)
    weights = jnp.where(settled, 1.0 / num_settled, 0.0)[:, None]
    means = jnp.mean(behaviours, axis=1)
    from_centre = means - jnp.sum(weights * means, axis=0, keepdims=True)
    between = jnp.sqrt(jnp.sum(weights * jnp.square(from_centre), axis=0))
    between = jnp.where(between > _LEAST_NOISE * jnp.max(jnp.abs(means), axis=0), between, 0.0)
    among_settled = _median(deviation, settled)
    first = coordinates.num_learned == 0
    noise = jnp.where(
        jnp.any(settled), among_settled, jnp.where(first, jnp.median(deviation, axis=0), coordinates.noise)
    )
    rate = jnp.maximum(_RATE, 1.0 / (1.0 + coordinates.num_learned))
    return Coordinates(
        coordinates.noise + rate * (noise - coordinates.noise),
        jnp.maximum(coordinates.spread, between),
        coordinates.relevance + rate * (relevance - coordinates.relevance),
        coordinates.num_learned + 1,
    )


def units(coordinates: Coordinates) -> Float[Array, "D"]:
    """What a difference of 1 is in each coordinate: its noise, or what stands in for it. 0 where it never varied."""
    return jnp.maximum(coordinates.noise, _LEAST_PART * coordinates.spread)


def weighting(coordinates: Coordinates, *, relevant: bool) -> Float[Array, "D"]:
    """Factors by which differences are multiplied before their norm is a distance, in units of noise or near it.

    With `relevant`, coordinates count by how much of the return they explain; else all that vary count alike.
    """
    unit = units(coordinates)
    varies = unit > 0
    weights = jnp.where(varies, coordinates.relevance, 0.0) if relevant else _equal(varies)
    return jnp.sqrt(weights) / jnp.where(varies, unit, 1.0)


def squared_distances(
    x: Float[Array, "a D"], y: Float[Array, "b D"], factors: Float[Array, "D"]
) -> Float[Array, "a b"]:
    """Between all behaviours of two groups."""
    return jnp.sum(jnp.square((x[:, None] - y[None]) * factors[None, None]), axis=-1)


def standardize(scores: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Scores with mean 0 and deviation 1 along the last axis; all 0 where they do not differ beyond rounding."""
    centred = scores - jnp.mean(scores, axis=-1, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True))
    alike = deviation <= 4 * jnp.finfo(scores.dtype).eps * jnp.max(jnp.abs(scores), axis=-1, keepdims=True)
    return jnp.where(alike, 0.0, centred / jnp.where(alike, 1.0, deviation))


def _median(values: Float[Array, "M D"], counted: Bool[Array, "M"]) -> Float[Array, "D"]:
    """Over those counted; anything where there are none."""
    ascending = jnp.sort(jnp.where(counted[:, None], values, jnp.inf), axis=0)
    num = jnp.maximum(jnp.sum(counted), 1)
    return (ascending[(num - 1) // 2] + ascending[num // 2]) / 2


def _equal(counted: Bool[Array, "D"]) -> Float[Array, "D"]:
    return counted / jnp.maximum(jnp.sum(counted), 1)
