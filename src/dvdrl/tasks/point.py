"""Point, the paper's task with a deceptive reward: the straight way to the goal runs into a wall.

Sizes are from the authors' code. `wall_half_width` (2 in their code) makes the wall wider.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco

from dvdrl.tasks.draws import Draws
from dvdrl.tasks.task import LAST, Data, Reward, Task, xp_of

GOAL = (25.0, 0.0)
FLOOR = 40.0
"""Half the length of each side of the floor."""

# The floor is only for pictures. The body slides and just touches it; a contact would brake sideways motion.
MODEL = """
<mujoco model="point">
  <option integrator="RK4" timestep="0.02"/>
  <default>
    <geom density="100"/>
    <motor ctrllimited="true" ctrlrange="-1 1" gear="2000"/>
  </default>
  <asset>
    <texture name="grid" type="2d" builtin="checker" width="100" height="100" rgb1=".8 .8 .8" rgb2=".7 .7 .7"/>
    <material name="grid" texture="grid" texrepeat="30 30"/>
  </asset>
  <worldbody>
    <light directional="true" pos="0 0 10" dir="0 0 -1"/>
    <geom name="floor" type="plane" size="{floor} {floor} 1" material="grid" contype="0" conaffinity="0"/>
    <site name="goal" pos="{goal[0]} {goal[1]} 0" type="cylinder" size="0.5 0.01" rgba="0 .6 0 1"/>
    <body name="point">
      <joint name="x" type="slide" axis="1 0 0"/>
      <joint name="y" type="slide" axis="0 1 0"/>
      <joint name="turn" type="hinge" axis="0 0 1"/>
      <geom name="ball" type="sphere" size="0.5" pos="0 0 0.5" rgba=".8 .4 .2 1"/>
      <geom name="arrow" type="box" size="0.5 0.1 0.1" pos="0.9 0 0.5" rgba=".8 .4 .2 1"/>
    </body>
    <geom name="wall left" type="box" pos="13 {half_width} 0" size="1 0.3 2"/>
    <geom name="wall right" type="box" pos="13 -{half_width} 0" size="1 0.3 2"/>
    <geom name="wall back" type="box" pos="14 0 0" size="0.3 {half_width} 2"/>
  </worldbody>
  <actuator>
    <motor joint="x"/>
    <motor joint="y"/>
  </actuator>
</mujoco>
"""


@dataclass(frozen=True, kw_only=True)
class Point(Task):
    """Point-v0: the reward is minus the distance to the goal."""

    id: ClassVar[str] = "Point-v0"
    frame_skip: int = 2
    horizon: int = 50
    wall_half_width: float = 2.0

    @property
    def measures(self) -> tuple[str, ...]:
        """See Task."""
        return (LAST + "x", LAST + "y")

    @property
    def measure_ranges(self) -> tuple[tuple[float, float], ...]:
        """See Task. The floor."""
        return ((-FLOOR, FLOOR),) * 2

    def spec(self) -> Any:
        """See Task."""
        return mujoco.MjSpec.from_string(MODEL.format(half_width=self.wall_half_width, goal=GOAL, floor=FLOOR))

    def reset(self, draws: Draws) -> tuple[Any, Any]:
        """See Task."""
        return draws.uniform(-0.1, 0.1, 3), 0.1 * draws.normal(3)

    def observe(self, data: Data) -> Any:
        """See Task."""
        return xp_of(data["qpos"]).concat([data["qpos"], data["qvel"]], axis=1)

    def reward(self, carry: Any, action: Any, data: Data) -> Reward:  # noqa: ARG002
        """See Task."""
        position = data["qpos"]
        x, y = position[:, 0] - GOAL[0], position[:, 1] - GOAL[1]
        closeness = -xp_of(x).sqrt(x * x + y * y)
        return Reward(closeness, {"reward_dist": closeness, "x": position[:, 0], "y": position[:, 1]}, carry)
