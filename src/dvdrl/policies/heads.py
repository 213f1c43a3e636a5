"""Action heads: an action head turns the output of a network into an action, and defines the behaviour of an output.

A new kind of action needs a new head: a frozen dataclass with the members of `Head`, registered by `register_head`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from gymnasium.spaces import Box, Space
from jaxtyping import Float
from numpy.typing import NDArray

from dvdrl.errors import DvdrlError
from dvdrl.policies.network import OutputActivation


class Operation(NamedTuple):
    """One ONNX operator, applied to the result of the one before it."""

    operator: str
    attributes: Mapping[str, Any] = {}
    inputs: Mapping[str, NDArray[Any]] = {}
    """Name in the graph -> value, for the operator's further inputs."""


class Head(Protocol):
    """Turns outputs into actions. Heads can be compared and hashed, because algorithms are compiled once for each."""

    kind: ClassVar[str]
    """The name of this kind of head in policies.json."""
    output_activation: ClassVar[OutputActivation]
    """The activation of the network's last layer."""

    @property
    def num_outputs(self) -> int:
        """Length of the network's output."""
        ...

    def actions(self, outputs: Float[Any, "... out"]) -> Any:
        """The actions for the environment."""
        ...

    def behaviour(self, outputs: Float[Any, "... out"]) -> Float[Any, "... b"]:
        """The numbers by which members are compared in one state (definition 3.1 of the paper)."""
        ...

    def differences(self, actions: Any, others: Any) -> NDArray[np.float64]:
        """Distances between actions, in units of half the range of possible actions."""
        ...

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """The arrays that `how_to_run` refers to by name."""
        ...

    @property
    def how_to_run(self) -> str:
        """One formula for the action, given the network's output x."""
        ...

    def operations(self) -> tuple[Operation, ...]:
        """The chain of standard ONNX operators that turns an output into an action."""
        ...

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Any]) -> Self:
        """The head that these `tensors` describe."""
        ...

    @classmethod
    def from_space(cls, space: Space[Any]) -> Self | None:
        """The head for the actions of this space; None if they are of another kind."""
        ...


HEADS: dict[str, type[Head]] = {}
"""Kind -> the class of its heads."""


def register_head(head: type[Head]) -> type[Head]:
    """Register a kind of head. Usable as a class decorator."""
    HEADS[head.kind] = head
    return head


@register_head
@dataclass(frozen=True)
class Bounded:
    """Continuous actions within bounds: each output in [-1, 1] is scaled to the range of one action."""

    kind: ClassVar[str] = "bounded"
    output_activation: ClassVar[OutputActivation] = "tanh"

    low: tuple[float, ...]
    high: tuple[float, ...]
    """The actions for outputs of -1 and of 1."""

    @property
    def num_outputs(self) -> int:
        """See Head."""
        return len(self.low)

    def actions(self, outputs: Float[Any, "... out"]) -> Float[Any, "... out"]:
        """See Head."""
        lead = (None,) * (outputs.ndim - 1)
        scaled: Float[Any, "... out"] = self._centre[lead] + self._half_range[lead] * outputs
        return scaled

    def behaviour(self, outputs: Float[Any, "... out"]) -> Float[Any, "... out"]:
        """The action, scaled to [-1, 1]."""
        return outputs

    def differences(self, actions: Any, others: Any) -> NDArray[np.float64]:
        """See Head."""
        half_range = np.where(self._half_range > 0, self._half_range, 1)  # equal bounds: the range is 0
        return np.asarray(np.abs(np.asarray(actions, np.float64) - others) / half_range)

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """See Head."""
        return {"action_low": np.asarray(self.low, np.float32), "action_high": np.asarray(self.high, np.float32)}

    @property
    def how_to_run(self) -> str:
        """See Head."""
        return "action = (action_high + action_low) / 2 + x * (action_high - action_low) / 2"

    def operations(self) -> tuple[Operation, ...]:
        """See Head."""
        return (
            Operation("Mul", inputs={"action_half_range": self._half_range}),
            Operation("Add", inputs={"action_centre": self._centre}),
        )

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Any]) -> Self:
        """See Head."""
        low, high = (np.asarray(tensors[name], np.float32) for name in ("action_low", "action_high"))
        if low.ndim != 1 or low.shape != high.shape:
            raise ValueError(
                f"expected two vectors of bounds of the same length, got shapes {low.shape} and {high.shape}"
            )
        return cls(tuple(low.tolist()), tuple(high.tolist()))

    @classmethod
    def from_space(cls, space: Space[Any]) -> Self | None:
        """See Head."""
        if not (isinstance(space, Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating)):
            return None
        return cls.from_tensors({"action_low": space.low, "action_high": space.high}) if space.is_bounded() else None

    @cached_property
    def _centre(self) -> NDArray[np.float32]:
        low, high = self.tensors().values()
        return np.asarray((high + low) / 2)

    @cached_property
    def _half_range(self) -> NDArray[np.float32]:
        low, high = self.tensors().values()
        return np.asarray((high - low) / 2)


def head_for(space: Space[Any]) -> Head:
    """The head for the actions of an environment.

    Raises:
        DvdrlError: no head supports such actions.
    """
    for kind in HEADS.values():
        head = kind.from_space(space)
        if head is not None:
            return head
    raise DvdrlError(f"the action space {space} is not supported; expected one of the kinds {', '.join(HEADS)}")


def head_from(kind: str, tensors: Mapping[str, Any]) -> Head:
    """The head that a file describes.

    Raises:
        ValueError: the kind is unknown, or the tensors do not fit it.
    """
    if kind not in HEADS:
        raise ValueError(f"expected one of these kinds of actions: {', '.join(HEADS)}; got {kind!r}")
    return HEADS[kind].from_tensors(tensors)
