"""When a run has ended, and why: a function of its options and of its lines of metrics."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Never

from dvdrl.runs.training import Training


class Course(NamedTuple):
    """The course of a run so far."""

    iteration: int = 0
    env_steps: int = 0
    ended: str | None = None
    """Why it has ended; None if it has not."""


def begun(options: Training[Never]) -> Course:
    """The course of a run before its first iteration."""
    return _judged(Course(), options)


def after(line: Mapping[str, Any], before: Course, options: Training[Never]) -> Course:
    """The course of a run with another line of metrics."""
    iteration, env_steps = (value if type(value := line.get(name)) is int else 0 for name in ("iteration", "env_steps"))
    return _judged(before._replace(iteration=iteration, env_steps=env_steps), options)


def course(lines: Iterable[Mapping[str, Any]], options: Training[Never]) -> Course:
    """The course of a run with these lines of metrics."""
    found = begun(options)
    for line in lines:
        found = after(line, found, options)
    return found


def _judged(so_far: Course, options: Training[Never]) -> Course:
    if so_far.iteration >= options.iterations:
        return so_far._replace(ended=f"it has done its {options.iterations} iterations")
    if options.steps is not None and so_far.env_steps >= options.steps:
        return so_far._replace(ended=f"it has done its {options.steps:,} environment steps")
    return so_far
