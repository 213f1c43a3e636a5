"""Draws from one JAX key for all episodes, for use inside a jitted function.

They are not in `draws`, so that tasks on the host run without importing JAX.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class KeyDraws:
    """One key for all n episodes; see `dvdrl.tasks.draws.Draws`."""

    def __init__(self, key: Array, n: int):
        self._key, self._n = key, n

    def _next_key(self) -> Array:
        keys = jax.random.split(self._key)
        self._key = keys[0]
        return keys[1]

    def uniform(self, low: float, high: float, size: int) -> Float[Array, "n size"]:
        """See Draws."""
        return jax.random.uniform(self._next_key(), (self._n, size), minval=low, maxval=high)

    def normal(self, size: int) -> Float[Array, "n size"]:
        """See Draws."""
        return jax.random.normal(self._next_key(), (self._n, size))

    def uniform_until(
        self, low: Sequence[float], high: Sequence[float], accept: Callable[[Any], Any]
    ) -> Float[Array, "n size"]:
        """See Draws."""

        def draw(key: Array) -> Array:
            shape = (self._n, len(low))
            return jax.random.uniform(key, shape, minval=jnp.asarray(low), maxval=jnp.asarray(high))

        def again(state: tuple[Array, Array]) -> tuple[Array, Array]:
            key, drawn = state
            key, subkey = jax.random.split(key)
            return key, jnp.where(accept(drawn)[:, None], drawn, draw(subkey))

        first = (self._next_key(), draw(self._next_key()))
        return jax.lax.while_loop(lambda state: ~jnp.all(accept(state[1])), again, first)[1]
