"""What passes between algorithms and the rollouts that they ask for. Neither side knows the other."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from jaxtyping import Float, Int, UInt32

from dvdrl.policies import Agents, Moments


class Rollouts(NamedTuple):
    """n episodes to be run, each with a policy of its own; arrays of NumPy or JAX."""

    member: Int[Any, "n"]
    """Of which member the policy is, or is a perturbation."""
    agents: Agents
    """What acts in each, (n, ...)."""
    start: UInt32[Any, "n"]
    """Seed of the initial state."""
    key: UInt32[Any, "n 2"]
    """Key data of everything else that is random in the episode."""


class Episodes(NamedTuple):
    """What n rollouts gave, in their order."""

    returns: Float[Any, "n"]
    lengths: Int[Any, "n"]
    moments: Moments
    """Of the observations that the policy acted on, (n, ...)."""
    states: Float[Any, "n obs"]
    """One of those observations, each equally likely."""
    modes: Mapping[str, Float[Any, "n"]] = {}
    """Where the task has several modes: what each of them, by itself, would have returned."""


Ask = Callable[[Any], Rollouts]
"""From the state of an algorithm, which no executor looks into, to the episodes of its next iteration."""


class Executor(Protocol):
    """Runs episodes: all at once, and so that an episode's result does not depend on what runs beside it."""

    simulation_seconds: float
    """Time spent inside the simulator so far."""

    def evaluate(self, ask: Ask, states: Sequence[Any]) -> list[Episodes]:
        """The episodes that each of the states asks for."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...
