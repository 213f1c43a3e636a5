"""Action heads: how the output of a network becomes an action, and what the behaviour of an output is.

A new kind of actions is a new head: a frozen dataclass with the members of `Head`, made known by `register_head`.
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
    """Its further inputs, by the names that they get in the graph."""


class Head(Protocol):
    """How outputs become actions. A head can be compared and hashed: algorithms are compiled once for each."""

    kind: ClassVar[str]
    """What policies.json calls it."""
    output_activation: ClassVar[OutputActivation]
    """What the network's last layer ends in."""

    @property
    def num_outputs(self) -> int:
        """How many numbers the network puts out."""
        ...

    def actions(self, outputs: Float[Any, "... out"]) -> Any:
        """The actions that the environment is given."""
        ...

    def behaviour(self, outputs: Float[Any, "... out"]) -> Float[Any, "... b"]:
        """What members are compared by, in one state (definition 3.1 of the paper)."""
        ...

    def differences(self, actions: Any, others: Any) -> NDArray[np.float64]:
        """How far actions are from others, where 1 is as far as from the middle of what is possible to its end."""
        ...

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """What `how_to_run` refers to by name."""
        ...

    @property
    def how_to_run(self) -> str:
        """One formula: the action, given the network's output x."""
        ...

    def operations(self) -> tuple[Operation, ...]:
        """From output to action, as a chain of standard ONNX operators."""
        ...

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Any]) -> Self:
        """The head that `tensors` describes."""
        ...

    @classmethod
    def from_space(cls, space: Space[Any]) -> Self | None:
        """The head for actions of that space; None if they are of another kind."""
        ...


HEADS: dict[str, type[Head]] = {}
"""The kinds of heads that there are."""


def register_head(head: type[Head]) -> type[Head]:
    """Make a kind of heads known; usable as a class decorator."""
    HEADS[head.kind] = head
    return head


@register_head
@dataclass(frozen=True)
class Bounded:
    """Continuous actions within bounds, one for each output in [-1, 1]."""

    kind: ClassVar[str] = "bounded"
    output_activation: ClassVar[OutputActivation] = "tanh"

    low: tuple[float, ...]
    high: tuple[float, ...]
    """What -1 and 1 stand for."""

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
        """The action itself, in [-1, 1] whatever its bounds."""
        return outputs

    def differences(self, actions: Any, others: Any) -> NDArray[np.float64]:
        """See Head."""
        half_range = np.where(self._half_range > 0, self._half_range, 1)  # 0 for an action that is always the same
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
            raise ValueError(f"expected as many lower as upper bounds, got shapes {low.shape} and {high.shape}")
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
        DvdrlError: no head has such actions.
    """
    for kind in HEADS.values():
        head = kind.from_space(space)
        if head is not None:
            return head
    raise DvdrlError(f"no policy here has the actions {space}; there are those of the kinds {', '.join(HEADS)}")


def head_from(kind: str, tensors: Mapping[str, Any]) -> Head:
    """The head that a file describes.

    Raises:
        ValueError: there is no such kind, or these are not its tensors.
    """
    if kind not in HEADS:
        raise ValueError(f"expected actions of one of the kinds {', '.join(HEADS)}; got {kind!r}")
    return HEADS[kind].from_tensors(tensors)
