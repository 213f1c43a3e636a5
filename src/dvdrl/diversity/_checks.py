"""Checks of arguments: shapes always, values if they are known (not while JAX traces)."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array


def as_float_array(name: str, value: ArrayLike, *, ndim: int, shape: str, batched: bool = False) -> Array:
    """`value` as a floating-point array with `ndim` axes (at least `ndim` if `batched`), none of them empty.

    Raises:
        TypeError: not an array of real numbers.
        ValueError: another number of axes, an empty axis, or a value that is NaN or infinite.
    """
    numpy = jnp if isinstance(value, jax.Array) else np  # values from outside JAX are checked before they enter
    try:
        array = numpy.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: expected an array of shape {shape}, got {type(value).__name__}") from error
    if not jnp.issubdtype(array.dtype, jnp.number) or jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise TypeError(f"{name}: expected an array of real numbers, got dtype {array.dtype}")
    if array.ndim < ndim or (array.ndim > ndim and not batched) or 0 in array.shape:
        raise ValueError(f"{name}: expected a non-empty array of shape {shape}, got shape {array.shape}")
    if is_concrete(array) and not _finite(array):
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(np.asarray(array)))[0])
        raise ValueError(f"{name}: expected finite numbers, got {np.asarray(array)[first]} at index {first}")
    floating = jnp.issubdtype(array.dtype, jnp.floating)
    return jnp.asarray(array, None if floating else jnp.result_type(float))


def _finite(array: Array | np.ndarray) -> bool:
    if isinstance(array, np.ndarray):
        return bool(np.isfinite(array).all())
    with jax.ensure_compile_time_eval():  # arrays that a traced function closes over are known too
        return bool(jnp.isfinite(array).all())


def positive(name: str, value: ArrayLike) -> ArrayLike:
    """`value` unchanged, if it is a positive, finite number or is being traced."""
    if is_concrete(value):
        number = np.asarray(value)
        if number.ndim != 0 or not np.isfinite(number) or number <= 0:
            raise ValueError(f"{name}: expected a positive, finite number, got {value}")
    return value


def is_concrete(value: ArrayLike) -> bool:
    """Whether the value is known now, not traced by `jit`, `vmap` or `grad`."""
    return not isinstance(value, jax.core.Tracer)
