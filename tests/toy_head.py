"""An action head, in a module that worker processes can import."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np

from dvdrl.policies import Operation


@dataclass(frozen=True)
class Choice:
    """An action head: one of several actions, that with the largest output."""

    kind: ClassVar[str] = "choice"
    output_activation: ClassVar[Any] = "none"
    num_outputs: int

    def actions(self, outputs: Any) -> Any:
        return outputs.argmax(axis=-1)

    def behaviour(self, outputs: Any) -> Any:
        return outputs

    def differences(self, actions: Any, others: Any) -> Any:
        return np.asarray(actions != others, float)

    def tensors(self) -> dict[str, Any]:
        return {"num_actions": np.asarray(self.num_outputs, np.float32)}

    @property
    def how_to_run(self) -> str:
        return "action = the index of the largest x"

    def operations(self) -> tuple[Operation, ...]:
        return (Operation("ArgMax", {"axis": 1, "keepdims": 0}),)

    @classmethod
    def from_tensors(cls, tensors: Any) -> Self:
        return cls(int(tensors["num_actions"]))

    @classmethod
    def from_space(cls, space: Any) -> Self | None:
        return cls(int(space.n)) if isinstance(space, gymnasium.spaces.Discrete) else None
