"""Mazes for a point: three with several goals, each a local optimum, and one whose reward leads into a dead end.

The goals of a maze are worth nearly the same and lie at unequal distances, so that a population can be judged by how
many it finds. The layouts are ours, in the style of the multi-goal mazes of Li et al., "Learning Multimodal Behaviors
from Scratch with Diffusion Policy Gradient" (DDiffPG), 2024.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import mujoco
import numpy as np

from dvdrl.tasks.draws import Draws
from dvdrl.tasks.geodesic import grid_distances, interpolate
from dvdrl.tasks.task import LAST, MODE, Data, Reward, Task, xp_of

RADIUS = 0.25
"""The size of the point. Cells of a maze have a side of 1."""
SPACING = 0.25
"""The distance between points of the grid on which ways are measured."""

# The point moves as in Landmarks, with a top speed of 4, or 0.4 per control step. Contacts have no friction: it slides
# along walls. Only the point and a wall can touch.
MODEL = """
<mujoco model="maze">
  <option timestep="0.05" gravity="0 0 0"/>
  <default>
    <geom condim="1" contype="0" conaffinity="1" rgba=".4 .4 .45 1"/>
  </default>
  <asset>
    <texture name="grid" type="2d" builtin="checker" width="100" height="100" rgb1=".8 .8 .8" rgb2=".7 .7 .7"/>
    <material name="grid" texture="grid" texrepeat="10 10"/>
  </asset>
  <worldbody>
    <light directional="true" pos="0 0 10" dir="0 0 -1"/>
    <camera name="track" pos="{middle[0]} {middle[1]} {height}"/>
    <geom name="floor" type="plane" pos="{middle[0]} {middle[1]} 0" size="{half[0]} {half[1]} 1" material="grid"
          contype="0" conaffinity="0"/>
    {walls}
    {goals}
    <body name="point">
      <joint name="x" type="slide" axis="1 0 0" damping="4"/>
      <joint name="y" type="slide" axis="0 1 0" damping="4"/>
      <geom name="ball" type="sphere" size="{radius}" pos="0 0 {radius}" mass="1" contype="1" conaffinity="0"
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
class Maze(Task):
    """A point between walls. It observes its position and velocity."""

    frame_skip: int = 2

    layout: ClassVar[str]
    """Rows of cells from north to south: `#` is a wall, `S` the start and the origin, digits are goals."""

    @property
    def measures(self) -> tuple[str, ...]:
        """See Task."""
        return (LAST + "x", LAST + "y")

    @property
    def measure_ranges(self) -> tuple[tuple[float, float], ...]:
        """See Task. From border to border."""
        low, high = self.corner, self.corner + self.cells.shape - 1
        return tuple(zip(low.tolist(), high.tolist(), strict=True))

    @cached_property
    def cells(self) -> Any:
        """The characters of the layout, by x and y, (columns, rows)."""
        return np.array([list(row) for row in reversed(self.layout.split())]).T

    @property
    def corner(self) -> Any:
        """The middle of the cell in the south-west, (2,)."""
        return -np.argwhere(self.cells == "S")[0].astype(float)

    @property
    def goals(self) -> Any:
        """Where the goals are, (goals, 2), in the order of their digits."""
        digits = sorted(set("".join(self.cells.ravel())) & set("0123456789"))
        return np.array([np.argwhere(self.cells == digit)[0] for digit in digits]) + self.corner

    def spec(self) -> Any:
        """See Task."""
        walls = (
            f'<geom type="box" pos="{x} {y} 0.5" size="{width / 2} {depth / 2} 0.5"/>'
            for x, y, width, depth in self.walls()
        )
        goals = (
            f'<site name="goal {i}" pos="{x} {y} 0" type="cylinder" size="0.5 0.01" rgba="0 .6 0 1"/>'
            for i, (x, y) in enumerate(self.goals)
        )
        half = np.array(self.cells.shape) / 2
        more = {"middle": self.corner + half - 0.5, "half": half, "height": 2.6 * half.max(), "radius": RADIUS}
        return mujoco.MjSpec.from_string(MODEL.format(walls="\n".join(walls), goals="\n".join(goals), **more))

    def walls(self) -> list[tuple[float, float, float, float]]:
        """The walls as few rectangles: middle and size, along x and y."""
        left, found = self.cells == "#", []
        while left.any():
            column, row = np.argwhere(left)[0].tolist()
            # The longer run of cells, to the east or to the north, and then as many such runs side by side as fit.
            wide = _run(left[column:, row])
            deep = _run(left[column, row:])
            if wide >= deep:
                deep = _run(left[column : column + wide, row:].all(axis=0))
            else:
                wide = _run(left[column:, row : row + deep].all(axis=1))
            left[column : column + wide, row : row + deep] = False
            x, y = self.corner.tolist()
            found.append((x + column + (wide - 1) / 2, y + row + (deep - 1) / 2, float(wide), float(deep)))
        return found

    def reset(self, draws: Draws) -> tuple[Any, Any]:
        """See Task."""
        qpos = draws.uniform(-0.1, 0.1, 2)
        return qpos, 0 * qpos

    def observe(self, data: Data) -> Any:
        """See Task."""
        return xp_of(data["qpos"]).concat([data["qpos"], data["qvel"]], axis=1)

    @abstractmethod
    def paid(self, position: Any) -> tuple[Any, dict[str, Any]]:
        """The reward in a position, (n, 2), and its parts."""

    def reward(self, carry: Any, action: Any, data: Data) -> Reward:  # noqa: ARG002
        """See Task."""
        position = data["qpos"]
        total, parts = self.paid(position)
        return Reward(total, {**parts, "x": position[:, 0], "y": position[:, 1]}, carry)


