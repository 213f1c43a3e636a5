"""The definition of a task: a MuJoCo model, a frame skip, a horizon, and pure functions of arrays with a batch axis.

The functions are written once. They take NumPy arrays from the host engine, and JAX arrays (also while traced) from a
device. They see the simulation only through the fields of MjData and MjModel that the task names.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import mujoco
import numpy as np
from jaxtyping import Bool, Float

from dvdrl.errors import DvdrlError
from dvdrl.tasks.draws import Draws
from dvdrl.tasks.names import coordinate_names, generic_name

Data = Mapping[str, Any]
"""The named fields of n simulations, each (n, ...)."""


class Reward(NamedTuple):
    """The reward of one step, and what the episode carries to the next step."""

    total: Float[Any, " n"]
    parts: dict[str, Float[Any, " n"]]
    """The parts of the reward and other reports, by name; Gymnasium's tasks use the names of its `info`."""
    carry: Float[Any, "n carry"]


MODE = "reward_mode_"
"""The prefix of reward parts that report a single mode of a task."""
LAST = "last:"
"""The prefix of measures that are the value at the end of the episode, not the mean over its steps."""


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A task. Its options are the fields of its dataclass."""

    id: ClassVar[str]
    frame_skip: int
    """Physics steps per control step."""
    horizon: int = 1000
    """The number of control steps after which an episode is truncated."""

    @abstractmethod
    def spec(self) -> Any:
        """The model as a new mujoco.MjSpec. An engine may add to it before compiling."""

    @property
    def modes(self) -> tuple[str, ...]:
        """The names of the modes, if the task has several. The reward has a part `MODE + name` for each."""
        return ()

    @property
    def measures(self) -> tuple[str, ...]:
        """What tells the behaviours of two episodes apart, if the user names nothing else; by default nothing.

        Each measure names one of `Reward.parts`: `NAME` is its mean over the steps of an episode, `LAST + NAME` its
        value after the last step.
        """
        return ()

    @property
    def measure_ranges(self) -> tuple[tuple[float, float], ...]:
        """The low and the high end of each measure, for archives that divide them into cells; empty if not known."""
        return ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of MjData and MjModel that the functions below read."""
        return ("qpos", "qvel")

    @abstractmethod
    def reset(self, draws: Draws) -> tuple[Float[Any, "n nq"], Float[Any, "n nv"]]:
        """Draw the positions and velocities in which episodes begin."""

    def begin(self, draws: Draws, data: Data) -> Float[Any, "n carry"]:  # noqa: ARG002
        """The state that a new episode carries from step to step besides the physics; by default nothing."""
        return data["qpos"][:, :0]

    @abstractmethod
    def observe(self, data: Data) -> Float[Any, "n observation"]:
        """The observation of the policy."""

    @abstractmethod
    def reward(self, carry: Float[Any, "n carry"], action: Float[Any, "n action"], data: Data) -> Reward:
        """The reward of the step that led to `data`."""

    def terminated(self, data: Data) -> Bool[Any, " n"]:
        """Whether the task itself ends the episode here; by default never."""
        return xp_of(data["qpos"]).zeros(data["qpos"].shape[0], dtype=bool)

    @cached_property
    def model(self) -> Any:
        """The compiled mujoco.MjModel."""
        model = compiled(self.spec())
        for number in range(model.nu):
            if not model.actuator_ctrllimited[number]:
                name = model.actuator(number).name or number
                raise DvdrlError(f"{self.id}: actuator {name} has no ctrlrange; policies act within it, so give it one")
        return model

    @property
    def dt(self) -> float:
        """Simulated seconds per control step."""
        return float(self.model.opt.timestep) * self.frame_skip

    @property
    def action_size(self) -> int:
        """The number of controls."""
        return int(self.model.nu)

    @cached_property
    def observation_names(self) -> tuple[str, ...]:
        """The names of the observed values.

        A position or velocity that is observed as it is has the name of its joint, such as "rootz velocity". All other
        values are "observation 17" and so on.
        """
        model, data = self.model, mujoco.MjData(self.model)
        # Every coordinate gets a value of its own, by which it is then found in the observation.
        data.qpos[:], data.qvel[:] = np.split(np.random.default_rng(0).random(model.nq + model.nv), [model.nq])
        one = {name: getattr(model if hasattr(model, name) else data, name)[None] for name in self.fields}
        names = dict(zip((*data.qpos, *data.qvel), coordinate_names(model), strict=True))
        return tuple(names.get(value, generic_name(i)) for i, value in enumerate(self.observe(one)[0]))

    @property
    def observation_size(self) -> int:
        """The number of observed values."""
        return len(self.observation_names)


def compiled(spec: Any) -> Any:
    """Compile a mujoco.MjSpec to a mujoco.MjModel."""
    with warnings.catch_warnings():
        # Gymnasium's HalfCheetah uses this attribute; users cannot change that.
        warnings.filterwarnings("ignore", message="compiler attribute 'settotalmass' is deprecated")
        return spec.compile()


def xp_of(array: Any) -> Any:
    """The array's namespace: numpy or jax.numpy."""
    return array.__array_namespace__()
