"""The sources of random initial states: NumPy generators here, a JAX key in `key_draws`.

A task defines its reset distribution once, in terms of `Draws`. On the host every simulation has its own generator and
draws in Gymnasium's order, so the same seed gives the same initial state.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray


class Draws(Protocol):
    """Random numbers for n episodes that begin at the same time."""

    def uniform(self, low: float, high: float, size: int) -> Float[Any, "n size"]:
        """Draw from [low, high)."""
        ...

    def normal(self, size: int) -> Float[Any, "n size"]:
        """Draw from the standard normal distribution."""
        ...

    def uniform_until(
        self, low: Sequence[float], high: Sequence[float], accept: Callable[[Any], Any]
    ) -> Float[Any, "n size"]:
        """Draw from the box [low, high) until `accept`, a function (n, size) -> (n,), is true."""
        ...


class GeneratorDraws:
    """One NumPy generator per episode."""

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
