"""Episodes on this machine's cores: all of them as one batch of the host engine, each with its own policy.

Policies are evaluated by NumPy, one small matrix product a simulation: a product then is the same to the bit whatever
batch it is in, which a fused batch product is not, and at a thousand policies it is as fast.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from jaxtyping import Array, Bool, Int, UInt32

from dvdrl.engines import refuse_endless
from dvdrl.interfaces import Ask, Episodes, Rollouts
from dvdrl.networks import MLP
from dvdrl.normalizer import Moments
from dvdrl.rollouts.timed import Timed
from dvdrl.tasks.task import MODE

Tree = TypeVar("Tree")

_BLOCK = 256
"""Steps whose random numbers are drawn together."""


class Local(Timed):
    """Evaluates rollouts of policies with the given hidden layers.

    Args:
        make_envs: makes so many environments, with autoreset disabled: ended episodes rest and pay nothing.
        hidden: widths of the policy's hidden layers.
    """

    def __init__(self, make_envs: Callable[[int], VectorEnv[Any, Any, Any]], hidden: Sequence[int]):
        self._make_envs = make_envs
        self._envs = make_envs(1)
        observed, acted = self._envs.single_observation_space, self._envs.single_action_space
        if not isinstance(observed, Box) or not isinstance(acted, Box):
            raise TypeError(f"expected observations and actions that are vectors, got {observed} and {acted}")
        self.policy = MLP((observed.shape[0], *hidden, acted.shape[0]))
        self.action_low, self.action_high = acted.low, acted.high
        """What the policy's -1 and 1 stand for."""

    def evaluate(self, ask: Ask, states: Sequence[Any]) -> list[Episodes]:
        """The episodes that each of the states asks for, all as one batch."""
        asked = [ask(state) for state in states]
        ends = np.cumsum([len(rollouts.member) for rollouts in asked])
        return split(self.run(join(asked)), ends)

    def run(self, rollouts: Rollouts) -> Episodes:
        """Run every episode to its end."""
        _, params, shift, scale, starts, key_data = (np.asarray(field) for field in rollouts)
        n = len(params)
        if self._envs.num_envs != n:
            self._envs.close()
            self._envs = self._make_envs(n)
        centre, half_range = (self.action_high + self.action_low) / 2, (self.action_high - self.action_low) / 2

        obs = self._timed(self._envs.reset, seed=starts.tolist())[0].astype(np.float64, copy=False)  # bytes would wrap
        first, sums, squares = obs.copy(), np.zeros(obs.shape), np.zeros(obs.shape)
        states, returns, lengths = obs.copy(), np.zeros(n), np.zeros(n, np.int32)
        actions = np.zeros((n, len(centre)), np.float32)
        modes: dict[str, np.ndarray] = {}
        active = np.ones(n, bool)
        rows: Any = slice(None)  # whose policies are evaluated: all that are active, and at most as many that are not
        step = 0
        while active.any():
            if step % _BLOCK == 0:
                keep = np.asarray(_keep(key_data, step))
            kept = np.flatnonzero(keep[:, step % _BLOCK] & active)
            states[kept] = obs[kept]
            seen = obs[rows]
            # Relative to the first observation: what is constant stays exactly so, and sums of squares stay small.
            difference = (seen - first[rows]) * active[rows, None]
            sums[rows] += difference
            squares[rows] += np.square(difference)
            lengths += active

            inputs = ((seen - shift[rows]) * scale[rows]).astype(np.float32)
            actions[rows] = centre + half_range * self.policy.apply(params, inputs[:, None])[:, 0]
            lost = ~np.isfinite(actions).all(axis=1)
            if lost.any():  # no simulator takes it: the episode ends here, and its return says so
                actions[lost], returns[lost], active[lost] = 0.0, np.nan, False
            observed, rewards, terminated, truncated, info = self._timed(self._envs.step, actions)
            obs = observed.astype(np.float64, copy=False)
            returns += rewards
            for name in (name for name in info if name.startswith(MODE)):
                mode = name.removeprefix(MODE)
                modes[mode] = modes.get(mode, 0.0) + info[name]
            active &= ~(terminated | truncated)
            step += 1
            refuse_endless(self._envs, step)
            if 2 * np.count_nonzero(active) <= len(params):
                rows = np.flatnonzero(active)
                params = np.asarray(rollouts.params)[rows]

        mean = sums / lengths[:, None]
        sum_squares = np.maximum(squares - sums * mean, 0.0)
        moments = Moments(lengths.astype(np.float32), *(x.astype(np.float32) for x in (first + mean, sum_squares)))
        return Episodes(returns, lengths, moments, states.astype(np.float32), modes)

    def close(self) -> None:
        """Free the environments."""
        self._envs.close()


def join(parts: Sequence[Tree]) -> Tree:
    """One batch of several."""
    joined: Tree = jax.tree.map(lambda *fields: np.concatenate(fields), *parts)
    return joined


def split(batch: Tree, ends: Sequence[int] | Int[np.ndarray, "parts"]) -> list[Tree]:
    """The parts of a batch, by the index after the last of each."""
    return [
        jax.tree.map(lambda field, begin=begin, end=end: field[begin:end], batch)
        for begin, end in zip((0, *ends), ends, strict=False)
    ]


@jax.jit
def _keep(key_data: UInt32[Array, "n 2"], first_step: Int[Array, ""]) -> Bool[Array, "n block"]:
    """In which of the next steps an episode's kept state is replaced by the current one.

    Step t with a chance of 1 / (t + 1): when the episode ends, each of its states is kept with the same chance.
    """

    def of_one(data: UInt32[Array, "2"]) -> Bool[Array, "block"]:
        key = jax.random.fold_in(jax.random.wrap_key_data(data), first_step)
        return jax.random.uniform(key, (_BLOCK,)) * (first_step + 1 + jnp.arange(_BLOCK)) < 1.0

    return jax.vmap(of_one)(key_data)
