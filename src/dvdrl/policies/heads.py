"""Action heads: an action head turns the output of a network into an action, and defines the behaviour of an output.

A new kind of action needs a new head: a frozen dataclass with the members of `Head`, registered by `register_head`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space
from jaxtyping import Float, Int
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

    def tensors(self) -> dict[str, NDArray[Any]]:
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


@register_head
@dataclass(frozen=True)
class Categorical:
    """Choices: for each, as many outputs as it has alternatives. The alternative with the largest output is taken."""

    kind: ClassVar[str] = "categorical"
    output_activation: ClassVar[OutputActivation] = "none"

    sizes: tuple[int, ...]
    """The number of alternatives of each choice."""
    starts: tuple[int, ...]
    """The number of the first alternative of each choice."""
    single: bool
    """Whether an action is one number, as in Discrete; otherwise it is a vector, as in MultiDiscrete."""

    @property
    def num_outputs(self) -> int:
        """See Head."""
        return sum(self.sizes)

    def actions(self, outputs: Float[Any, "... out"]) -> Int[Any, "..."]:
        """See Head. Of equal outputs, the first one counts."""
        starts = self.tensors()["action_starts"]
        largest = outputs[..., self._places].argmax(axis=-1)
        return largest + starts[(None,) * (largest.ndim - starts.ndim)]

    def behaviour(self, outputs: Float[Any, "... out"]) -> Float[Any, "... out"]:
        """The distribution pi(.|s) of each choice, which is the softmax of its outputs."""
        xp, alike = outputs.__array_namespace__(), outputs[..., self._places]
        weights = xp.exp(alike - alike.max(axis=-1, keepdims=True))
        weights = weights * self._real[(None,) * (weights.ndim - self._real.ndim)]
        return (weights / weights.sum(axis=-1, keepdims=True))[..., self._real]

    def differences(self, actions: Any, others: Any) -> NDArray[np.float64]:
        """0 for the same alternative, 1 for another one."""
        return np.asarray(np.not_equal(actions, others), np.float64)

    def tensors(self) -> dict[str, NDArray[np.int64]]:
        """See Head."""
        described = {"action_sizes": self.sizes, "action_starts": self.starts}
        return {name: np.array(each[0] if self.single else each, np.int64) for name, each in described.items()}

    @property
    def how_to_run(self) -> str:
        """See Head."""
        if self.single:
            return "action = action_starts + the index of the largest x, the first one of equals"
        return (
            "x is cut into parts of the lengths action_sizes; action i = action_starts[i] + the index of the largest"
            " number in part i, the first one of equals"
        )

    def operations(self) -> tuple[Operation, ...]:
        """See Head."""
        return (
            Operation("Gather", {"axis": 1}, {"action_places": self._places}),
            Operation("ArgMax", {"axis": -1, "keepdims": 0}),
            Operation("Add", inputs={"action_starts": self.tensors()["action_starts"]}),
        )

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Any]) -> Self:
        """See Head."""
        sizes, starts = (np.asarray(tensors[name]) for name in ("action_sizes", "action_starts"))
        whole = all(np.issubdtype(each.dtype, np.integer) for each in (sizes, starts))
        if not whole or sizes.ndim > 1 or sizes.shape != starts.shape or not sizes.size or sizes.min() < 1:
            raise ValueError(
                "expected numbers of alternatives of 1 or more, and as many whole numbers of first ones;"
                f" got {sizes.tolist()} and {starts.tolist()}"
            )
        return cls(tuple(sizes.ravel().tolist()), tuple(starts.ravel().tolist()), sizes.ndim == 0)

    @classmethod
    def from_space(cls, space: Space[Any]) -> Self | None:
        """See Head."""
        if isinstance(space, Discrete):
            return cls((int(space.n),), (int(space.start),), single=True)
        if isinstance(space, MultiDiscrete) and len(space.shape) == 1:
            return cls(tuple(space.nvec.tolist()), tuple(space.start.tolist()), single=False)
        if isinstance(space, MultiBinary) and len(space.shape) == 1:
            return cls((2,) * space.shape[0], (0,) * space.shape[0], single=False)
        return None

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """Where the outputs of each choice are, (choices, alternatives); only (alternatives,) for a single one.

        In the rows of choices with fewer alternatives than others, the first one is repeated. This never changes which
        of them is the first with the largest output.
        """
        ends = np.cumsum(self.sizes)
        first = (ends - self.sizes)[:, None]
        places = np.where(self._real.reshape(len(ends), -1), first + np.arange(max(self.sizes)), first)
        return places[0] if self.single else places

    @cached_property
    def _real(self) -> NDArray[np.bool_]:
        """Whether an entry of `_places` is an alternative, and not a repetition of the first one."""
        real = np.arange(max(self.sizes)) < np.array(self.sizes)[:, None]
        return real[0] if self.single else real


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
