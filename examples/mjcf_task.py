"""A task of your own from an MJCF file: swing a pendulum up. You can train, render and export it like any other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import mujoco

import dvdrl
from dvdrl.tasks.registry import register
from dvdrl.tasks.task import Reward, Task, xp_of


@register
@dataclass(frozen=True, kw_only=True)
class SwingUp(Task):
    """The reward is the height of the tip."""

    id: ClassVar[str] = "SwingUp-v0"
    frame_skip: int = 5
    horizon: int = 100

    def spec(self) -> Any:
        return mujoco.MjSpec.from_file(str(Path(__file__).with_name("pendulum.xml")))

    def reset(self, draws: Any) -> tuple[Any, Any]:
        return draws.uniform(-0.1, 0.1, 1), draws.uniform(-0.1, 0.1, 1)

    def observe(self, data: Any) -> Any:
        xp, angle = xp_of(data["qpos"]), data["qpos"]
        return xp.concat([xp.cos(angle), xp.sin(angle), data["qvel"]], axis=1)

    def reward(self, carry: Any, action: Any, data: Any) -> Reward:
        return Reward(-xp_of(data["qpos"]).cos(data["qpos"][:, 0]), {}, carry)


if __name__ == "__main__":
    dvdrl.train(dvdrl.DvDES(task=SwingUp.id, population=3, hidden=(16,), iterations=50, out="runs/swing-up"))
