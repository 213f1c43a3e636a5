"""Measures: numbers of an episode by which the user compares members (`--behaviour measures`).

A measure has a value in every step: a number in the environment's `info`, or a function of the observation after the
step. It is averaged over the episode's steps, or taken from its last step. The functions here take NumPy arrays from
the host's executors, and JAX arrays (also while traced) from the device's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from dvdrl.errors import DvdrlError
from dvdrl.tasks.task import LAST, Task

Info = Mapping[str, Any]


class Measure(NamedTuple):
    """One of them, as the user named it."""

    text: str
    last: bool
    """Whether only its value at the episode's last step counts, and not its mean."""
    key: str
    """Where `info` has its value; not used if there is a function."""
    function: Callable[[Float[Any, "n obs"]], Float[Any, "n d"]] | None = None
    size: int = 1
    """How many numbers it is."""


@dataclass(frozen=True)
class Measures:
    """All measures of a run, which together make rows of D numbers."""

    each: tuple[Measure, ...] = ()

    @property
    def size(self) -> int:
        """D."""
        return sum(measure.size for measure in self.each)

    @property
    def names(self) -> tuple[str, ...]:
        """The measure that each of the D numbers belongs to."""
        return tuple(measure.text for measure in self.each for _ in range(measure.size))

    def added(
        self, so_far: Float[Any, "n D"], info: Info, obs: Float[Any, "n obs"], stepped: Bool[Any, "n"]
    ) -> Float[Any, "n D"]:
        """Sums, or latest values, after another step. Only rows that have stepped change.

        Raises:
            DvdrlError: `info` lacks a measure, or values are not one number, or row of numbers, for each episode.
        """
        xp = obs.__array_namespace__()
        columns = [_values(measure, info, obs, stepped) for measure in self.each]
        for measure, column in zip(self.each, columns, strict=True):
            _expect(column.shape[1] == measure.size, measure, f"{measure.size} columns as before", column.shape)
        now = xp.concat(columns, axis=1)
        return xp.where(stepped[:, None], xp.where(self._last(xp), now, so_far + now), so_far)

    def of_episodes(self, added: Float[Any, "n D"], lengths: Int[Any, "n"]) -> Float[Any, "n D"]:
        """The measures of episodes of these lengths."""
        xp = added.__array_namespace__()
        return xp.where(self._last(xp), added, added / xp.maximum(lengths, 1)[:, None])

    def _last(self, xp: Any) -> Bool[Any, "1 D"]:
        return xp.asarray([measure.last for measure in self.each for _ in range(measure.size)], dtype=bool)[None]


def of_task(task: Task) -> Measures:
    """The measures that a task names itself."""
    return Measures(tuple(Measure(name, name.startswith(LAST), name.removeprefix(LAST)) for name in task.measures))


def checked(measures: tuple[Measure, ...], info: Info, obs: Float[np.ndarray, "n obs"]) -> Measures:
    """These measures with their sizes, from one step of a few environments.

    Raises:
        DvdrlError: as in `Measures.added`, or a value is not finite.
    """
    sized = []
    for measure in measures:
        values = _values(measure, info, obs, np.ones(len(obs), bool))
        if not np.isfinite(values).all():
            raise DvdrlError(f"measures: {measure.text} is not finite in the first step: {values[0]}")
        sized.append(measure._replace(size=values.shape[1]))
    return Measures(tuple(sized))


def _values(measure: Measure, info: Info, obs: Float[Any, "n obs"], stepped: Bool[Any, "n"]) -> Float[Any, "n d"]:
    """The values of one measure in a step."""
    xp, n = obs.__array_namespace__(), obs.shape[0]
    if measure.function is not None:
        try:
            values = xp.asarray(measure.function(obs), dtype=obs.dtype)
        except Exception as error:  # other people's code may raise anything
            said, _, _ = f"{type(error).__name__}: {error}".partition("\n")
            raise DvdrlError(
                f"measures: {measure.text} failed for observations of shape {obs.shape}: {said}"
            ) from error
        fits = values.ndim == 2 and values.shape[0] == n and values.shape[1] > 0
        _expect(fits, measure, f"a row for each of {n} observations, as in observations[:, :2]", values.shape)
        return values
    told = info.get("_" + measure.key)  # Gymnasium's mark of the environments that gave a value; None: all
    if measure.key not in info or (told is not None and not np.all(told | ~stepped)):
        known = ", ".join(sorted(name for name in info if not name.startswith("_"))) or "nothing"
        raise DvdrlError(f"measures: expected {measure.key} in the info of every step, which has {known}")
    try:
        values = xp.asarray(info[measure.key], dtype=obs.dtype)
    except (TypeError, ValueError) as error:
        raise DvdrlError(f"measures: expected a number as {measure.key}, got {info[measure.key][0]!r}") from error
    _expect(values.shape == (n,), measure, "a number for each environment", values.shape)
    return values[:, None]


def _expect(fits: bool, measure: Measure, expected: str, shape: tuple[int, ...]) -> None:
    if not fits:
        raise DvdrlError(f"measures: {measure.text}: expected {expected}, got an array of shape {shape}")
