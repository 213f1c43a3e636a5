"""The determinant of a Gram matrix: the paper's population diversity (definition 3.2), and its logarithm.

A Gram matrix of members that coincide is singular, and one of members that nearly coincide is not even positive
semidefinite once rounded. Here, and nowhere else, it is regularised: every off-diagonal entry is shrunk by the factor
1 - shrinkage. That keeps the diagonal, hence det <= 1, and lifts every eigenvalue to at least the shrinkage.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from dvdrl.diversity import _checks

Scalars = Float[Array, "..."]


def least_shrinkage(population: int, dtype: DTypeLike = jnp.float32) -> float:
    """The smallest shrinkage with which the Cholesky factor of any Gram matrix of this size exists.

    A unit-diagonal matrix has a computed factor if its least eigenvalue exceeds M (M + 1) u, u being the unit round-off
    (Higham, Accuracy and Stability of Numerical Algorithms, theorem 10.7). Entries wrong by c u each move eigenvalues
    by at most M c u. Four times that bound covers both for c up to 3 (M + 1).
    """
    return 2 * population * (population + 1) * float(jnp.finfo(dtype).eps)


def log_determinant(K: ArrayLike, *, shrinkage: float | None = None) -> Scalars:
    """Log determinant of Gram matrices: (..., M, M) -> (...). Finite, with finite gradient, for any of them.

    Its gradient with respect to K is +K^-1 (the minus sign in the paper's lemma 4.1 belongs to log det K^-1), at most
    1 / shrinkage in norm. Members that coincide give about log(2 shrinkage) or less, never minus infinity.

    Args:
        K: symmetric, positive semidefinite up to rounding, with a positive diagonal; as `gram` returns it.
        shrinkage: by how much off-diagonal entries are shrunk; default and least value: `least_shrinkage`.

    Raises:
        ValueError: K is not square, not finite, not symmetric or not positive semidefinite, or the shrinkage is not
            in [0, 1]. Values are checked unless they are being traced.
    """
    matrix = _checks.as_float_array("K", K, ndim=2, shape="(..., M, M)", batched=True)
    M = matrix.shape[-1]
    if matrix.shape[-2] != M:
        raise ValueError(f"K: expected square matrices of shape (..., M, M), got shape {matrix.shape}")
    amount = _checked_shrinkage(shrinkage, M, matrix.dtype)
    result = _log_determinant_of_definite(jnp.where(jnp.eye(M, dtype=bool), matrix, (1 - amount) * matrix))
    if _checks.is_concrete(result):
        _check_gram_matrix(np.asarray(matrix), np.asarray(result))
    return result


def determinant(K: ArrayLike, *, shrinkage: float | None = None) -> Scalars:
    """Determinant of Gram matrices, from 0 to 1: (..., M, M) -> (...). The paper's Div; see `log_determinant`."""
    return jnp.exp(log_determinant(K, shrinkage=shrinkage))


@jax.custom_jvp
def _log_determinant_of_definite(K: Float[Array, "... M M"]) -> Scalars:
    return _log_determinant_and_inverse(K)[0]


@_log_determinant_of_definite.defjvp
def _log_determinant_jvp(
    primals: tuple[Float[Array, "... M M"]], tangents: tuple[Float[Array, "... M M"]]
) -> tuple[Scalars, Scalars]:
    (K,), (tangent,) = primals, tangents
    log_determinants, inverse = _log_determinant_and_inverse(K)
    # Lemma 4.1 with its sign corrected: d log det K = + trace(K^-1 dK), and K^-1 is symmetric.
    return log_determinants, jnp.sum(inverse * tangent, axis=(-2, -1))


def _log_determinant_and_inverse(K: Float[Array, "... M M"]) -> tuple[Scalars, Float[Array, "... M M"]]:
    if K.shape[-1] <= _FEW and jax.default_backend() != "cpu":
        return _by_entries(K)
    factor = jnp.linalg.cholesky(K)
    identity = jnp.broadcast_to(jnp.eye(K.shape[-1], dtype=K.dtype), K.shape)
    diagonal = jnp.diagonal(factor, axis1=-2, axis2=-1)
    return 2 * jnp.sum(jnp.log(diagonal), axis=-1), cho_solve((factor, True), identity)


_FEW = 8
"""So many members, and an accelerator's library for matrices takes longer than the arithmetic written out."""


def _by_entries(K: Float[Array, "... M M"]) -> tuple[Scalars, Float[Array, "... M M"]]:
    """Cholesky's algorithm entry by entry, which compiles to few kernels where that of a library is a dozen."""
    M = K.shape[-1]
    L: dict[tuple[int, int], Scalars] = {}
    pivots, inverse_roots = [], []
    for j in range(M):
        pivots.append(K[..., j, j] - sum(L[j, k] ** 2 for k in range(j)))
        inverse_roots.append(jax.lax.rsqrt(pivots[j]))
        for i in range(j + 1, M):
            L[i, j] = (K[..., i, j] - sum(L[i, k] * L[j, k] for k in range(j))) * inverse_roots[j]
    V: dict[tuple[int, int], Scalars] = {}  # L^-1
    for j in range(M):
        V[j, j] = inverse_roots[j]
        for i in range(j + 1, M):
            V[i, j] = -inverse_roots[i] * sum(L[i, k] * V[k, j] for k in range(j, i))
    rows = [[sum(V[k, i] * V[k, j] for k in range(max(i, j), M)) for j in range(M)] for i in range(M)]
    inverse = jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
    return jnp.sum(jnp.log(jnp.stack(pivots)), axis=0), inverse


def _checked_shrinkage(shrinkage: float | None, population: int, dtype: DTypeLike) -> float:
    if shrinkage is not None and not 0 <= shrinkage <= 1:
        raise ValueError(f"shrinkage: expected a number from 0 to 1, got {shrinkage}")
    least = least_shrinkage(population, dtype)
    if least > 1:
        raise ValueError(f"K: {dtype} is too coarse for the determinant of {population} members; use a wider type")
    return max(least, shrinkage or 0.0)


def _check_gram_matrix(K: np.ndarray, log_determinants: np.ndarray) -> None:
    if not np.allclose(K, np.swapaxes(K, -1, -2), rtol=1e-4, atol=1e-6):
        raise ValueError("K: expected symmetric matrices, got one that differs from its transpose")
    if not np.isfinite(log_determinants).all():
        raise ValueError("K: expected positive semidefinite matrices, got one with a negative eigenvalue")
