"""Running the episodes that an algorithm asks for: `evaluate(rollouts) -> Episodes`."""

from dvdrl.rollouts.jax import Compiled
from dvdrl.rollouts.local import Local

__all__ = ["Compiled", "Local"]
