"""Mazes: walls that stop, ways around them, goals that are optima, and a dead end."""

import numpy as np
import pytest

import dvdrl
from dvdrl.tasks.geodesic import grid_distances, interpolate
from dvdrl.tasks.mazes import RADIUS, SPACING, DeadEnd, EightRooms, ForkedMaze, FourRooms
from dvdrl.tasks.task import MODE

GOAL_MAZES = [FourRooms, ForkedMaze, EightRooms]
FOUND = 70
"""The return above which a goal counts as found, as the documentation says."""

# Places to pass on the way to each goal, x and y: around corners of walls.
WAYS = {
    FourRooms: [[(1.5, 4.5)], [(4.5, -1.5)], [(-1.5, -4.5)], [(-4.5, 1.5)]],
    ForkedMaze: [[(-4.5, 1), (-4.5, 4)], [(4.5, 1), (4.5, 4)], [(4.5, -1), (4.5, -4)], [(-4.5, -1), (-4.5, -4)]],
    EightRooms: [
        [(-2.5, 2.5), (-2.5, 5)],
        [(2.5, 2.5), (2.5, 5)],
        [(2.5, 2.5), (5, 2.5)],
        [(2.5, -2.5), (5, -2.5)],
        [(2.5, -2.5), (2.5, -5)],
        [(-2.5, -2.5), (-2.5, -5)],
        [(-2.5, -2.5), (-5, -2.5)],
        [(-2.5, 2.5), (-5, 2.5)],
    ],
    DeadEnd: [[(1, 2), (2, 3.5), (13, 3.2)]],
}


def drive(task, ways):
    """Drive one simulation through the places of each way; returns what info reported, summed, and where they ended."""
    envs = dvdrl.make_vec(task, len(ways), autoreset_mode="Disabled").unwrapped
    obs, _ = envs.reset(seed=0)
    touching, sums = envs.batch.bind("ncon"), {}
    left = [list(way) for way in ways]
    for _ in range(task.horizon):
        for places, here in zip(left, obs[:, :2], strict=True):
            if len(places) > 1 and np.linalg.norm(here - places[0]) < 0.7:
                places.pop(0)
        to = np.array([places[0] for places in left]) - obs[:, :2]
        obs, reward, _, _, info = envs.step(np.clip(2 * to - 0.5 * obs[:, 2:], -1, 1))
        for name, values in {**info, "return": reward, "contacts": touching.ravel()}.items():
            sums[name] = sums.get(name, 0) + values
    return sums, obs[:, :2]


def ways_of(maze):
    """The ways to all goals of a maze."""
    return [[*way, tuple(goal)] for way, goal in zip(WAYS[maze], maze().goals, strict=True)]


@pytest.mark.parametrize("maze", GOAL_MAZES)
def test_every_goal_can_be_reached_and_pays_nearly_the_same(maze):
    task = maze()
    sums, ends = drive(task, ways_of(maze))
    np.testing.assert_allclose(ends, task.goals, atol=0.05)
    # The ways of 6.6 to 9.8 take 16 to 24 steps at the top speed of 0.4 a step. These pay half on average, which costs
    # 8 to 12 of the 100; getting up to speed, turning and braking cost a few more.
    assert ((sums["return"] > 100 - 12 - 6) & (sums["return"] < 100 - 8)).all()
    # A goal counts as found for the simulation that was driven to it, and for no other.
    modes = np.stack([sums[MODE + mode] for mode in task.modes])
    np.testing.assert_array_equal(modes > FOUND, np.eye(len(ends), dtype=bool))


@pytest.mark.parametrize(("maze", "number"), list(zip(GOAL_MAZES, (4, 4, 8), strict=True)))
def test_walls_are_in_every_straight_way(maze, number):
    task = maze()
    assert len(task.modes) == len(task.goals) == number
    sums, ends = drive(task, [[tuple(goal)] for goal in task.goals])
    assert (sums["contacts"] > 50).all()  # most of the 100 steps
    assert (sums["return"] < FOUND).all()
    assert (np.linalg.norm(ends - task.goals, axis=1) > 1.9).all()


