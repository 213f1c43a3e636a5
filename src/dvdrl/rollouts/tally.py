"""What becomes of n episodes, summed up step by step. A row depends on its own episode alone, bit for bit."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from dvdrl.interfaces import Episodes
from dvdrl.policies import Moments
from dvdrl.rollouts.measures import Info, Measures
from dvdrl.tasks.task import MODE

_SAMPLING = 1
"""Keys of draws of actions are folded with this, so that they are not those of other draws."""
BLOCK = 256
"""Steps whose random numbers are drawn together."""


class Tally:
    """The sums of n episodes. `rows` selects some of them."""

    def __init__(self, n: int, num_observed: int, measures: Measures):
        self._measures = measures
        self._numbers = np.arange(n)
        self._first, self._sums, self._squares, self._states = np.zeros((4, n, num_observed))
        self._returns, self._lengths = np.zeros(n), np.zeros(n, np.int32)
        self._modes: dict[str, np.ndarray] = {}
        self._measured = np.zeros((n, measures.size))

    def begin(self, rows: Any, obs: Float[np.ndarray, "... obs"]) -> None:
        """Begin episodes with these observations."""
        self._first[rows] = self._states[rows] = obs
        sums: Any
        for sums in (self._sums, self._squares, self._returns, self._lengths, self._measured, *self._modes.values()):
            sums[rows] = 0

    def add_acted_on(
        self, rows: Any, obs: Float[np.ndarray, "m obs"], keep: Bool[np.ndarray, "m"], active: Bool[np.ndarray, "m"]
    ) -> None:
        """Add observations that active policies act on; those in `keep` replace the kept ones."""
        kept = keep & active
        if kept.any():
            self._states[self._numbers[rows][kept]] = obs[kept]
        # Relative to the first observation, so that a constant stays exact and sums of squares stay small.
        difference = (obs - self._first[rows]) * active[:, None]
        self._sums[rows] += difference
        self._squares[rows] += np.square(difference)
        self._lengths[rows] += active

    def add_results(
        self,
        rows: Any,
        rewards: Float[np.ndarray, "m"],
        info: Info,
        obs: Float[np.ndarray, "m obs"],
        active: Bool[np.ndarray, "m"],
    ) -> None:
        """Add what a step has led to."""
        self._returns[rows] += rewards
        for name in (name for name in info if name.startswith(MODE)):
            mode, paid = name.removeprefix(MODE), 0.0 + info[name]
            if mode not in self._modes:
                self._modes[mode] = np.zeros(len(self._numbers), paid.dtype)
            self._modes[mode][rows] += paid
        if self._measures.each:
            self._measured[rows] = self._measures.added(self._measured[rows], info, obs, active)

    def lose(self, rows: Any) -> None:
        """Give up episodes whose policies have put out what is not finite."""
        self._returns[rows] = np.nan

    def episodes(self, rows: Any = slice(None)) -> Episodes:
        """The results of ended episodes."""
        lengths, first, sums = self._lengths[rows], self._first[rows], self._sums[rows]
        mean = sums / lengths[:, None]
        sum_squares = np.maximum(self._squares[rows] - sums * mean, 0.0)
        moments = Moments(lengths.astype(np.float32), *(x.astype(np.float32) for x in (first + mean, sum_squares)))
        return Episodes(
            returns=self._returns[rows],
            lengths=lengths,
            moments=moments,
            states=self._states[rows].astype(np.float32),
            modes={mode: paid[rows] for mode, paid in self._modes.items()},
            measures=self._measures.of_episodes(self._measured[rows], lengths).astype(np.float32),
        )


def joined(parts: Sequence[Episodes]) -> Episodes:
    """Several batches of episodes as one. A mode that a batch has not heard of has paid nothing there."""
    kinds = {mode: paid.dtype for part in parts for mode, paid in part.modes.items()}
    whole = [
        part._replace(
            modes={mode: part.modes.get(mode, np.zeros(len(part.returns), kind)) for mode, kind in kinds.items()}
        )
        for part in parts
    ]
    episodes: Episodes = jax.tree.map(lambda *fields: np.concatenate(fields), *whole)
    return episodes


@jax.jit
def replaces(key_data: UInt32[Array, "n 2"], first_step: Int[Array, ""]) -> Bool[Array, "n block"]:
    """In which of the next steps the current state replaces an episode's kept state.

    Step t does with probability 1 / (t + 1). So at the end of the episode each of its states is equally likely.
    """

    def of_one(data: UInt32[Array, "2"]) -> Bool[Array, "block"]:
        key = jax.random.fold_in(jax.random.wrap_key_data(data), first_step)
        return jax.random.uniform(key, (BLOCK,)) * (first_step + 1 + jnp.arange(BLOCK)) < 1.0

    return jax.vmap(of_one)(key_data)


def sampling(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Gumbel noise. The largest of outputs with such noise is a draw from the distribution that is their softmax."""
    return jax.random.gumbel(jax.random.fold_in(key, _SAMPLING), shape)


@functools.partial(jax.jit, static_argnames="num_outputs")
def sampling_noise(
    key_data: UInt32[Array, "n 2"], first_step: Int[Array, ""], num_outputs: int
) -> Float[Array, "n block out"]:
    """What is added to the outputs of n episodes in each of the next steps, if their actions are drawn."""

    def of_one(data: UInt32[Array, "2"]) -> Float[Array, "block out"]:
        return sampling(jax.random.fold_in(jax.random.wrap_key_data(data), first_step), (BLOCK, num_outputs))

    return jax.vmap(of_one)(key_data)
