"""The six kernels of the paper's kernel table (section 5, "Choice of kernel"), and Gram matrices.

A kernel is a function of two vectors with k(x, x) = 1. Distances are per dimension,

    d(x, y)^2 = mean_i (x_i - y_i)^2,

so that one length scale l serves embeddings of any dimension. For example, the squared exponential kernel is
exp(-d^2 / (2 l^2)): the paper's equation with ||x - y||^2 divided by the dimension.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from dvdrl.diversity import _checks, _eager

Vector = Float[Array, "l"]
Scalar = Float[Array, ""]
Kernel = Callable[[Vector, Vector], Scalar]

# Beyond this many length scales every kernel is 0 in single precision. Differences saturate there, so that the sum of
# their squares stays finite. Coordinates saturate near the largest number, so that differences stay finite.
_FAR, _LARGEST = 1e15, 1e38


def _difference(x: Vector, y: Vector, length_scale: ArrayLike) -> Vector:
    x, y = (jnp.clip(each / length_scale, -_LARGEST, _LARGEST) for each in (x, y))
    return jnp.clip(x - y, -_FAR, _FAR)


def _squared_distance(x: Vector, y: Vector, length_scale: ArrayLike) -> Scalar:
    return jnp.mean(jnp.square(_difference(x, y, length_scale)))


def _distance(x: Vector, y: Vector, length_scale: ArrayLike = 1.0) -> Scalar:
    squared = _squared_distance(x, y, length_scale)
    apart = squared > 0  # at 0 the root has no gradient; 0 is a subgradient of the distance
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, squared, 1.0)), 0.0)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class _Scaled:
    """A kernel of this module: a formula with its scales. Programs are compiled once for each formula and number.

    A scale that is an array, such as the median heuristic's, is an input of the program instead.
    """

    formula: Callable[..., Scalar]
    scales: tuple[ArrayLike, ...]

    def __call__(self, x: Vector, y: Vector) -> Scalar:
        return self.formula(x, y, *self.scales)

    def __repr__(self) -> str:
        return f"{self.formula.__name__.strip('_')}({', '.join(map(str, self.scales))})"

    def tree_flatten(self) -> tuple[list[ArrayLike], tuple[Any, ...]]:
        fixed = tuple(scale if type(scale) in (int, float) else None for scale in self.scales)
        return [scale for scale, known in zip(self.scales, fixed, strict=True) if known is None], (self.formula, fixed)

    @classmethod
    def tree_unflatten(cls, fixed: tuple[Any, ...], arrays: list[ArrayLike]) -> "_Scaled":
        formula, scales = fixed
        rest = iter(arrays)
        return cls(formula, tuple(next(rest) if scale is None else scale for scale in scales))


def squared_exponential(length_scale: ArrayLike = 1.0) -> Kernel:
    """k(x, y) = exp(-d^2 / (2 l^2)), the paper's kernel."""
    return _Scaled(_squared_exponential, (_checks.positive("length_scale", length_scale),))


def _squared_exponential(x: Vector, y: Vector, length_scale: ArrayLike) -> Scalar:
    return jnp.exp(-0.5 * _squared_distance(x, y, length_scale))


def exponential(length_scale: ArrayLike = 1.0) -> Kernel:
    """k(x, y) = exp(-d / l), the Matern kernel of order 1/2."""
    return _Scaled(_exponential, (_checks.positive("length_scale", length_scale),))


def _exponential(x: Vector, y: Vector, length_scale: ArrayLike) -> Scalar:
    return jnp.exp(-_distance(x, y, length_scale))


def linear(length_scale: ArrayLike = 1.0) -> Kernel:
    """k(x, y) = <x, y> / (||x|| ||y||), the linear kernel normalised to k(x, x) = 1.

    It does not depend on scale, so `length_scale` has no effect; it is accepted because all kernels have it. A vector
    without a direction (zero, or below the square root of the smallest number) has similarity 1 to other such vectors
    and 0 to all others.
    """
    _checks.positive("length_scale", length_scale)
    return _Scaled(_linear, ())


def _linear(x: Vector, y: Vector) -> Scalar:
    (x_unit, x_zero), (y_unit, y_zero) = _direction(x), _direction(y)
    return jnp.where(x_zero & y_zero, 1.0, jnp.sum(x_unit * y_unit))


def _direction(x: Vector) -> tuple[Vector, Bool[Array, ""]]:
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(x)))  # keeps squares finite; the direction does not depend on it
    zero = largest <= jnp.sqrt(jnp.finfo(x.dtype).tiny)
    scaled = x / jnp.where(zero, 1.0, largest)
    return jnp.where(zero, 0.0, scaled / jnp.sqrt(jnp.where(zero, 1.0, jnp.sum(jnp.square(scaled))))), zero


def rational_quadratic(length_scale: ArrayLike = 1.0, alpha: float = 1.0) -> Kernel:
    """k(x, y) = (1 + d^2 / (2 alpha l^2))^(-alpha), a mixture of squared exponentials of many length scales."""
    scales = _checks.positive("length_scale", length_scale), _checks.positive("alpha", alpha)
    return _Scaled(_rational_quadratic, scales)


def _rational_quadratic(x: Vector, y: Vector, length_scale: ArrayLike, alpha: float) -> Scalar:
    return (1.0 + _squared_distance(x, y, length_scale) / (2.0 * alpha)) ** -alpha


def matern32(length_scale: ArrayLike = 1.0) -> Kernel:
    """k(x, y) = (1 + r) exp(-r) with r = sqrt(3) d / l."""
    return _Scaled(_matern32, (_checks.positive("length_scale", length_scale),))


