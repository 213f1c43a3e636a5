"""Metrics of diversity, as papers report them. They are for reports, not for gradients."""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dvdrl.diversity import _checks, _eager
from dvdrl.diversity.determinant import log_determinant
from dvdrl.diversity.kernels import distances

Scalar = Float[Array, ""]

VENDI_ORDERS = (0.1, 1.0, 2.0, float("inf"))
"""The orders that `measure` reports: small ones emphasise rare behaviours, large ones common ones."""


def vendi_score(K: ArrayLike, order: float = 1.0) -> Scalar:
    """The effective number of different members, from 1 (all alike) to M (all orthogonal).

    It is the exponential of the Renyi entropy of the eigenvalues of K / M (Friedman and Dieng 2023; Pasarkar and Dieng
    2024 for orders other than 1).

    Args:
        K: a Gram matrix with unit diagonal.
        order: of the entropy; positive, infinity included.
    """
    if not order > 0:
        raise ValueError(f"order: expected a positive number or infinity, got {order}")
    return _vendi(_square(K), float(order))


@functools.partial(_eager.compiled, static="order")
def _vendi(matrix: Float[Array, "M M"], order: float) -> Scalar:
    return _effective_number(jnp.linalg.eigvalsh(matrix), order)


def effective_rank(embeddings: ArrayLike) -> Scalar:
    """The effective number of directions that the embeddings span, from 1 to min(M, l).

    It is exp of the entropy of their singular values (Roy and Vetterli 2007); 1 by convention if all are zero.
    """
    return _rank(_checks.as_float_array("embeddings", embeddings, ndim=2, shape="(M, l)"))


@_eager.compiled
def _rank(x: Float[Array, "M l"]) -> Scalar:
    largest = jnp.max(jnp.abs(x))
    # Not full: for full matrices, JAX would set (l, l) numbers aside, although none of them are computed.
    values = jnp.linalg.svd(x / jnp.where(largest > 0, largest, 1.0), full_matrices=False, compute_uv=False)
    return _effective_number(values, 1.0)


def mean_distance(embeddings: ArrayLike) -> Scalar:
    """Mean distance (per dimension) over all pairs of members; 0 for a single member."""
    pairs = _of_pairs(distances(embeddings))
    return jnp.mean(pairs) if pairs.size else jnp.zeros((), pairs.dtype)


def min_distance(embeddings: ArrayLike) -> Scalar:
    """Smallest distance (per dimension) between two members; 0 for a single member."""
    pairs = _of_pairs(distances(embeddings))
    return jnp.min(pairs) if pairs.size else jnp.zeros((), pairs.dtype)


def measure(K: ArrayLike, embeddings: ArrayLike) -> dict[str, Array]:
    """All metrics by name. To compare populations of different sizes, use `log_det_per_member`, not `log_det`.

    `similarities` and `distances` have a number for each pair of members, in the order (0, 1), (0, 2), .., (1, 2), ..;
    all other metrics are one number.
    """
    matrix = _checks.as_float_array("K", K, ndim=2, shape="(M, M)")
    log_det = log_determinant(matrix)
    return {
        "log_det": log_det,
        "log_det_per_member": log_det / matrix.shape[0],
        **{f"vendi_{order:g}": vendi_score(matrix, order) for order in VENDI_ORDERS},
        "effective_rank": effective_rank(embeddings),
        "mean_distance": mean_distance(embeddings),
        "min_distance": min_distance(embeddings),
        "similarities": _of_pairs(matrix),
        "distances": _of_pairs(distances(embeddings)),
    }


def _square(K: ArrayLike) -> Float[Array, "M M"]:
    matrix = _checks.as_float_array("K", K, ndim=2, shape="(M, M)")
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"K: expected a square matrix of shape (M, M), got shape {matrix.shape}")
    return matrix


def _effective_number(values: Float[Array, "M"], order: float) -> Scalar:
    # Rounding turns zero eigenvalues into values of up to M eps of the largest. They would count at low orders:
    # even 1e-8 to the power 0.1 is 0.16.
    noise = values.shape[0] * jnp.finfo(values.dtype).eps * jnp.max(values)
    support = values > noise
    safe = jnp.where(support, values, 1.0)
    p = safe / jnp.sum(jnp.where(support, values, 0.0))
    if order == float("inf"):
        return 1.0 / jnp.max(jnp.where(support, p, 0.0))
    if order == 1.0:
        return jnp.exp(-jnp.sum(jnp.where(support, p * jnp.log(p), 0.0)))
    log_p = jnp.log(p)
    if abs(order - 1.0) < 0.5:  # sum_i p_i^order = 1 + sum_i p_i (p_i^(order - 1) - 1): no cancellation near 1
        above = jnp.sum(jnp.where(support, p * jnp.expm1((order - 1.0) * log_p), 0.0))
        return jnp.exp(jnp.log1p(above) / (1.0 - order))
    return jnp.exp(jax.nn.logsumexp(jnp.where(support, order * log_p, -jnp.inf)) / (1.0 - order))


@_eager.compiled
def _of_pairs(matrix: Float[Array, "M M"]) -> Float[Array, "pairs"]:
    return matrix[jnp.triu_indices(matrix.shape[0], 1)]
