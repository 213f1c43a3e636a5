"""Tasks by name."""

import math
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from types import UnionType
from typing import Any, get_args

from dvdrl.errors import DvdrlError
from dvdrl.tasks import balance_and_reach, landmarks, locomotion, mazes, multimodal, point
from dvdrl.tasks.task import Task

TASKS: dict[str, type[Task]] = {}
"""All tasks, by id."""


def register(task: type[Task]) -> type[Task]:
    """Make a task available by its id; usable as a class decorator."""
    TASKS[task.id] = task
    return task


for _task in (
    point.Point,
    landmarks.Landmarks,
    mazes.FourRooms,
    mazes.ForkedMaze,
    mazes.EightRooms,
    mazes.DeadEnd,
    multimodal.HalfCheetahFwdBwd,
    multimodal.AntFwdBwd,
    locomotion.Swimmer,
    locomotion.HalfCheetah,
    locomotion.Hopper,
    locomotion.Walker2d,
    locomotion.Ant,
    locomotion.Humanoid,
    locomotion.HumanoidStandup,
    balance_and_reach.InvertedPendulum,
    balance_and_reach.InvertedDoublePendulum,
    balance_and_reach.Reacher,
    balance_and_reach.Pusher,
):
    register(_task)


def make(task_id: str, **options: Any) -> Task:
    """The task with this id; options are fields of its dataclass."""
    if task_id not in TASKS:
        raise unknown(task_id, TASKS)
    kinds = {field.name: field.type for field in fields(TASKS[task_id])}
    for name in options:
        if name not in kinds:
            raise DvdrlError(f"{task_id} has no option {name!r}; it has {', '.join(sorted(kinds))}")
    task = TASKS[task_id](**{name: _checked(name, kinds[name], value) for name, value in options.items()})
    try:
        _ = task.model
    except ValueError as error:
        given = ", ".join(f"{name} {value}" for name, value in options.items())
        raise DvdrlError(
            f"{task_id} has no model with {given or 'these files'}: {str(error).splitlines()[0]}"
        ) from error
    return task


def _checked(name: str, kind: Any, value: Any) -> Any:
    """The value of an option. On the command line all values are floats, such as 2.0 for an integer."""
    if isinstance(value, float) and not math.isfinite(value):
        raise DvdrlError(f"{name}: expected a finite number, got {value}")
    if kind is not int:
        kinds = {*get_args(kind)} if isinstance(kind, UnionType) else {kind}
        if isinstance(value, int | float) and not isinstance(kind, str) and not {int, float, bool, Any} & kinds:
            raise DvdrlError(f"{name}: expected {getattr(kind, '__name__', kind)}, got the number {value}")
        return value
    if isinstance(value, int | float) and value >= 1 and value == int(value):
        return int(value)
    raise DvdrlError(f"{name}: expected a whole number of at least 1, got {value}")


def unknown(task_id: str, names: Iterable[str]) -> DvdrlError:
    """The error for an unknown id: it suggests the most similar names."""
    close = get_close_matches(task_id, list(dict.fromkeys(names)), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "`dvdrl tasks` lists what there is"
    return DvdrlError(f"no task {task_id!r}; {hint}")