@pytest.mark.parametrize("maze", [*GOAL_MAZES, DeadEnd])
def test_walls_stop_a_point_that_drives_against_them_from_anywhere(maze):
    task = maze(horizon=200)
    rooms = np.argwhere(task.cells != "#")
    angles = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    envs = dvdrl.make_vec(task, 8 * len(rooms), autoreset_mode="Disabled").unwrapped
    touching = envs.batch.bind("ncon")
    envs.reset(seed=0)
    envs._qpos[:] = np.repeat(rooms + task.corner, 8, axis=0)
    push = np.tile(np.stack([np.cos(angles), np.sin(angles)], axis=1), (len(rooms), 1))
    for _ in range(task.horizon):
        at = envs.step(push)[0][:, :2] - task.corner
        # At most at its top speed of 4 a point meets a wall, and so it is at most 4 * 0.05 too far when it is stopped.
        for side in np.array([(-1, 0), (1, 0), (0, -1), (0, 1)]) * (RADIUS - 0.2):
            assert (task.cells[tuple(np.rint(at + side).astype(int).T)] != "#").all()
    # In the end it rests against a wall, or two: nothing else can hold a point under thrust.
    assert np.abs(envs._qvel).max() < 0.05
    assert touching.all()


@pytest.mark.parametrize("maze", [*GOAL_MAZES, DeadEnd])
def test_the_rectangles_are_the_walls_of_the_layout(maze):
    task = maze()
    covered = np.zeros(task.cells.shape, int)
    for x, y, width, depth in task.walls():
        west, south = np.rint(np.array([x, y]) - task.corner - (np.array([width, depth]) - 1) / 2).astype(int)
        covered[west : west + round(width), south : south + round(depth)] += 1
    np.testing.assert_array_equal(covered, task.cells == "#")  # each cell once


def test_the_layout_is_as_it_is_drawn():
    # North is up, east is to the right, and the start is the origin: goal 0 is six columns to the west of it, in the
    # second row of seventeen. The border is eight away.
    assert EightRooms().goals[0].tolist() == [-6, 6]
    assert EightRooms().goals[3].tolist() == [6, 0]
    assert EightRooms().measure_ranges == ((-8, 8), (-8, 8))
    assert DeadEnd().measure_ranges == ((-2, 16), (-2, 5))


def reward_at(task, *places):
    """Reward and modes of a point that is in these places."""
    qpos = np.array(places, float)
    total, parts, _ = task.reward(np.zeros((len(qpos), 0)), np.zeros(qpos.shape), {"qpos": qpos, "qvel": 0 * qpos})
    return total, np.stack([parts[MODE + mode] for mode in task.modes], axis=1)


def test_goals_pay_by_the_way_between_the_walls_by_hand():
    total, modes = reward_at(FourRooms(), (0, 0), (-5, 5), (0.75, 3))
    # At the start all goals pay 0, on the first goal it pays 1.
    np.testing.assert_allclose(modes[0], 0, atol=1e-12)
    assert (total[1], modes[1, 0]) == (1, 1)
    # The ball, of radius 0.25, passes the wall that ends at x = 0.5, from y = 2.5 to 3.5, at (0.75, 2.25) and
    # (0.75, 3.75): 2.37 before that, 1.5 along the wall, 5.88 after it.
    before, through, after = np.hypot(0.75, 2.25), 1.5, np.hypot(5.75, 1.25)
    left = (through / 2 + after) / (before + through + after)
    assert modes[2, 0] == pytest.approx(1 - left, abs=0.01)
    assert total[2] == modes[2].max() == modes[2, 0]


