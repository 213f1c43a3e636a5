"""The data exchanged between algorithms and the executors that run their rollouts. Neither side knows the other."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, Int, UInt32

from dvdrl.policies import Agents, Moments


class Rollouts(NamedTuple):
    """n episodes to run, each with a policy of its own; NumPy or JAX arrays."""

    member: Int[Any, "n"]
    """The member whose policy, or whose perturbed policy, acts in each episode."""
    agents: Agents
    """The agent that acts in each episode, (n, ...)."""
    start: UInt32[Any, "n"]
    """The seed of the initial state."""
    key: UInt32[Any, "n 2"]
    """The key data for all other randomness in the episode."""


class Episodes(NamedTuple):
    """The results of n rollouts, in the same order."""

    returns: Float[Any, "n"]
    lengths: Int[Any, "n"]
    moments: Moments
    """The moments of the observations that the policy acted on, (n, ...)."""
    states: Float[Any, "n obs"]
    """One of those observations; each is equally likely."""
    modes: Mapping[str, Float[Any, "n"]] = {}
    """For tasks with several modes: the return that each mode would have given by itself."""
    measures: Float[Any, "n D"] = np.zeros((0, 0), np.float32)
    """What the user measures of each episode (`rollouts.measures`); executors without measures give (n, 0)."""


Ask = Callable[[Any], Rollouts]
"""The state of an algorithm, which no executor looks into -> the episodes of its next iteration."""


class Executor(Protocol):
    """Runs many episodes at once. The result of an episode does not depend on the episodes beside it."""

    simulation_seconds: float
    """Time spent inside the simulator so far."""

    def evaluate(self, ask: Ask, states: Sequence[Any]) -> list[Episodes]:
        """Run the episodes that each state asks for."""
        ...

    def close(self) -> None:
        """Free its resources."""
        ...