def _matern32(x: Vector, y: Vector, length_scale: ArrayLike) -> Scalar:
    r = jnp.sqrt(3.0) * _distance(x, y, length_scale)
    return (1.0 + r) * jnp.exp(-r)


def matern52(length_scale: ArrayLike = 1.0) -> Kernel:
    """k(x, y) = (1 + r + r^2 / 3) exp(-r) with r = sqrt(5) d / l."""
    return _Scaled(_matern52, (_checks.positive("length_scale", length_scale),))


def _matern52(x: Vector, y: Vector, length_scale: ArrayLike) -> Scalar:
    r = jnp.sqrt(5.0) * _distance(x, y, length_scale)
    return (1.0 + r + r**2 / 3.0) * jnp.exp(-r)


class _Kernels(dict[str, Callable[..., Kernel]]):
    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"kernel: expected one of {', '.join(self)}; got {name!r}")


KERNELS = _Kernels(
    {
        "squared-exponential": squared_exponential,
        "exponential": exponential,
        "linear": linear,
        "rational-quadratic": rational_quadratic,
        "matern32": matern32,
        "matern52": matern52,
    }
)
"""The paper's kernels by name. Each entry makes a kernel from a `length_scale`."""


def gram(kernel: Kernel, embeddings: ArrayLike, others: ArrayLike | None = None) -> Float[Array, "M N"]:
    """The matrix of k(x_i, x_j) over all pairs of members: (M, l) -> (M, M).

    A kernel of your own may be any function, whose results need not be the same at the next call. So a program is
    compiled at every call. Call `gram` inside `jit` if that takes too long.

    Args:
        kernel: a kernel of `KERNELS`, or any function of two vectors that JAX can trace.
        embeddings: one row for each member.
        others: k(x_i, y_j) of each member with each of these instead: (M, l), (N, l) -> (M, N).
    """
    if not callable(kernel):
        raise TypeError(
            f"kernel: expected a function of two vectors, such as KERNELS['squared-exponential'](), got {kernel!r}"
        )
    return _pairwise(kernel, embeddings, others)


def distances(embeddings: ArrayLike, others: ArrayLike | None = None) -> Float[Array, "M N"]:
    """Distances per dimension (root mean square) between all pairs of members: (M, l) -> (M, M).

    others: from each member to each of these instead: (M, l), (N, l) -> (M, N).
    """
    return _pairwise(_DISTANCE, embeddings, others)


def _pairwise(function: Kernel, embeddings: ArrayLike, others: ArrayLike | None) -> Float[Array, "M N"]:
    x = _checks.as_float_array("embeddings", embeddings, ndim=2, shape="(M, l)")
    if others is not None:
        y = _checks.as_float_array("others", others, ndim=2, shape="(N, l)")
        if x.shape[1] != y.shape[1]:
            raise ValueError(f"others: expected rows of {x.shape[1]} numbers, as embeddings has, got {y.shape[1]}")
    else:
        y = None
    return _compiled_pairs(function, x, y) if isinstance(function, _Scaled) else _pairs(function, x, y)


def _pairs(function: Kernel, x: Float[Array, "M l"], y: Float[Array, "N l"] | None = None) -> Float[Array, "M N"]:
    if y is not None:
        return _all_pairs(function, x, y)
    return _each_pair_once(function, x) if jax.default_backend() == "cpu" else _all_pairs(function, x, x)


_compiled_pairs = _eager.compiled(_pairs)
_DISTANCE = _Scaled(_distance, ())


def _each_pair_once(function: Kernel, x: Float[Array, "M l"]) -> Float[Array, "M M"]:
    """Each unordered pair once, for CPUs: members stand in a ring, and each meets the one 0, 1, .., M / 2 places ahead.

    Offsets are processed one at a time, so that each fits into the cache. The gradient computes the intermediate values
    again, because storing them would write all of them to memory.
    """
    M = x.shape[0]
    ring = jnp.concatenate([x, x])
    following = jax.checkpoint(lambda by: jax.vmap(function)(x, jax.lax.dynamic_slice_in_dim(ring, by, M)))
    # [by, i] belongs to members i and i + by.
    values: Float[Array, "n M"] = jax.lax.map(following, jnp.arange(M // 2 + 1))
    i, j = np.indices((M, M))
    forward, backward = (j - i) % M, (i - j) % M
    # Opposite members meet twice. Use one of the two values for both, for exact symmetry.
    first = np.where(forward == backward, np.minimum(i, j), np.where(forward < backward, i, j))
    return values[np.minimum(forward, backward), first]


def _all_pairs(function: Kernel, x: Float[Array, "M l"], y: Float[Array, "N l"]) -> Float[Array, "M N"]:
    """All pairs by broadcasting, for accelerators: the work is small there, and each gather or scatter is a kernel."""
    return jax.vmap(jax.vmap(function, in_axes=(None, 0)), in_axes=(0, None))(x, y)


def median_length_scale(embeddings: ArrayLike) -> Scalar:
    """The median heuristic: the median distance between two members; 1 if that is 0 or there is one member.

    Differentiation treats it as a constant. A length scale that grows with the distances would cancel the gain in the
    determinant from spreading the population.
    """
    return _median_distance(_checks.as_float_array("embeddings", embeddings, ndim=2, shape="(M, l)"))


@_eager.compiled
def _median_distance(x: Float[Array, "M l"]) -> Scalar:
    pairwise = jax.lax.stop_gradient(_pairs(_DISTANCE, x))
    M = x.shape[0]
    if M == 1:
        return jnp.ones((), pairwise.dtype)
    median = jnp.median(pairwise[jnp.triu_indices(M, 1)])
    return jnp.where(median > 0, median, 1.0)
