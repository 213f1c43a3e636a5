"""Episodes on this machine's cores: as one batch of the host engine, or in worker processes; each with its own policy.

NumPy evaluates the policies, with one small matrix product per simulation. Such a product is bit-identical in every
batch; a fused batch product is not. With a thousand policies it is as fast.
"""

import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import Int

from dvdrl.engines import refuse_endless
from dvdrl.engines.gymnasium import WorkersVectorEnv
from dvdrl.interfaces import Ask, Episodes, Rollouts
from dvdrl.policies import Agents, Policy
from dvdrl.rollouts.measures import Measures
from dvdrl.rollouts.tally import BLOCK, Tally, joined, replaces, sampling_noise
from dvdrl.rollouts.timed import Timed
from dvdrl.rollouts.worker import play, write

Tree = TypeVar("Tree")

_NONE = Measures()


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
        n = len(rollouts.start)
        envs = self._environments(n)
        if isinstance(envs, WorkersVectorEnv):
            return self._in_workers(envs, rollouts)
        _, everyone, starts, key_data = jax.tree.map(np.asarray, rollouts)

        obs = self._timed(envs.reset, seed=starts.tolist())[0].astype(np.float64, copy=False)  # bytes would overflow
        tally = Tally(n, self._policy.num_observed, self._measures)
        tally.begin(slice(None), obs)
        head = self._policy.head
        outputs = np.zeros((n, head.num_outputs), np.float32)
        active = np.ones(n, bool)
        # The rows whose policies are evaluated: all active ones, and at most as many others.
        rows: Any = slice(None)
        agents: Agents = everyone
        step = 0
        while active.any():
            if step % BLOCK == 0:
                keep = np.asarray(replaces(key_data, step))
                if self._policy.sampled:
                    noise = np.asarray(sampling_noise(key_data, step, head.num_outputs))
            seen = obs[rows]
            tally.add_acted_on(rows, seen, keep[rows, step % BLOCK], active[rows])
            outputs[rows] = self._policy.outputs(agents, seen[:, None])[:, 0]
            lost = ~np.isfinite(outputs).all(axis=1)
            if lost.any():  # no simulator accepts such an action: the episode ends here, with a return of NaN
                outputs[lost], active[lost] = 0.0, False
                tally.lose(lost)
            if self._policy.sampled:
                outputs[rows] += noise[rows, step % BLOCK]
            observed, rewards, terminated, truncated, info = self._timed(envs.step, head.actions(outputs))
            obs = observed.astype(np.float64, copy=False)
            tally.add_results(slice(None), rewards, info, obs, active)
            active &= ~(terminated | truncated)
            step += 1
            refuse_endless(envs, step)
            if 2 * np.count_nonzero(active) <= len(seen):
                rows = np.flatnonzero(active)
                agents = Agents(*(array[rows] for array in everyone))
        return tally.episodes()

    def _in_workers(self, envs: WorkersVectorEnv, rollouts: Rollouts) -> Episodes:
        with tempfile.TemporaryDirectory(prefix="dvdrl-") as folder:
            file = Path(folder, "rollouts.npy")
            write(file, rollouts)
            run = functools.partial(play, policy=self._policy, measures=self._measures, file=file)
            numbers, parts, seconds = zip(*envs.run(run, len(rollouts.start)), strict=True)
        self.simulation_seconds += max(seconds)
        order = np.argsort(np.concatenate(numbers))
        episodes: Episodes = jax.tree.map(lambda field: field[order], joined(parts))
        return episodes

    def close(self) -> None:
        """Free the environments."""
        if self._envs is not None:
            self._envs.close()

    def _environments(self, num_envs: int) -> VectorEnv[Any, Any, Any]:
        """This number of environments. Those of the last call are used again if their number is the same."""
        if self._envs is None or self._envs.closed or self._envs.num_envs != num_envs:
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
