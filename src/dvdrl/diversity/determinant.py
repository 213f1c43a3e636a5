"""The determinant of a Gram matrix: the paper's population diversity (definition 3.2), and its logarithm.

The Gram matrix is singular if members coincide. If they almost coincide, rounding can even make an eigenvalue negative.
This module, and no other, regularises it: every off-diagonal entry is multiplied by 1 - shrinkage. The diagonal stays,
so det <= 1 holds, and every eigenvalue is at least the shrinkage.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from dvdrl.diversity import _checks, _eager

Scalars = Float[Array, "..."]


def least_shrinkage(population: int, dtype: DTypeLike = jnp.float32) -> float:
    """The smallest shrinkage that guarantees a Cholesky factor for any Gram matrix of this size.

    Let u be the unit round-off. For a matrix with unit diagonal, Cholesky's algorithm succeeds if the least eigenvalue
    exceeds M (M + 1) u (Higham, Accuracy and Stability of Numerical Algorithms, theorem 10.7). If each entry has an
    error of c u, eigenvalues move by at most M c u. Four times Higham's bound covers both for c up to 3 (M + 1).
    """
    return 2 * population * (population + 1) * float(jnp.finfo(dtype).eps)


def log_determinant(K: ArrayLike, *, shrinkage: float | None = None) -> Scalars:
    """Log determinant of Gram matrices: (..., M, M) -> (...). The value and its gradient are always finite.

    The gradient with respect to K is +K^-1, with a norm of at most 1 / shrinkage. (The minus sign in the paper's lemma
    4.1 would be right for log det K^-1.) If members coincide, the value is about log(2 shrinkage) or less, never minus
    infinity.

    Args:
        K: symmetric, positive semidefinite up to rounding, with a positive diagonal, as `gram` returns it.
        shrinkage: off-diagonal entries are multiplied by 1 - shrinkage; default and minimum: `least_shrinkage`.

    Raises:
        ValueError: K is not square, not finite, not symmetric or not positive semidefinite, or the shrinkage is not
            in [0, 1]. Values are not checked while they are being traced.
    """
    return definite(log_determinant_of(*checked(K, shrinkage)))


def checked(K: ArrayLike, shrinkage: float | None = None) -> tuple[Float[Array, "... M M"], float]:
    """Matrices with everything but positive semidefiniteness checked, and what is kept of off-diagonal entries."""
    matrix = _checks.as_float_array("K", K, ndim=2, shape="(..., M, M)", batched=True)
    M = matrix.shape[-1]
    if matrix.shape[-2] != M:
        raise ValueError(f"K: expected square matrices of shape (..., M, M), got shape {matrix.shape}")
    amount = _checked_shrinkage(shrinkage, M, matrix.dtype)
    if _checks.is_concrete(matrix):
        values = np.asarray(matrix)
        if not np.allclose(values, np.swapaxes(values, -1, -2), rtol=1e-4, atol=1e-6):
            raise ValueError("K: expected symmetric matrices, got one that differs from its transpose")
    return matrix, 1 - amount


def regularised(K: Float[Array, "... M M"], kept: ArrayLike) -> Float[Array, "... M M"]:
    """Gram matrices whose Cholesky factor exists."""
    return jnp.where(jnp.eye(K.shape[-1], dtype=bool), K, kept * K)


def definite(result: Scalars) -> Scalars:
    """What was computed from Cholesky factors, if they exist."""
    if _checks.is_concrete(result) and not np.isfinite(np.asarray(result)).all():
        raise ValueError("K: expected positive semidefinite matrices, got one with a negative eigenvalue")
    return result


@_eager.compiled
def log_determinant_of(K: Float[Array, "... M M"], kept: ArrayLike) -> Scalars:
    """The log determinant of matrices that `checked` returned."""
    return _log_determinant_and_inverse(regularised(K, kept))[0]


def determinant(K: ArrayLike, *, shrinkage: float | None = None) -> Scalars:
    """Determinant of Gram matrices, from 0 to 1: (..., M, M) -> (...). The paper's Div; see `log_determinant`."""
    return jnp.exp(log_determinant(K, shrinkage=shrinkage))


@jax.custom_jvp
def _log_determinant_and_inverse(K: Float[Array, "... M M"]) -> tuple[Scalars, Float[Array, "... M M"]]:
    if jax.default_backend() == "gpu" and K.shape[-1] <= _MOST_IN_A_KERNEL and K.dtype == jnp.float32:
        result: tuple[Scalars, Float[Array, "... M M"]] = jax.lax.platform_dependent(
            K, cuda=_by_kernel, default=_by_library
        )
        return result
    return _by_library(K)


@_log_determinant_and_inverse.defjvp
def _log_determinant_and_inverse_jvp(
    primals: tuple[Float[Array, "... M M"]], tangents: tuple[Float[Array, "... M M"]]
) -> tuple[tuple[Scalars, Float[Array, "... M M"]], tuple[Scalars, Float[Array, "... M M"]]]:
    (K,), (tangent,) = primals, tangents
    log_determinants, inverse = _log_determinant_and_inverse(K)
    # Lemma 4.1 with its sign corrected: d log det K = + trace(K^-1 dK), and K^-1 is symmetric.
    along = jnp.sum(inverse * tangent, axis=(-2, -1))
    return (log_determinants, inverse), (along, -_product(_product(inverse, tangent), inverse))


