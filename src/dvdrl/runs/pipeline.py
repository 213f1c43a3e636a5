"""The order of requests to the accelerator for actions and updates, so that simulations do not wait for updates.

For each step of the simulations, actions are requested first, from the current policies. Then updates are started for
the transitions that were collected so far. The accelerator computes them while the simulations take the actions.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dvdrl.off_policy import Learner, Step, replay

Lambda = Float[Array, "seeds M"]


class Pipeline:
    """The learner of several runs on the accelerator: its state, and the replay buffers, which stay there."""

    def __init__(self, learner: Learner, num_runs: int):
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
