"""When a run has ended, and why: a function of its options and of its lines of metrics."""

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, Never

from dvdrl.errors import DvdrlError
from dvdrl.runs.training import Training

End = Literal["iterations", "steps", "until", "until_stalled"]
"""The option that ends a run."""


class Course(NamedTuple):
    """The course of a run so far."""

    iteration: int = 0
    env_steps: int = 0
    best: float = -math.inf
    best_at: int = 0
    """The best return of any member in any iteration, and the first iteration that had it."""
    by: End | None = None
    """Which option has ended it; None if it has not ended."""
    ended: str | None = None
    """The same in words. Runs that learn together may go on: one that has ended stays so."""


def begun(options: Training[Never]) -> Course:
    """The course of a run before its first iteration."""
    return _judged(Course(), options)


def after(line: Mapping[str, Any], before: Course, options: Training[Never]) -> Course:
    """The course of a run with another line of metrics."""
    iteration, env_steps = (value if type(value := line.get(name)) is int else 0 for name in ("iteration", "env_steps"))
    now = before._replace(iteration=iteration, env_steps=env_steps)
    value = line.get("best_return")
    if isinstance(value, int | float) and value > before.best:
        now = now._replace(best=value, best_at=iteration)
    return now if now.by is not None else _judged(now, options)


def course(lines: Iterable[Mapping[str, Any]], options: Training[Never]) -> Course:
    """The course of a run with these lines of metrics."""
    found = begun(options)
    for line in lines:
        found = after(line, found, options)
    return found


def _judged(so_far: Course, options: Training[Never]) -> Course:
    stalled = so_far.iteration - so_far.best_at
    if options.until is not None and so_far.best >= options.until:
        return so_far._replace(by="until", ended=f"a return of {so_far.best:.6g} reaches --until {options.until:g}")
    if options.until_stalled is not None and stalled >= options.until_stalled:
        said = (
            f"the best return, {so_far.best:.6g}, is {stalled} iterations old (--until-stalled {options.until_stalled})"
        )
        return so_far._replace(by="until_stalled", ended=said)
    if so_far.iteration >= options.iterations:
        return so_far._replace(by="iterations", ended=f"it has done its {options.iterations} iterations")
    if options.steps is not None and so_far.env_steps >= options.steps:
        return so_far._replace(by="steps", ended=f"it has done its {options.steps:,} environment steps")
    return so_far


def time_is_over(duration: str | None) -> Callable[[], str | None]:
    """A function that says so once this duration, such as 90s, 30m, 2h or 1h30m, has passed since this call.

    Raises:
        DvdrlError: the text is no duration.
    """
    if duration is None:
        return lambda: None
    parts = (
        re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", duration) if isinstance(duration, str) else None
    )
    seconds = (
        sum(int(part or 0) * unit for part, unit in zip(parts.groups(), (86400, 3600, 60, 1), strict=True))
        if parts
        else 0
    )
    if not 0 < seconds < 2**53:
        raise DvdrlError(f"for: expected a duration such as 90s, 30m, 2h or 1h30m, got {duration!r}")
    end = time.monotonic() + seconds
    return lambda: f"{duration} are over" if time.monotonic() >= end else None
