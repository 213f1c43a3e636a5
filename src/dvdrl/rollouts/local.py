"""Episodes on this machine's cores: all of them as one batch of the host engine, each with its own policy.

NumPy evaluates the policies, with one small matrix product per simulation. Such a product is bit-identical in every
batch; a fused batch product is not. With a thousand policies it is as fast.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import Array, Bool, Int, UInt32

from dvdrl.engines import refuse_endless
from dvdrl.interfaces import Ask, Episodes, Rollouts
from dvdrl.policies import Agents, Moments, Policy
from dvdrl.rollouts.measures import Measures
from dvdrl.rollouts.timed import Timed
from dvdrl.tasks.task import MODE

Tree = TypeVar("Tree")

_NONE = Measures()
_BLOCK = 256
"""Steps whose random numbers are drawn together."""


class Local(Timed):
    """Evaluates rollouts of a policy.

    Args:
        make_envs: makes a given number of environments with autoreset disabled. After an episode has ended, its
            environment stands still and gives a reward of 0.
        policy: the policy that acts in them.
        measures: what to measure of each episode.
    """

    def __init__(
        self, make_envs: Callable[[int], VectorEnv[Any, Any, Any]], policy: Policy, measures: Measures = _NONE
    ):
        self._make_envs, self._policy, self._measures = make_envs, policy, measures
        self._envs: VectorEnv[Any, Any, Any] | None = None

    def evaluate(self, ask: Ask, states: Sequence[Any]) -> list[Episodes]:
        """Run the episodes that each state asks for, all as one batch."""
        asked = [ask(state) for state in states]
        ends = np.cumsum([len(rollouts.member) for rollouts in asked])
        return split(self.run(join(asked)), ends)

    def run(self, rollouts: Rollouts) -> Episodes:
        """Run every episode to its end."""
        _, everyone, starts, key_data = jax.tree.map(np.asarray, rollouts)
        n = len(starts)
        envs = self._environments(n)

        obs = self._timed(envs.reset, seed=starts.tolist())[0].astype(np.float64, copy=False)  # bytes would overflow
        first, sums, squares = obs.copy(), np.zeros(obs.shape), np.zeros(obs.shape)
        states, returns, lengths = obs.copy(), np.zeros(n), np.zeros(n, np.int32)
        head = self._policy.head
        outputs = np.zeros((n, head.num_outputs), np.float32)
        modes: dict[str, np.ndarray] = {}
        measured = np.zeros((n, self._measures.size))
        active = np.ones(n, bool)
        # The rows whose policies are evaluated: all active ones, and at most as many others.
        rows: Any = slice(None)
        agents: Agents = everyone
        step = 0
        while active.any():
            if step % _BLOCK == 0:
                keep = np.asarray(_keep(key_data, step))
            kept = np.flatnonzero(keep[:, step % _BLOCK] & active)
            states[kept] = obs[kept]
            seen = obs[rows]
            # Relative to the first observation, so that a constant stays exact and sums of squares stay small.
            difference = (seen - first[rows]) * active[rows, None]
            sums[rows] += difference
            squares[rows] += np.square(difference)
            lengths += active

            outputs[rows] = self._policy.outputs(agents, seen[:, None])[:, 0]
            lost = ~np.isfinite(outputs).all(axis=1)
            if lost.any():  # no simulator accepts such an action: the episode ends here, with a return of NaN
                outputs[lost], returns[lost], active[lost] = 0.0, np.nan, False
            observed, rewards, terminated, truncated, info = self._timed(envs.step, head.actions(outputs))
            obs = observed.astype(np.float64, copy=False)
            returns += rewards
            for name in (name for name in info if name.startswith(MODE)):
                mode = name.removeprefix(MODE)
                modes[mode] = modes.get(mode, 0.0) + info[name]
            if self._measures.each:
                measured = self._measures.added(measured, info, obs, active)
            active &= ~(terminated | truncated)
            step += 1
            refuse_endless(envs, step)
            if 2 * np.count_nonzero(active) <= len(seen):
                rows = np.flatnonzero(active)
                agents = Agents(*(array[rows] for array in everyone))

        mean = sums / lengths[:, None]
        sum_squares = np.maximum(squares - sums * mean, 0.0)
        moments = Moments(lengths.astype(np.float32), *(x.astype(np.float32) for x in (first + mean, sum_squares)))
        of_user = self._measures.of_episodes(measured, lengths).astype(np.float32)
        return Episodes(returns, lengths, moments, states.astype(np.float32), modes, of_user)

    def close(self) -> None:
        """Free the environments."""
        if self._envs is not None:
            self._envs.close()

    def _environments(self, num_envs: int) -> VectorEnv[Any, Any, Any]:
        """This number of environments. Those of the last call are used again if their number is the same."""
        if self._envs is None or self._envs.num_envs != num_envs:
            self.close()
            self._envs = self._make_envs(num_envs)
            self._policy.refuse_other_spaces(self._envs.single_observation_space, self._envs.single_action_space)
        return self._envs


def join(parts: Sequence[Tree]) -> Tree:
    """Several batches joined into one."""
    joined: Tree = jax.tree.map(lambda *fields: np.concatenate(fields), *parts)
    return joined


def split(batch: Tree, ends: Sequence[int] | Int[np.ndarray, "parts"]) -> list[Tree]:
    """The parts of a batch; `ends` has the end of each part."""
    return [
        jax.tree.map(lambda field, begin=begin, end=end: field[begin:end], batch)
        for begin, end in zip((0, *ends), ends, strict=False)
    ]


@jax.jit
def _keep(key_data: UInt32[Array, "n 2"], first_step: Int[Array, ""]) -> Bool[Array, "n block"]:
    """In which of the next steps the current state replaces an episode's kept state.

    Step t does with probability 1 / (t + 1). So at the end of the episode each of its states is equally likely.
    """

    def of_one(data: UInt32[Array, "2"]) -> Bool[Array, "block"]:
        key = jax.random.fold_in(jax.random.wrap_key_data(data), first_step)
        return jax.random.uniform(key, (_BLOCK,)) * (first_step + 1 + jnp.arange(_BLOCK)) < 1.0

    return jax.vmap(of_one)(key_data)
