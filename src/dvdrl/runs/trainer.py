"""What the training loop asks of an algorithm; `evolution` and `off_policy` both provide it."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Never, Protocol

import numpy as np
from gymnasium.vector import VectorEnv

from dvdrl import bandits
from dvdrl.engines import make_vec
from dvdrl.policies import Policy, Population, policy_for
from dvdrl.runs.training import Training

_BANDITS: dict[str, Callable[..., bandits.Controller]] = {
    "thompson": bandits.thompson,
    "authors-thompson": bandits.authors_thompson,
    "sliding-window": bandits.sliding_window_thompson,
    "discounted": bandits.discounted_thompson,
}


class Outcome(NamedTuple):
    """What an iteration gave one run."""

    state: Any
    env_steps: int
    """That the iteration took."""
    line: dict[str, Any]
    """Its metrics, but for those that the loop knows itself."""
    transitions: np.ndarray | None = None
    """What the replay buffer was given, a row each."""


class NotFinite(Exception):  # noqa: N818 - the loop makes an error of it
    """A number that has to be finite is not."""

    def __init__(self, what: str, run: int):
        super().__init__(what)
        self.run = run
        """Of which of the runs."""


class Trainer(Protocol):
    """Trains several runs, which differ in their seeds alone, an iteration at a time."""

    replay_capacity: int
    """How many transitions back an iteration looks; 0 without a replay buffer."""

    @property
    def simulation_seconds(self) -> float:
        """Time spent inside the simulator so far."""
        ...

    def init(self, seed: int) -> Any:
        """The state of a new run: everything that changes, but for the replay buffer."""
        ...

    def like(self) -> Any:
        """The form of a state, for loading one."""
        ...

    def recall(self, states: Sequence[Any], transitions: Sequence[np.ndarray]) -> None:
        """Fill the replay buffer of each run, in the given state, with the latest of its transitions."""
        ...

    def iterate(self, states: Sequence[Any]) -> list[Outcome]:
        """The next iteration of each run.

        Raises:
            NotFinite: training has diverged.
        """
        ...

    def population(self, state: Any) -> Population:
        """The members as they are in a state."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


def make_envs(options: Training) -> Callable[..., VectorEnv[Any, Any, Any]]:
    """What makes so many environments of a run's task."""
    task_options: dict[str, Any] = options.task_options
    return functools.partial(make_vec, options.task, autoreset_mode="Disabled", **task_options)


def make_policy(options: Training[Never], **network: Any) -> Policy:
    """The policy that a run trains: for the observations and actions of its task, with its hidden layers."""
    with contextlib.closing(make_envs(options)(1)) as envs:
        return policy_for(envs.single_observation_space, envs.single_action_space, options.hidden, **network)


def make_controller(name: str, population: int, arms: Sequence[float], patience: int) -> bandits.Controller:
    """The controller of that name."""
    if name == "plateau":
        return bandits.plateau(population, arms, patience)
    return _BANDITS[name](arms)