@pytest.mark.parametrize("maze", GOAL_MAZES)
def test_goals_are_the_only_local_optima(maze):
    task = maze()
    free = task.free()
    paid = np.where(free, (1 - task.relative).max(axis=2), -np.inf)
    around = [np.roll(paid, (dx, dy), (0, 1)) for dx in (-2, -1, 0, 1, 2) for dy in (-2, -1, 0, 1, 2) if dx or dy]
    optima = np.argwhere(free & (paid >= np.max(around, axis=0))) * SPACING + task.corner
    assert {tuple(place) for place in optima} == {tuple(goal) for goal in task.goals}


def test_the_dead_end_pays_by_hand():
    data = {"qpos": np.array([[0.0, 0.0], [14.0, 3.0]]), "qvel": np.zeros((2, 2))}
    total, parts, _ = DeadEnd().reward(np.zeros((2, 0)), np.zeros((2, 2)), data)
    np.testing.assert_array_equal(total, [-14, -3])  # the goal is at (14, 0)
    np.testing.assert_array_equal(parts["reward_dist"], total)


def test_straight_ahead_is_a_dead_end_and_there_is_a_way():
    task = DeadEnd()
    straight, (end,) = drive(task, [[tuple(task.goals[0])]])
    # The wall begins at 9.5, so the ball stops at 9.25, after 26 or so of 150 steps in which it was 4.6 farther away on
    # average than it is in the end, 4.75.
    np.testing.assert_allclose(end, [9.25, 0], atol=0.05)
    assert straight["return"].item() == pytest.approx(-150 * 4.75 - 26 * 4.6, abs=10)
    around, (end,) = drive(task, ways_of(DeadEnd))
    np.testing.assert_allclose(end, task.goals[0], atol=0.05)
    assert around["return"].item() > -400
    # A point that gets only as far as the way above the goal, 4.25 from it, is not better off than in the dead end.
    halfway, _ = drive(task, [[*WAYS[DeadEnd][0], (14, 4.25)]])
    assert halfway["return"] < straight["return"]


def test_distances_on_a_grid_by_hand():
    # A room of 7 by 5 points, 0.5 apart, with a wall from the north of which only the southernmost row is free.
    free = np.zeros((11, 9), bool)
    free[2:9, 2:7] = True
    free[5:7, 3:7] = False
    found = grid_distances(free, np.array([[2, 6]]), 0.5)[..., 0]
    assert found[2, 6] == 0
    # Straight, diagonally, and by a step of one and two.
    np.testing.assert_allclose([found[2, 3], found[4, 4], found[3, 4]], [1.5, 2**0.5, 5**0.5 / 2])
    # Around the wall: (2, 6), (3, 4), (4, 3), (5, 2), (7, 3) are two steps of one and two and two diagonals.
    assert found[7, 3] == pytest.approx(0.5 * (2 * 5**0.5 + 2 * 2**0.5))
    # In the wall: as far as the nearest free point, and the way from there.
    assert found[5, 6] == found[4, 6] + 0.5


def test_a_table_is_interpolated():
    # What is linear along each axis is met exactly: 1 + 2 x - y + x y, on a grid from (-1, 2) with spacing 0.5.
    x, y = np.meshgrid(-1 + 0.5 * np.arange(5), 2 + 0.5 * np.arange(4), indexing="ij")
    table = np.stack([1 + 2 * x - y + x * y, 0 * x + 7], axis=-1)
    places = np.array([[-1.0, 2.0], [0.3, 3.1], [1.0, 3.5], [-0.8, 2.9]])
    want = 1 + 2 * places[:, 0] - places[:, 1] + places[:, 0] * places[:, 1]
    np.testing.assert_allclose(interpolate(table, (-1, 2), 0.5, places)[:, 0], want, atol=1e-12)
    # Outside it is the edge's; a simulation that was lost has some finite value, and harms no other.
    outside = interpolate(table, (-1, 2), 0.5, np.array([[9.0, 3.0], [np.nan, 2.0], [0.3, 3.1]]))
    np.testing.assert_allclose(outside[[0, 2], 0], [1 + 2 - 3 + 3, want[1]], atol=1e-12)
    assert np.isfinite(outside).all()
