"""The interface between the training loop and algorithms. `evolution` and `off_policy` implement it."""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Never, Protocol

import numpy as np
from gymnasium.vector import VectorEnv

from dvdrl import bandits, engines
from dvdrl.engines import ENGINES, jax_environment, make_vec
from dvdrl.errors import DvdrlError
from dvdrl.policies import Agents, Bounded, Policy, Population, policy_for
from dvdrl.rollouts import Compiled, Local
from dvdrl.rollouts.measures import Measures
from dvdrl.runs.training import Training
from dvdrl.tasks import registry
from dvdrl.tasks.perturbations import UNPERTURBED, Perturb, parsed
from dvdrl.tasks.task import Task

_BANDITS: dict[str, Callable[..., bandits.Controller]] = {
    "thompson": bandits.thompson,
    "authors-thompson": bandits.authors_thompson,
    "sliding-window": bandits.sliding_window_thompson,
    "discounted": bandits.discounted_thompson,
}


class Outcome(NamedTuple):
    """The results of an iteration for one run."""

    state: Any
    env_steps: int
    """The number of environment steps in the iteration."""
    line: dict[str, Any]
    """The metrics of the iteration, with the share of each member in the determinant. The loop adds those of time; and
    `distinct` and `renewed`, if the algorithm does not judge its members itself."""
    transitions: np.ndarray | None = None
    """The transitions that were added to the replay buffer, one per row."""
    evaluated: np.ndarray | None = None
    """The mean return of each member of `population(state)` from new starts; None if it was not evaluated, or if the
    algorithm keeps its best members itself."""


class NotFinite(Exception):  # noqa: N818 - the loop turns it into an error
    """A number that must be finite is not."""

    def __init__(self, what: str, run: int):
        super().__init__(what)
        self.run = run
        """The index of the run in which it happened."""


class Trainer(Protocol):
    """Trains several runs that differ only in their seeds, one iteration at a time."""

    replay_capacity: int
    """How many of the latest transitions an iteration can use; 0 without a replay buffer."""

    @property
    def simulation_seconds(self) -> float:
        """Time spent inside the simulator so far."""
        ...

    def init(self, seed: int) -> Any:
        """The state of a new run: everything that changes, except the replay buffer."""
        ...

    def started_from(self, state: Any, agents: Agents) -> Any:
        """The state of a new run, with these members, (M, ...), instead of its own.

        Raises:
            DvdrlError: the algorithm cannot start from them.
        """
        ...

    def like(self) -> Any:
        """The structure of a state, which is needed to load one."""
        ...

    def recall(self, states: Sequence[Any], transitions: Sequence[np.ndarray]) -> None:
        """Fill the replay buffer of each run with its latest transitions. The run is in the given state."""
        ...

    def iterate(self, states: Sequence[Any]) -> list[Outcome]:
        """Do the next iteration of each run.

        Raises:
            NotFinite: training has diverged.
        """
        ...

    def population(self, state: Any) -> Population:
        """The members in a state."""
        ...

    def close(self) -> None:
        """Free all resources."""
        ...


def make_envs(
    options: Training, perturb: Perturb | Sequence[Perturb] = UNPERTURBED
) -> Callable[..., VectorEnv[Any, Any, Any]]:
    """A function that makes a given number of environments of a run's task.

    They have the run's own perturbations, and also those given, as for `make_vec`.
    """
    more: dict[str, Any] = {"wrappers": wrappers_of(options)} if options.wrappers else {}
    perturb = with_own(options, perturb)
    more |= {"perturb": perturb} if perturb else {}
    return functools.partial(make_vec, options.task, autoreset_mode="Disabled", **more, **options.task_options)


def with_own(options: Training, perturb: Perturb | Sequence[Perturb]) -> Perturb | Sequence[Perturb]:
    """Perturbations besides those of the run itself. If both have a name, the given value counts."""
    own = parsed(options.perturb)
    return {**own, **perturb} if isinstance(perturb, Mapping) else [{**own, **each} for each in perturb]


def wrappers_of(options: Training) -> tuple[Callable[..., Any], ...]:
    """The wrappers around each environment. Their modules are imported."""
    return tuple(engines.named("wrappers", text) for text in options.wrappers)


def make_local(
    options: Training, policy: Policy, measures: Measures, perturb: Perturb | Sequence[Perturb] = UNPERTURBED
) -> Local | Compiled:
    """The executor of this machine: JAX environments are compiled, all others stepped."""
    env = None if perturb or options.perturb else jax_environment(options.task, **options.task_options)
    return Local(make_envs(options, perturb), policy, measures) if env is None else Compiled(env, policy, measures)


def task_of(options: Training) -> Task | None:
    """The task of a run; None if another engine has its environments, as it has all that have wrappers."""
    prefix, _, name = options.task.rpartition(":")
    if prefix in ENGINES or name not in registry.TASKS or options.wrappers:
        return None
    return registry.make(name, **options.task_options)


def observation_names(options: Training, num: int) -> tuple[str, ...]:
    """The names of `num` observed values: those that the task gives them, or else their numbers."""
    return engines.observation_names(options.task, num, wrappers=wrappers_of(options), **options.task_options)


def make_policy(options: Training[Never], **network: Any) -> Policy:
    """The policy that a run trains. It fits the task's observations and actions, and has the run's hidden layers."""
    with contextlib.closing(make_envs(options)(1)) as envs:
        return policy_for(envs.single_observation_space, envs.single_action_space, options.hidden, **network)


def make_continuous_policy(options: Training[Never], **network: Any) -> Policy:
    """The same for an algorithm that differentiates actions.

    Raises:
        DvdrlError: the task has no continuous actions.
    """
    policy = make_policy(options, **network)
    if not isinstance(policy.head, Bounded):
        raise DvdrlError(
            f"{options.algorithm} is for continuous actions, and {options.task} has others; `dvdrl train niche-es` has"
            " policies for both"
        )
    return policy


def make_controller(name: str, population: int, arms: Sequence[float], patience: int) -> bandits.Controller:
    """The controller with this name."""
    if name == "plateau":
        return bandits.plateau(population, arms, patience)
    return _BANDITS[name](arms)