def _run(cells: np.ndarray) -> int:
    """The number of leading cells that are true."""
    return len(cells) if cells.all() else int(np.argmin(cells))


@dataclass(frozen=True, kw_only=True)
class GoalMaze(Maze):
    """A maze that pays for nearness to the goal that is relatively nearest, along the shortest way between the walls.

    By itself goal i would pay 1 - d_i / r_i in each step. d_i is the length of the way from the point to the goal, r_i
    the length of the way from the start. A step pays the largest of these; `reward_mode_0` and so on report each. So
    the way to every goal pays more and more, and every goal is a local optimum.

    Driving to a goal and staying there returns 82 to 89. A goal counts as found if its mode returns more than 70, which
    takes a point that ends closer than 2 to it.
    """

    horizon: int = 100

    @property
    def modes(self) -> tuple[str, ...]:
        """See Task."""
        return tuple(str(number) for number in range(len(self.goals)))

    @cached_property
    def relative(self) -> Any:
        """The length of the way to each goal, relative to that from the start, over a grid of points, (x, y, goals)."""
        per_cell = round(1 / SPACING)
        goals, start = (np.rint(place * per_cell).astype(int) for place in (self.goals - self.corner, -self.corner))
        distances = grid_distances(self.free(), goals, SPACING)
        return distances / distances[tuple(start)]

    def free(self) -> Any:
        """The points of a grid in which the ball touches no wall, (x, y)."""
        # A ball that just touches is free. It is smaller than a cell, so its square is in the cells of its corners.
        corners = (-0.99 * RADIUS, 0.99 * RADIUS)
        along = [np.arange(0, size - 1 + SPACING, SPACING) for size in self.cells.shape]
        x, y = ([np.rint(axis + corner).astype(int) for corner in corners] for axis in along)
        return np.all([self.cells[np.ix_(columns, rows)] != "#" for columns in x for rows in y], axis=0)

    def paid(self, position: Any) -> tuple[Any, dict[str, Any]]:
        """See Maze."""
        each = 1 - interpolate(self.relative, self.corner, SPACING, position)
        return xp_of(position).max(each, axis=1), {MODE + mode: each[:, i] for i, mode in enumerate(self.modes)}


@dataclass(frozen=True, kw_only=True)
class FourRooms(GoalMaze):
    """FourRooms-v0: a room with four doors; behind each is another room, whose goal is around the corner."""

    id: ClassVar[str] = "FourRooms-v0"
    layout: ClassVar[str] = """
        ###############
        #.........#...#
        #.0.......#...#
        #.........#...#
        ########..#...#
        #.........#.1.#
        #.........#...#
        #...#..S..#...#
        #...#.........#
        #...#.........#
        #.3.#..########
        #...#.........#
        #...#......2..#
        #...#.........#
        ###############
        """


@dataclass(frozen=True, kw_only=True)
class ForkedMaze(GoalMaze):
    """ForkedMaze-v0: a way that forks twice. The last part of the way to each goal leads back towards the middle."""

    id: ClassVar[str] = "ForkedMaze-v0"
    layout: ClassVar[str] = """
        ###############
        #......#......#
        #...0..#.1....#
        #......#......#
        #...#######...#
        #...#######...#
        #.............#
        #......S......#
        #.............#
        #...#######...#
        #...#######...#
        #......#......#
        #.....3#..2...#
        #......#......#
        ###############
        """


@dataclass(frozen=True, kw_only=True)
class EightRooms(GoalMaze):
    """EightRooms-v0: a room with eight doors, and behind each another room, whose goal is around the corner."""

    id: ClassVar[str] = "EightRooms-v0"
    layout: ClassVar[str] = """
        #################
        #......#....#...#
        #.0....#.1..#...#
        #......#....#.2.#
        #####..###..#...#
        #...............#
        #...............#
        #...#.......#####
        #.7.#...S...#.3.#
        #####.......#...#
        #...............#
        #...............#
        #...#..###..#####
        #.6.#....#......#
        #...#..5.#....4.#
        #...#....#......#
        #################
        """


@dataclass(frozen=True, kw_only=True)
class DeadEnd(Maze):
    """DeadEnd-v0: pays minus the straight distance to the goal, and the straight way is a dead end.

    Driving straight ahead returns -835. The way to the goal leads aside and around. Driving there returns -392; more
    than -700 takes a point that finds it.
    """

    id: ClassVar[str] = "DeadEnd-v0"
    horizon: int = 150
    layout: ClassVar[str] = """
        ###################
        #.................#
        #.................#
        #....#########....#
        #...........##....#
        #.S.........##..0.#
        #...........##....#
        ###################
        """

    def paid(self, position: Any) -> tuple[Any, dict[str, Any]]:
        """See Maze."""
        xp = xp_of(position)
        away = position - xp.asarray(self.goals, dtype=position.dtype)
        closeness = -xp.sqrt(xp.sum(xp.square(away), axis=1))
        return closeness, {"reward_dist": closeness}
