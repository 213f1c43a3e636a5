"""The determinant ordered by quality: det K as a product of one share for each member.

Taken from the fittest member to the least fit, each adds the factor v_m = K_mm - k_m' K_fitter^-1 k_m to the
determinant: the variance that a Gaussian process with this kernel has left at member m once it knows the fitter ones
(the chain rule of determinants, a Schur complement at a time). A worse copy of somebody has a share near 0 and lowers
nobody's but its own; the fittest member never pays for diversity.
"""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dvdrl.diversity import _checks, _eager
from dvdrl.diversity.determinant import checked, definite, regularised


def ordered_shares(K: ArrayLike, quality: ArrayLike, *, shrinkage: float | None = None) -> Float[Array, "... M"]:
    """The share v_m of every member in the determinant: (..., M, M), (..., M) -> (..., M).

    Their product is `determinant(K)`, whatever the qualities. The fittest member has K_mm. Of members that are equally
    fit, the one with the lower index counts as the fitter. Shares are regularised as determinants are, so a worse copy
    has about twice the shrinkage, never 0, and the gradient with respect to K is finite. The order is a constant to
    differentiation.

    Args:
        K: symmetric, positive semidefinite up to rounding, with a positive diagonal; as `gram` returns it.
        quality: how good each member is; only the order counts. Minus infinity is allowed, and stands for the worst.
        shrinkage: as in `log_determinant`.

    Raises:
        ValueError: K is not what `log_determinant` takes, or quality is NaN or does not have one number a member.
    """
    matrix, kept = checked(K, shrinkage)
    M = matrix.shape[-1]
    fitness = jnp.asarray(quality)
    if fitness.shape[-1:] != (M,):
        raise ValueError(f"quality: expected shape (..., {M}), one number a member of K, got shape {fitness.shape}")
    if _checks.is_concrete(fitness) and np.isnan(np.asarray(fitness)).any():
        raise ValueError(f"quality: expected numbers, got {np.asarray(fitness)}")
    return definite(_shares(matrix, kept, fitness))


@_eager.compiled
def _shares(K: Float[Array, "... M M"], kept: ArrayLike, fitness: Float[Array, "... M"]) -> Float[Array, "... M"]:
    matrix, M = regularised(K, kept), K.shape[-1]
    order = jnp.argsort(-fitness, axis=-1, stable=True)
    batch = jnp.broadcast_shapes(matrix.shape[:-2], fitness.shape[:-1])
    order = jnp.broadcast_to(order, (*batch, M))
    by_rows = jnp.take_along_axis(jnp.broadcast_to(matrix, (*batch, M, M)), order[..., :, None], axis=-2)
    ordered = jnp.take_along_axis(by_rows, order[..., None, :], axis=-1)
    # A pivot of Cholesky's algorithm is the square root of what is left of its row given the rows before.
    pivots = jnp.square(jnp.diagonal(jnp.linalg.cholesky(ordered), axis1=-2, axis2=-1))
    return jnp.take_along_axis(pivots, jnp.argsort(order, axis=-1), axis=-1)
