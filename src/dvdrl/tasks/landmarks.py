"""Landmarks: a point that may go to any of n places, each a local optimum, for counting how many a population finds.

The places are worth nearly the same and lie at unequal distances, so that gradients prefer near ones (the test that
Fu et al., "Iteratively Learn Diverse Strategies with State Distance Information", 2023, put to diversity methods).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco
import numpy as np

from dvdrl.tasks.draws import Draws
from dvdrl.tasks.task import LAST, MODE, Data, Reward, Task, xp_of

NEAREST, FARTHEST = 4.0, 7.0

# Thrust is four times damping: the top speed is 4, reached in about a quarter of a second; nothing is in the way.
MODEL = """
<mujoco model="landmarks">
  <option timestep="0.05" gravity="0 0 0"/>
  <asset>
    <texture name="grid" type="2d" builtin="checker" width="100" height="100" rgb1=".8 .8 .8" rgb2=".7 .7 .7"/>
    <material name="grid" texture="grid" texrepeat="10 10"/>
  </asset>
  <worldbody>
    <light directional="true" pos="0 0 10" dir="0 0 -1"/>
    <geom name="floor" type="plane" size="10 10 1" material="grid" contype="0" conaffinity="0"/>
    {sites}
    <body name="point">
      <joint name="x" type="slide" axis="1 0 0" damping="4"/>
      <joint name="y" type="slide" axis="0 1 0" damping="4"/>
      <geom name="ball" type="sphere" size="0.25" pos="0 0 0.25" mass="1" contype="0" conaffinity="0"
            rgba=".8 .4 .2 1"/>
    </body>
  </worldbody>
  <actuator>
    <motor joint="x" ctrllimited="true" ctrlrange="-1 1" gear="16"/>
    <motor joint="y" ctrllimited="true" ctrlrange="-1 1" gear="16"/>
  </actuator>
</mujoco>
"""


@dataclass(frozen=True, kw_only=True)
class Landmarks(Task):
    """Landmarks-v0: pays for nearness to the landmark that is relatively nearest.

    By itself landmark i would pay 1 - d_i / r_i in each step, r_i being how far it is from the origin and d_i how far
    from the point: about 0 at the start, 1 on arrival. A step pays the largest of these; `reward_mode_0` and so on
    report each. Landmarks stand in all directions, at equal angles, from 4 to 7 away.
    """

    id: ClassVar[str] = "Landmarks-v0"
    frame_skip: int = 2
    horizon: int = 50
    landmarks: int = 4
    """How many there are."""

    @property
    def modes(self) -> tuple[str, ...]:
        """See Task."""
        return tuple(str(number) for number in range(self.landmarks))

    @property
    def measures(self) -> tuple[str, ...]:
        """See Task."""
        return (LAST + "x", LAST + "y")

    @property
    def measure_ranges(self) -> tuple[tuple[float, float], ...]:
        """See Task. The farthest landmark and one more."""
        return ((-FARTHEST - 1, FARTHEST + 1),) * 2

    @property
    def positions(self) -> np.ndarray:
        """Where the landmarks are, (landmarks, 2)."""
        angles = 2 * np.pi * np.arange(self.landmarks) / self.landmarks
        return np.stack([self._distances * np.cos(angles), self._distances * np.sin(angles)], axis=1)

    @property
    def _distances(self) -> np.ndarray:
        return np.linspace(NEAREST, FARTHEST, self.landmarks)

    def spec(self) -> Any:
        """See Task."""
        sites = (
            f'<site name="landmark {i}" pos="{x} {y} 0" type="cylinder" size="0.5 0.01" rgba="0 .6 0 1"/>'
            for i, (x, y) in enumerate(self.positions)
        )
        return mujoco.MjSpec.from_string(MODEL.format(sites="\n".join(sites)))

    def reset(self, draws: Draws) -> tuple[Any, Any]:
        """See Task."""
        qpos = draws.uniform(-0.1, 0.1, 2)
        return qpos, 0 * qpos

    def observe(self, data: Data) -> Any:
        """See Task."""
        return xp_of(data["qpos"]).concat([data["qpos"], data["qvel"]], axis=1)

    def reward(self, carry: Any, action: Any, data: Data) -> Reward:  # noqa: ARG002
        """See Task."""
        xp, position = xp_of(data["qpos"]), data["qpos"]
        landmarks, distances = (xp.asarray(x, dtype=position.dtype) for x in (self.positions, self._distances))
        away = xp.sqrt(xp.sum(xp.square(position[:, None] - landmarks[None]), axis=-1))
        each = 1 - away / distances[None]
        parts = {MODE + mode: each[:, i] for i, mode in enumerate(self.modes)}
        return Reward(xp.max(each, axis=1), {**parts, "x": position[:, 0], "y": position[:, 1]}, carry)
