"""Collecting transitions: one simulation for each member, stepped together, new episodes beginning by themselves.

Where the engine can be asked for everything that its simulations are, episodes go on over stops of the program, bit for
bit. Gymnasium's own environments cannot be asked: there, the caller begins new episodes wherever a run may be stopped.
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
    """What one step of n simulations gave."""

    reward: Float[np.ndarray, "n"]
    terminated: Bool[np.ndarray, "n"]
    """The task itself ended there; a time limit is no such end."""
    next_obs: Float[np.ndarray, "n obs"]
    """Where the step led, also where that was an episode's end."""
    obs: Float[np.ndarray, "n obs"]
    """What to act on next: the same, or the first observation of the next episode."""
    ended: Bool[np.ndarray, "n"]
    returns: Float[np.ndarray, "n"]
    """Of the episodes so far; of those that ended, their return."""


class Collector(Timed):
    """Steps n simulations, made with autoreset disabled, with the actions that a head makes of outputs."""

    def __init__(self, make_envs: MakeEnvs, num_envs: int, head: Head):
        self._envs, self._head = make_envs(num_envs), head
        self.continues = isinstance(self._envs, HostVectorEnv)
        """Whether `snapshot` holds the simulations too."""
        self._returns = np.zeros(num_envs)

    def begin(self, seeds: Sequence[int]) -> Float[np.ndarray, "n obs"]:
        """Begin an episode in every simulation; returns what to act on."""
        self._returns = np.zeros(self._envs.num_envs)
        obs: Float[np.ndarray, "n obs"] = self._timed(self._envs.reset, seed=list(seeds))[0]
        return obs

    def snapshot(self) -> Snapshot:
        """What decides how the episodes go on, a row a simulation."""
        simulations = self._envs.snapshot() if isinstance(self._envs, HostVectorEnv) else {}
        return {**simulations, "returns": self._returns.copy()}

    def restore(self, snapshot: Snapshot) -> Float[np.ndarray, "n obs"]:
        """Go on from a snapshot; returns what to act on."""
        assert isinstance(self._envs, HostVectorEnv)
        self._returns = snapshot["returns"].copy()
        return self._envs.restore(snapshot)

    def step(self, outputs: Float[np.ndarray, "n out"]) -> Steps:
        """One step of every simulation."""
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
    """The returns of one episode in each of a VectorEnv without autoreset; `act` gives the actions that it takes."""
    obs, _ = envs.reset(seed=list(seeds))
    returns, active = np.zeros(envs.num_envs), np.ones(envs.num_envs, bool)
    for step in count():
        if not active.any():
            break
        refuse_endless(envs, step)
        obs, reward, terminated, truncated, _ = envs.step(act(obs))
        returns += reward  # what rests pays nothing
        active &= ~(terminated | truncated)
    return returns
