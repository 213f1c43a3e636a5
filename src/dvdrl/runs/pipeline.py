"""The order of requests to the accelerator for actions and updates, so that simulations do not wait for updates.

For each step of the simulations, actions are requested first, from the current policies. Then updates are started for
the transitions that were collected so far. The accelerator computes them while the simulations take the actions.
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
        """The learner's state after all updates that have been started."""
        self.statistics: Any = None
        """Statistics of the updates since `begin`."""

    def recall(self, num_added: int, transitions: Sequence[Float[np.ndarray, "n row"]]) -> None:
        """Fill the replay buffers with `transitions`, the latest of `num_added` that each run has added."""
        self._replay = replay.recall(self._replay, num_added, transitions)

    def begin(self, states: Sequence[Any]) -> None:
        """Begin an iteration, from the learner's state in each run."""
        self.state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        self.statistics = self._learner.no_statistics(self._num_runs)
        self._pending = []

    def ask(self, latest: Step, lambda_: Lambda, *, act: bool, learn: bool) -> Array | None:
        """Request actions, unless they are random; then start the updates that are due. Waits for neither.

        Args:
            latest: the latest step, with the observations to act on.
            lambda_: the weight of diversity in the updates.
            act: whether to request actions.
            learn: whether to update; if not, transitions are only stored.
        """
        asked = self._learner.act(self.state, latest) if act else None
        if len(self._pending) == self._learner.steps_per_update:
            self._start(lambda_, learn=learn)
        return asked

    def collected(self, step: Step) -> None:
        """Add a step of the simulations to learn from."""
        self._pending.append(step)

    def finish(self, lambda_: Lambda, *, learn: bool) -> None:
        """Start the last updates of an iteration, which is a whole number of updates."""
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
    """Refuse replay buffers larger than the memory; otherwise the process would be killed once they fill up."""
    needed = num_runs * capacity * row_size * np.dtype(np.float32).itemsize
    limits = jax.devices()[0].memory_stats() or {}  # only accelerators report them
    there = limits.get("bytes_limit") or _memory()
    if needed > there:
        raise DvdrlError(
            f"buffer_size: {capacity:,} transitions for each of {num_runs} seeds take {needed / 1e9:,.0f} GB, but the"
            f" memory has {there / 1e9:,.0f} GB; choose a smaller buffer_size or train fewer seeds at once"
        )


def _memory() -> float:
    """The memory of this machine in bytes; infinite if the operating system does not report it by sysconf."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", ()):
        return np.inf
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
