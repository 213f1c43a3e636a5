"""Training in the terminal: one line for each run, no wider than the terminal, with the time that is left."""

import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from dvdrl.errors import printable

SLOW = 3.0
"""Seconds after which an iteration shows how long it has been running."""
_RECENT = 20
"""Number of iterations by whose pace the time left is estimated."""
_BAR = 10


class Pace:
    """How fast a run has been lately. The first iteration does not count, because it compiles."""

    def __init__(self, iterations: int, steps: int | None):
        self._iterations, self._steps = iterations, steps
        self._recent: deque[tuple[float, int, int]] = deque(maxlen=_RECENT)

    def add(self, now: float, iteration: int, env_steps: int) -> None:
        """An iteration has ended."""
        self._recent.append((now, iteration, env_steps))

    @property
    def seconds_each(self) -> float | None:
        """Seconds per iteration; None if it is not known yet."""
        if len(self._recent) < 2:
            return None
        (begin, first, _), (end, last, _) = self._recent[0], self._recent[-1]
        return (end - begin) / (last - first)

    @property
    def left(self) -> float | None:
        """Seconds until the run has its iterations or its steps; None if that is not known yet."""
        if (each := self.seconds_each) is None:
            return None
        (_, first, before), (_, last, env_steps) = self._recent[0], self._recent[-1]
        iterations: float = self._iterations - last
        if self._steps is not None:
            iterations = min(iterations, (self._steps - env_steps) * (last - first) / max(env_steps - before, 1))
        return max(iterations, 0.0) * each


class Display:
    """In a terminal, a live line for each run; elsewhere, a plain line for each iteration.

    An iteration that takes long is shown too: how long it has been running, and in a terminal how much of it is done
    if it takes as long as those before.
    """

    def __init__(self, title: str, seeds: Mapping[Path, int], *, iterations: int, steps: int | None, done: int):
        self._title, self._iterations = printable(title), iterations
        self._labels = {path: f"seed {seed}" for path, seed in seeds.items()}
        self._paces = {path: Pace(iterations, steps) for path in seeds}
        self._done = dict.fromkeys(seeds, done)
        self._since = time.monotonic()
        self._live, self._ended, self._shown_at = sys.stderr.isatty(), threading.Event(), dict.fromkeys(seeds, "")
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(_BAR),
            TextColumn("{task.fields[shown]}", markup=False),
            console=Console(stderr=True),
            disable=not self._live,
        )
        self._tasks = {
            path: self._progress.add_task(label, total=iterations, completed=done, shown="")
            for path, label in self._labels.items()
        }
        self._ticking = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        self._progress.start()
        if self._live:
            self._progress.console.print(self._title, markup=False, highlight=False)
        self._ticking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._ticking.join()
        self._progress.stop()

    def show(self, path: Path, line: Mapping[str, Any]) -> None:
        """Show the metrics of an iteration."""
        self._since, self._done[path] = time.monotonic(), line["iteration"]
        pace = self._paces[path]
        pace.add(self._since, line["iteration"], line["env_steps"])
        parts = [
            f"{line['iteration']}/{self._iterations}",
            f"best {line['best_return']:.1f}",
            f"mean {line['mean_return']:.1f}",
            *([f"{in_words(pace.left)} left"] if pace.left else []),
            *([f"held out {line['held_out_return']:.1f}"] if "held_out_return" in line else []),
            f"lambda {line['lambda']:.2g}",
            f"log det {line['log_det']:.2f}",
            f"{line['steps_per_second']:,.0f} steps/s",
        ]
        if self._live:
            self._shown_at[path] = fitting(parts, _width() - len(self._labels[path]) - _BAR - 2)
            self._progress.update(self._tasks[path], completed=line["iteration"], shown=self._shown_at[path])
        else:
            name = f"{self._title} {self._labels[path]}"
            print(fitting([f"{name}  {parts[0]}", *parts[1:]], _width()), file=sys.stderr, flush=True)

    def _tick(self) -> None:
        """Show an iteration that takes long: every second in a terminal, elsewhere after ever longer pauses."""
        said, pause = self._since, SLOW
        while not self._ended.wait(min(SLOW, 1.0) if self._live else SLOW / 4):
            begun = self._since
            running = time.monotonic() - begun
            if running < SLOW:
                said, pause = begun, SLOW
            elif self._live:
                self._show_running(running)
            elif time.monotonic() - max(said, begun) >= pause:
                said, pause = time.monotonic(), 2 * pause
                iteration = min(self._done.values()) + 1
                print(f"{self._title}  iteration {iteration}: {in_words(running)} so far", file=sys.stderr, flush=True)

    def _show_running(self, running: float) -> None:
        for path, task in self._tasks.items():
            done, each = self._done[path], self._paces[path].seconds_each
            part = min(running / each, 0.99) if each else 0.0
            parts = [f"iteration {done + 1}: {in_words(running)}", self._shown_at[path]]
            shown = fitting(parts, _width() - len(self._labels[path]) - _BAR - 2)
            self._progress.update(task, completed=min(done + part, self._iterations), shown=shown)


def fitting(parts: Sequence[str], width: int) -> str:
    """The parts as one line; those at the end that do not fit are left out."""
    line = parts[0]
    for part in parts[1:]:
        if len(line) + 2 + len(part) > width:
            break
        line = f"{line}  {part}"
    return line


def in_words(seconds: float) -> str:
    """A duration with its two largest units, such as 1h05m."""
    total = round(seconds)
    for unit, size, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if total >= size:
            return f"{total // size}{unit}{total % size // part:02}{smaller}"
    return f"{total}s"


def _width() -> int:
    return get_terminal_size().columns
