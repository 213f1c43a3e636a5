"""Functions that are fast when they are called one at a time, with arrays from NumPy or JAX.

JAX would dispatch each operation by itself, and compile each loop anew at every call. So a public function checks its
arguments, and then calls a function that is compiled once for all calls with the same shapes.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R], *, static: str | None = None) -> Callable[P, R]:
    """The function, compiled when it is called, differentiated or mapped directly.

    Inside a larger program that is being compiled it is called as it is. So that program does not change.
    """
    program = jax.jit(function, static_argnames=static)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        part_of_a_program = isinstance(jnp.add(0, 0), jax.core.Tracer)  # tells whether operations run now
        return function(*args, **kwargs) if part_of_a_program else program(*args, **kwargs)

    return call