_product = functools.partial(jnp.matmul, precision="highest")


def _by_library(K: Float[Array, "... M M"]) -> tuple[Scalars, Float[Array, "... M M"]]:
    M = K.shape[-1]
    factor = jnp.linalg.cholesky(K)
    # Compute the inverse in blocks of columns, one block at a time.
    width = min(M, max(1, _SINGLE_THREADED // M)) if jax.default_backend() == "cpu" else M
    num_blocks = -(-M // width)
    columns = jnp.moveaxis(jnp.eye(M, num_blocks * width, dtype=K.dtype).reshape(M, num_blocks, width), 1, 0)
    blocks = jax.lax.map(
        lambda block: cho_solve((factor, True), jnp.broadcast_to(block, (*K.shape[:-1], width))), columns
    )
    inverse = jnp.moveaxis(blocks, 0, -2).reshape(*K.shape[:-1], num_blocks * width)[..., :M]
    diagonal = jnp.diagonal(factor, axis1=-2, axis2=-1)
    return 2 * jnp.sum(jnp.log(diagonal), axis=-1), inverse


_SINGLE_THREADED = 1024
"""Largest number of right-hand values per solve. For more, OpenBLAS starts its threads. They then wait for the next
solve on cores that other work needs: on two cores, an update of TD3 with forty members takes half as long again."""


_MOST_IN_A_KERNEL = 64
"""The most members whose matrix fits into the registers of one block of threads."""


def _by_kernel(K: Float[Array, "... M M"], *, interpret: bool = False) -> tuple[Scalars, Float[Array, "... M M"]]:
    """The inverse in one GPU kernel; with `interpret`, step by step on any machine.

    A library launches a dozen kernels for little arithmetic. This kernel keeps the matrix in the registers of one
    block of threads. A whole update of TD3 with M = 20 takes 13 % less time (results/bench-td3/README.md).
    """
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    if K.ndim > 2:
        return jax.vmap(functools.partial(_by_kernel, interpret=interpret))(K)
    M = K.shape[-1]
    size = max(16, 1 << (M - 1).bit_length())  # the sides of a block are powers of two
    log_determinant_, inverse = pallas.pallas_call(
        functools.partial(_gauss_jordan, num_steps=(M + 1) // 2),
        out_shape=(jax.ShapeDtypeStruct((1,), K.dtype), jax.ShapeDtypeStruct((size, size), K.dtype)),
        compiler_params=triton.CompilerParams(num_warps=1 if size == 16 else 4),
        interpret=interpret,
    )(jnp.eye(size, dtype=K.dtype).at[:M, :M].set(K))
    return log_determinant_[0], inverse[:M, :M]


def _gauss_jordan(matrix: Any, log_determinant_: Any, inverse: Any, *, num_steps: int) -> None:
    """Gauss-Jordan elimination without pivot search, which definite matrices do not need.

    Let p = A[k, k], r = A[k, :] and c = A[:, k]. Pivot k turns A into A - u v / p, where u is c with p - 1 at k, and v
    is r with p + 1 at k. The result has 1 / p at k, r / p in the rest of the row, -c / p in the rest of the column, and
    the Schur complement elsewhere, as in Cholesky's algorithm. c equals r, except for the sign of earlier pivots. Each
    step does two pivots, because reading rows takes most of the time.
    """
    (size, _), dtype = matrix.shape, matrix.dtype
    index = jax.lax.broadcasted_iota(jnp.int32, (size,), 0)
    row = jax.lax.broadcasted_iota(jnp.int32, (size, size), 0)

    def change(r: Array, k: Array, p: Array) -> tuple[Array, Array]:
        u = jnp.where(index == k, p - 1, jnp.where(index < k, -r, r))
        return u, jnp.where(index == k, p + 1, r) / p

    def step(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        A, log_det = carry
        k, m = 2 * i, 2 * i + 1
        r_k, r_m = (jnp.sum(jnp.where(row == j, A, 0), axis=0) for j in (k, m))
        p_k, p_km, p_m = (jnp.sum(jnp.where(index == j, r, 0)) for j, r in ((k, r_k), (m, r_k), (m, r_m)))
        u_k, v_k = change(r_k, k, p_k)
        p_m = p_m - p_km * p_km / p_k
        u_m, v_m = change(r_m - p_km * v_k, m, p_m)  # row m after pivot k
        return A - u_k[:, None] * v_k[None, :] - u_m[:, None] * v_m[None, :], log_det + jnp.log(p_k) + jnp.log(p_m)

    inverse[...], log_det = jax.lax.fori_loop(0, num_steps, step, (matrix[...], jnp.zeros((), dtype)))
    log_determinant_[...] = jnp.full((1,), log_det)


def _checked_shrinkage(shrinkage: float | None, population: int, dtype: DTypeLike) -> float:
    if shrinkage is not None and not 0 <= shrinkage <= 1:
        raise ValueError(f"shrinkage: expected a number from 0 to 1, got {shrinkage}")
    least = least_shrinkage(population, dtype)
    if least > 1:
        raise ValueError(f"K: {dtype} is too imprecise for the determinant of {population} members; use a wider type")
    return max(least, shrinkage or 0.0)
