"""Collecting transitions: all simulations are stepped together, and a new episode begins as soon as one ends.

If the engine can report the full state of its simulations, episodes continue bit for bit after the program was stopped.
Gymnasium's own environments cannot. With them, the caller begins new episodes wherever a run may be stopped.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from dvdrl.engines import refuse_endless
from dvdrl.engines.host import HostVectorEnv
from dvdrl.policies import Head
from dvdrl.rollouts.timed import Timed

MakeEnvs = Callable[[int], VectorEnv[Any, Any, Any]]
Snapshot = dict[str, NDArray[Any]]


class Steps(NamedTuple):
    """The results of one step of n simulations."""

    reward: Float[np.ndarray, "n"]
    terminated: Bool[np.ndarray, "n"]
    """Whether the task itself ended the episode; a time limit does not count."""
    next_obs: Float[np.ndarray, "n obs"]
    """Where the step led, even if the episode ended there."""
    obs: Float[np.ndarray, "n obs"]
    """The observation to act on next: `next_obs`, or the first observation of the next episode."""
    ended: Bool[np.ndarray, "n"]
    returns: Float[np.ndarray, "n"]
    """The return of each episode so far, or its whole return if it ended."""


class Collector(Timed):
    """Steps n simulations, which are made with autoreset disabled. The head turns outputs into actions."""

    def __init__(self, make_envs: MakeEnvs, num_envs: int, head: Head):
        self._envs, self._head = make_envs(num_envs), head
        self.continues = isinstance(self._envs, HostVectorEnv)
        """Whether `snapshot` contains the simulations too."""
        self._returns = np.zeros(num_envs)

    def begin(self, seeds: Sequence[int]) -> Float[np.ndarray, "n obs"]:
        """Begin an episode in every simulation. Returns the observations to act on."""
        self._returns = np.zeros(self._envs.num_envs)
        obs: Float[np.ndarray, "n obs"] = self._timed(self._envs.reset, seed=list(seeds))[0]
        return obs

    def snapshot(self) -> Snapshot:
        """Everything that episodes need to continue, one row per simulation."""
        simulations = self._envs.snapshot() if isinstance(self._envs, HostVectorEnv) else {}
        return {**simulations, "returns": self._returns.copy()}

    def restore(self, snapshot: Snapshot) -> Float[np.ndarray, "n obs"]:
        """Continue from a snapshot. Returns the observations to act on."""
        assert isinstance(self._envs, HostVectorEnv)
        self._returns = snapshot["returns"].copy()
        return self._envs.restore(snapshot)

    def step(self, outputs: Float[np.ndarray, "n out"]) -> Steps:
        """Take one step in every simulation."""
        next_obs, reward, terminated, truncated, _ = self._timed(self._envs.step, self._head.actions(outputs))
        ended, obs = terminated | truncated, next_obs
        self._returns += reward
        returns = self._returns.copy()
        if ended.any():
            obs = self._timed(self._envs.reset, options={"reset_mask": ended})[0]
            self._returns[ended] = 0.0
        return Steps(reward, terminated, next_obs, obs, ended, returns)

    def close(self) -> None:
        """Free the simulations."""
        self._envs.close()


def episode_returns(
    envs: Any,
    act: Callable[[NDArray[Any]], NDArray[Any]],
    seeds: Sequence[int],
) -> Float[np.ndarray, "n"]:
    """The return of one episode in each environment of a VectorEnv without autoreset, with actions from `act`."""
    obs, _ = envs.reset(seed=list(seeds))
    returns, active = np.zeros(envs.num_envs), np.ones(envs.num_envs, bool)
    for step in count():
        if not active.any():
            break
        refuse_endless(envs, step)
        obs, reward, terminated, truncated, _ = envs.step(act(obs))
        returns += reward  # environments whose episode has ended give a reward of 0
        active &= ~(terminated | truncated)
    return returns
