"""In which order the accelerator is asked for actions and updates, so that simulations do not wait for updates.

For each step of the simulations, actions are asked for first, from the policies as they are. Then the updates are
started for the transitions that have been collected so far. The accelerator computes them while the simulations take
the actions.
"""

import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dvdrl.errors import DvdrlError
from dvdrl.off_policy import Learner, Step, replay

Lambda = Float[Array, "seeds M"]


class Pipeline:
    """The learner of several runs on the accelerator: its state, and the replay buffers, which stay there."""

    def __init__(self, learner: Learner, num_runs: int):
        _refuse_more_than_memory(num_runs, learner.capacity, learner.row_size)
        self._learner, self._num_runs = learner, num_runs
        self._replay = replay.empty((num_runs, learner.capacity), learner.row_size)
        self._pending: list[Step] = []
        self.state: Any = None
        """Of the learner, after the updates that have been started."""
        self.statistics: Any = None
        """Of those updates, since `begin`."""

    def recall(self, num_added: int, transitions: Sequence[Float[np.ndarray, "n row"]]) -> None:
        """Fill the replay buffers with the latest of so many transitions."""
        self._replay = replay.recall(self._replay, num_added, transitions)

    def begin(self, states: Sequence[Any]) -> None:
        """Begin an iteration from the learner's states in the runs."""
        self.state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        self.statistics = self._learner.no_statistics(self._num_runs)
        self._pending = []

    def ask(self, latest: Step, lambda_: Lambda, *, act: bool, learn: bool) -> Array | None:
        """Ask for actions, unless they are random; then start what is due. Waits for neither.

        Args:
            latest: the latest step, with the observations to act on.
            lambda_: the weight of diversity in the updates.
            act: ask for actions at all.
            learn: make updates; otherwise transitions are only stored.
        """
        asked = self._learner.act(self.state, latest) if act else None
        if len(self._pending) == self._learner.steps_per_update:
            self._start(lambda_, learn=learn)
        return asked

    def collected(self, step: Step) -> None:
        """Take a step of the simulations, to be learned from."""
        self._pending.append(step)

    def finish(self, lambda_: Lambda, *, learn: bool) -> None:
        """Start what is due at the end of an iteration, which is a whole number of updates."""
        self._start(lambda_, learn=learn)

    def _start(self, lambda_: Lambda, *, learn: bool) -> None:
        steps, self._pending = self._pending, []
        if learn:
            self.state, self._replay, self.statistics = self._learner.update(
                self.state, self._replay, self.statistics, steps, lambda_
            )
        else:
            self.state, self._replay = self._learner.add(self.state, self._replay, steps)


def _refuse_more_than_memory(num_runs: int, capacity: int, row_size: int) -> None:
    """Refuse replay buffers that cannot be held, instead of being killed when they have filled up."""
    needed = num_runs * capacity * row_size * np.dtype(np.float32).itemsize
    limits = jax.devices()[0].memory_stats() or {}  # of an accelerator
    there = limits.get("bytes_limit") or _memory()
    if needed > there:
        raise DvdrlError(
            f"buffer_size: {capacity:,} transitions of {num_runs} seeds take {needed / 1e9:,.0f} GB, and there are"
            f" {there / 1e9:,.0f}; keep fewer of them or train fewer seeds at once"
        )


def _memory() -> float:
    """Bytes of this machine; infinite where the operating system has no sysconf to ask."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", ()):
        return np.inf
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
