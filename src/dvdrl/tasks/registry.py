"""Tasks by name."""

from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from dvdrl.errors import DvdrlError
from dvdrl.tasks import balance_and_reach, locomotion, multimodal, point
from dvdrl.tasks.task import Task

TASKS: dict[str, type[Task]] = {}
"""What there is, by id."""


def register(task: type[Task]) -> type[Task]:
    """Make a task known by its id; usable as a class decorator."""
    TASKS[task.id] = task
    return task


for _task in (
    point.Point,
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
    """The task of that id, with options as fields of its dataclass."""
    if task_id not in TASKS:
        raise unknown(task_id, TASKS)
    task = TASKS[task_id]
    known = [field.name for field in fields(task)]
    for name in options:
        if name not in known:
            raise DvdrlError(f"{task_id} has no option {name!r}; it has {', '.join(sorted(known))}")
    return task(**options)


def unknown(task_id: str, names: Iterable[str]) -> DvdrlError:
    """The error for an id that is none of names: it shows the nearest."""
    close = get_close_matches(task_id, list(names), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "`dvdrl tasks` lists what there is"
    return DvdrlError(f"no task {task_id!r}; {hint}")
