"""Where a task's random initial states come from: NumPy generators on the host, a JAX key on a device.

A reset distribution is written once against `Draws`. On the host every simulation has its own generator and
is asked in the order that Gymnasium asks, so the same seed gives the same initial state.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray


class Draws(Protocol):
    """Random numbers for n episodes that begin together."""

    def uniform(self, low: float, high: float, size: int) -> Float[Any, "n size"]:
        """Draw from [low, high)."""
        ...

    def normal(self, size: int) -> Float[Any, "n size"]:
        """Draw from the standard normal distribution."""
        ...

    def uniform_until(
        self, low: Sequence[float], high: Sequence[float], accept: Callable[[Any], Any]
    ) -> Float[Any, "n size"]:
        """Draw from the box [low, high) until accept, a function (n, size) -> (n,), says yes."""
        ...


class GeneratorDraws:
    """One NumPy generator an episode."""

    def __init__(self, generators: Sequence[np.random.Generator]):
        self._generators = generators

    def uniform(self, low: float, high: float, size: int) -> NDArray[np.float64]:
        """See Draws."""
        return np.stack([generator.uniform(low, high, size) for generator in self._generators])

    def normal(self, size: int) -> NDArray[np.float64]:
        """See Draws."""
        return np.stack([generator.standard_normal(size) for generator in self._generators])

    def uniform_until(
        self,
        low: Sequence[float],
        high: Sequence[float],
        accept: Callable[[Any], Any],
    ) -> NDArray[np.float64]:
        """See Draws."""
        drawn = np.stack([generator.uniform(low, high) for generator in self._generators])
        while (again := np.flatnonzero(~accept(drawn))).size:
            drawn[again] = [self._generators[i].uniform(low, high) for i in again.tolist()]
        return drawn


class KeyDraws:
    """One JAX key for all n episodes; for use inside a jitted function."""

    def __init__(self, key: Any, n: int):
        self._key, self._n = key, n

    def _next_key(self) -> Any:
        import jax

        self._key, key = jax.random.split(self._key)
        return key

    def uniform(self, low: float, high: float, size: int) -> Any:
        """See Draws."""
        import jax

        return jax.random.uniform(self._next_key(), (self._n, size), minval=low, maxval=high)

    def normal(self, size: int) -> Any:
        """See Draws."""
        import jax

        return jax.random.normal(self._next_key(), (self._n, size))

    def uniform_until(self, low: Sequence[float], high: Sequence[float], accept: Callable[[Any], Any]) -> Any:
        """See Draws."""
        import jax
        import jax.numpy as jnp

        def draw(key: Any) -> Any:
            shape, box = (self._n, len(low)), (jnp.asarray(low), jnp.asarray(high))
            return jax.random.uniform(key, shape, minval=box[0], maxval=box[1])

        def again(carry: Any) -> Any:
            key, drawn = carry
            key, subkey = jax.random.split(key)
            return key, jnp.where(accept(drawn)[:, None], drawn, draw(subkey))

        first = (self._next_key(), draw(self._next_key()))
        return jax.lax.while_loop(lambda carry: ~jnp.all(accept(carry[1])), again, first)[1]
