"""Rounds of the controller of lambda. A round ends when every member has finished an episode in it.

The controller runs on the host, where it does not wait for the accelerator's updates. After a fixed number of rounds,
it gets the returns of the last one, and then chooses again.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dvdrl.bandits import Controller

_ROUNDS = 4
"""The purpose of a controller's random numbers; `off_policy` uses 0 to 3 for other purposes of a run's seed."""


class Round(NamedTuple):
    """The controller and its current round, which ends when every member has finished an episode in it."""

    controller: Any
    num_begun: Int[np.ndarray, ""]
    """Rounds begun so far; 0 while actions are random."""
    lambda_: Float[np.ndarray, "M"]
    finished: Bool[np.ndarray, "M"]
    returns: Float[np.ndarray, "M"]
    """The return of each member's latest episode in this round."""


Begin = Callable[[Any, Round, Float[np.ndarray, "M"] | None], Round]
"""(seed of the run, previous round, its returns or None if it did not end) -> next round."""


def none_yet(controller: Controller, population: int) -> Round:
    """The state before the first round, while actions are random and lambda is 0."""
    return Round(
        controller=_on_host(controller.init),
        num_begun=np.asarray(0, np.int64),
        lambda_=np.zeros(population, np.float32),
        finished=np.zeros(population, bool),
        returns=np.zeros(population),
    )


def beginning(controller: Controller, population: int, interval: int) -> Begin:
    """A function that begins the next round. The controller gets the returns of every `interval`-th one and chooses."""

    @jax.jit
    def select(seed: Any, num_begun: Any, state: Any) -> tuple[Any, Float[Array, "M"]]:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), _ROUNDS), num_begun)
        state, lambda_ = controller.select(key, state)
        return state, jnp.broadcast_to(lambda_, population)

    update = jax.jit(controller.update)

    def begin(seed: Any, before: Round, returns: Float[np.ndarray, "M"] | None) -> Round:
        state, lambda_ = before.controller, before.lambda_
        if before.num_begun % interval == 0:
            if returns is not None:
                state = _on_host(update, state, returns.astype(np.float32))
            state, lambda_ = _on_host(select, seed, before.num_begun, state)
        return Round(state, before.num_begun + 1, lambda_, np.zeros(population, bool), np.zeros(population))

    return begin


class Rounds:
    """The rounds of several runs during an iteration of `num_steps` steps."""

    def __init__(self, begin: Begin, seeds: Sequence[Any], rounds: Sequence[Round], num_steps: int):
        self._begin, self._seeds, self._num_steps = begin, seeds, num_steps
        self.mean_lambda = np.zeros(len(rounds))
        """The mean lambda of each run over its members and all steps, once all steps are counted."""
        self._go_on([jax.tree.map(np.copy, each) for each in rounds])

    def _go_on(self, rounds: list[Round]) -> None:
        self.current = rounds
        self.lambda_: Float[Array, "seeds M"] = jax.device_put(np.stack([each.lambda_ for each in rounds]))
        """The current lambda of each member, on the accelerator."""

    def count(self) -> None:
        """Count a step with the current lambda."""
        self.mean_lambda += [float(each.lambda_.mean()) / self._num_steps for each in self.current]

    def begin_first(self) -> None:
        """Begin the first round of each run, if none has begun."""
        if not self.current[0].num_begun:
            self._go_on([self._begin(seed, each, None) for seed, each in zip(self._seeds, self.current, strict=True)])

    def finish(self, run: int, member: int, value: float) -> None:
        """Record that a member has finished an episode with the return `value`."""
        self.current[run].finished[member], self.current[run].returns[member] = True, value

    def begin_next(self) -> None:
        """Begin the next round of each run whose members have all finished an episode.

        Call it after recording all episodes that ended in a step. If several of one member did, they belong to one
        round.
        """
        if any(each.finished.all() for each in self.current):
            self._go_on(
                [
                    self._begin(seed, each, each.returns) if each.finished.all() else each
                    for seed, each in zip(self._seeds, self.current, strict=True)
                ]
            )


def _on_host(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function on the host, where it does not wait for the accelerator's updates; return NumPy arrays."""
    try:
        device = jax.devices("cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS allows only the accelerator: slower, with equally valid results
        device = jax.devices()[0]
    with jax.default_device(device):
        return jax.tree.map(np.asarray, function(*arguments))
