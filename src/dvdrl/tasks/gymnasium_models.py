"""Gymnasium's MJCF models, read from the installed package."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mujoco

from dvdrl.errors import DvdrlError
from dvdrl.tasks.draws import Draws
from dvdrl.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class GymnasiumTask(Task):
    """A task on one of Gymnasium's models, with Gymnasium's keyword arguments as fields."""

    xml_file: str
    """The name of one of Gymnasium's models, or a path that starts with `.`, `/` or `~`."""

    def spec(self) -> Any:
        """See Task."""
        if self.xml_file.startswith((".", "/", "~")):
            path = Path(self.xml_file).expanduser()
        else:
            # Locate the package without importing it: the import takes longer than compiling the model.
            package = find_spec("gymnasium")
            assert package is not None
            path = Path(str(package.origin)).parent / "envs" / "mujoco" / "assets" / self.xml_file
        if not path.is_file():
            raise DvdrlError(f"{self.id}: no model file {path}; xml_file is {self.xml_file!r}")
        return mujoco.MjSpec.from_file(str(path))


@dataclass(frozen=True, kw_only=True)
class NoisyStart(GymnasiumTask):
    """Episodes begin in the model's own pose plus uniform noise on positions and velocities."""

    reset_noise_scale: float

    def __post_init__(self) -> None:
        """Check the scale."""
        if self.reset_noise_scale < 0:
            raise DvdrlError(f"reset_noise_scale: expected 0 or more, got {self.reset_noise_scale}")

    def reset(self, draws: Draws) -> tuple[Any, Any]:
        """See Task."""
        scale, model = self.reset_noise_scale, self.model
        qpos = model.qpos0[None] + draws.uniform(-scale, scale, model.nq)
        return qpos, draws.uniform(-scale, scale, model.nv)


@dataclass(frozen=True, kw_only=True)
class NormalVelocityStart(NoisyStart):
    """Like NoisyStart, with normal noise on the velocities."""

    def reset(self, draws: Draws) -> tuple[Any, Any]:
        """See Task."""
        scale, model = self.reset_noise_scale, self.model
        qpos = model.qpos0[None] + draws.uniform(-scale, scale, model.nq)
        return qpos, scale * draws.normal(model.nv)
