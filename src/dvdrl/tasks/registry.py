"""Tasks by name."""

import math
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from types import UnionType
from typing import Any, get_args, get_origin

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
    """The value of an option. JSON has lists for tuples; old runs have floats, such as 2.0 for an integer."""
    if isinstance(value, float) and not math.isfinite(value):
        raise DvdrlError(f"{name}: expected a finite number, got {value}")
    if isinstance(value, list):
        value = tuple(value)
    if kind is int:
        if _is_number(value) and value >= 1 and value == int(value):
            return int(value)
        raise DvdrlError(f"{name}: expected a whole number of at least 1, got {value}")
    if not _fits(kind, value):
        got = f"the number {value}" if _is_number(value) else repr(value)
        raise DvdrlError(f"{name}: expected {str(kind) if get_args(kind) else kind.__name__}, got {got}")
    return value


def _fits(kind: Any, value: Any) -> bool:
    """Whether a value has the type of a field. What is not known of a type is left to the task."""
    inside = get_args(kind)
    if isinstance(kind, UnionType):
        return any(_fits(each, value) for each in inside)
    if get_origin(kind) is tuple and isinstance(value, tuple) and Ellipsis not in inside:
        return len(value) == len(inside) and all(map(_fits, inside, value))
    if kind is bool:
        return isinstance(value, bool) or (_is_number(value) and value in (0, 1))
    if kind in (int, float):
        return _is_number(value) and math.isfinite(value)
    known = get_origin(kind) or kind
    return not isinstance(known, type) or isinstance(value, known)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def unknown(task_id: str, names: Iterable[str]) -> DvdrlError:
    """The error for an unknown id: it suggests the most similar names."""
    close = get_close_matches(task_id, list(dict.fromkeys(names)), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "`dvdrl tasks` lists what there is."
    return DvdrlError(f"no task {task_id!r}; {hint} Environments of other packages need their module: MODULE:{task_id}")
