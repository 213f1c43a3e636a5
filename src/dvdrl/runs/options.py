"""What can be set of a run: frozen dataclasses that are the options of `dvdrl train` and its Python interface alike.

Nothing heavy is imported here, so that `--help` answers at once.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Generic, Literal, Never, Self

from dvdrl.errors import DvdrlError
from dvdrl.runs import presets
from dvdrl.runs.fields import Role, facts, option
from dvdrl.runs.presets import Preset
from dvdrl.runs.training import Normalization, Open, Training, XAxis

Controller = Literal["thompson", "authors-thompson", "sliding-window", "discounted", "plateau"]
_STEPS = 2**31
"""They are counted on the device, in 32 bits."""


@dataclass(frozen=True, kw_only=True)
class Controlled(Generic[Open]):
    """The options of a controller of lambda."""

    controller: Controller | Open = option(None, role="part")
    """What chooses lambda; default: thompson, the paper's bandit. authors-thompson: that of their code. plateau:
    the smallest of the arms while returns rise; when they do not, the next one, and the one after, for all that have
    found no way on."""
    patience: int = option(4, role="part", at_least=1)
    """Of the controller plateau: so many rounds without a rise are a plateau. A round of ES is an iteration."""
    arms: tuple[float, ...] | Open = option(None, role="part", at_least=0, at_most=1, may_be_empty=False)
    """The values of lambda that it chooses from; one value alone is a fixed lambda. Default: the paper's, 0 and 0.5;
    with plateau 0, 0.5 and 0.8."""


@dataclass(frozen=True, kw_only=True)
class ES(Training[Open], Generic[Open]):
    """Evolution strategies: every member follows its own reward alone."""

    algorithm: ClassVar[str] = "es"
    trainer: ClassVar[str] = "dvdrl.runs.evolution:make_trainer"
    x_axis: ClassVar[XAxis] = "rollouts"

    preset: Preset = option("paper", role="run")
    """Where options that are not given come from: the paper's tables, or the authors' code."""
    executor: Literal["local", "ray", "device"] = option("local", role="incidental")
    """Where rollouts run: this machine's cores, a Ray cluster (extra ray), or this machine's GPU (extra gpu)."""
    ray_address: str | None = option(None, role="outside")
    """The Ray cluster to join; default: that of the variable RAY_ADDRESS, or one on this machine."""
    ray_time_limit: float = option(1800.0, role="incidental", above=0)
    """Seconds after which a Ray worker that has not answered is ended, and its rollouts are run again elsewhere."""

    sensings: int | Open = option(None, at_least=1)
    """Directions k of a gradient estimate; both signs of each are rolled out. Default: 100, and 300 for the Ant."""
    sigma: float | Open = option(None, above=0)
    """Deviation of the perturbations; default: 0.1, and 0.001 for the two-mode tasks."""
    step_rule: Literal["plain", "adam", "authors"] | Open = option(None)
    """plain: the paper's equation. adam. authors: the sign of the gradient, times a factor of the iteration."""
    orthogonal: bool = option(False)
    """Make perturbations orthogonal, which lowers the variance of the estimate."""
    state_filter: bool = option(True)
    """Whether observations are standardised by the running mean and deviation of each member."""
    starts: Literal["same", "per-iteration", "per-rollout"] = option("same")
    """Which rollouts start in the same state. The paper assumes a deterministic environment: same."""

    num_states: int = option(20)
    state_pool: int = option(100, at_least=1)
    """Of how many states, each from another rollout of the iteration, those are chosen; at most as many as there are
    rollouts, and never fewer than those."""
    state_rule: Literal["uniform", "zero-function", "k-dpp"] = option("uniform")
    """How they are chosen."""
    state_interval: int | Open = option(None, at_least=1)
    """After how many iterations they are chosen anew; default: 20, with the preset authors 1."""

    def defaults(self) -> Mapping[str, Any]:
        """See Training."""
        return presets.of_task(self.task, self.preset)

    def of_length(self: "ES", length: int) -> "ES":
        """See Training."""
        return dataclasses.replace(self, iterations=length * presets.resolve(self).updates_each())

    def updates_each(self: "ES[Never]") -> int:
        """See Training."""
        one_by_one = isinstance(self, NSRES | DvDES) and self.members == "one"
        return self.population if one_by_one else 1

    def x(self: "ES[Never]", iteration: int, env_steps: int) -> int:  # noqa: ARG002
        """See Training. Rollouts for gradients, both signs of each perturbation; unperturbed members do not count."""
        return iteration // self.updates_each() * self.population * 2 * self.sensings

    def env_steps(self: "ES[Never]", horizon: int) -> int:
        """See Training."""
        updated = self.population // self.updates_each()
        return self.iterations * (self.population + 2 * self.sensings * updated) * horizon

    def packages(self) -> tuple[str, ...]:
        """See Training."""
        more = {"local": (), "ray": ("ray",), "device": ("mujoco-warp", "warp-lang")}
        return (*super().packages(), *more[self.executor])

    def with_cluster(self, address: str | None) -> Self:
        """See Training."""
        return dataclasses.replace(self, ray_address=address)


@dataclass(frozen=True, kw_only=True)
class NSRES(ES[Open], Generic[Open]):
    """NSR-ES: reward and novelty, the mean distance to the other members; one member is updated an iteration."""

    algorithm: ClassVar[str] = "nsr-es"

    novelty_weight: float = option(0.5, role="part", at_least=0, at_most=1)
    """lambda, the weight of novelty; the reward has 1 - lambda."""
    members: Literal["one", "all"] = option("one")
    """Which members an iteration updates: one drawn at random, as the paper does, or all."""
    normalization: Normalization = option("none")
    """Behaviours as they are, as the paper's distance has them, or standardised over the members."""


@dataclass(frozen=True, kw_only=True)
class DvDES(Controlled[Open], ES[Open], Generic[Open]):
    """DvD-ES: reward and the determinant of all members' behaviours; a bandit chooses how much either counts."""

    algorithm: ClassVar[str] = "dvd-es"

    objective: Literal["det", "log-det"] = option("det", role="part")
    """What joint perturbations are scored by."""
    members: Literal["all", "one"] = option("all")
    """Which members an iteration updates: all, together, as the paper does, or one drawn at random, as NSR-ES does."""

    def defaults(self: "DvDES") -> Mapping[str, Any]:
        """See Training."""
        values = super().defaults()
        return {**values, **presets.of_controller(values["controller"] if self.controller is None else self.controller)}


@dataclass(frozen=True, kw_only=True)
class TD3(Training[Open], Generic[Open]):
    """TD3: one policy, a twin critic, one update of them for each environment step."""

    algorithm: ClassVar[str] = "td3"
    trainer: ClassVar[str] = "dvdrl.runs.td3:make_trainer"
    x_axis: ClassVar[XAxis] = "environment steps"

    population: int = option(1)
    """Number of members, M. One: with more it is E-TD3."""
    steps: int = option(1_000_000, at_least=1, below=_STEPS)
    """Environment steps of all members together; the run ends with the iteration in which they are reached."""
    executor: Literal["local"] = option("local", role="incidental")
    """Where simulations run: on this machine's cores. Ray and the engine on a GPU are for ES."""
    simulations: int = option(1, at_least=1)
    """Of each member, stepped together. With more of them steps and their updates come in larger portions, which takes
    less time; it is still one update for each environment step."""
    iterations: int | Open = option(None)
    """Stop earlier, after so many iterations."""
    iteration_steps: int = option(5_000, role="run", at_least=1)
    """Environment steps of all members together in an iteration; each ends with an evaluation and a checkpoint."""
    evaluation_episodes: int = option(3, role="run", at_least=1)
    """Episodes of each member, without exploration, in an evaluation."""

    hidden: tuple[int, ...] = option((256, 256), role="algorithm")
    """Widths of the hidden layers of policies and critics."""
    learning_rate: float = option(3e-4)
    """Of Adam, for policies and critics."""
    batch_size: int = option(256, at_least=1)
    """Transitions in a batch."""
    buffer_size: int = option(1_000_000, at_least=1)
    """Transitions that the replay buffer holds."""
    random_steps: int = option(25_000, role="run", at_least=0)
    """Environment steps with random actions, before anything is learned."""
    discount: float = option(0.99, at_least=0, at_most=1)
    """gamma."""
    target_rate: float = option(0.005, at_least=0, at_most=1)
    """tau: how far targets go towards what they follow."""
    target_noise: float = option(0.2, at_least=0)
    """Deviation of the noise that smooths target policies."""
    target_noise_clip: float = option(0.5, at_least=0)
    """Where that noise is clipped."""
    policy_delay: int = option(2, at_least=1)
    """Updates of the critics for each update of the policies."""
    exploration_noise: float = option(0.1, at_least=0)
    """Deviation of the noise on actions while collecting."""
    bootstrapping: Literal["collector", "random"] = option("collector")
    """Whose target policy a transition's target is computed with: that of the member that collected it, or of a member
    at random."""

    num_states: int | None = option(None)
    """On how many states of a batch behaviour is compared; default: all."""
    normalization: Normalization = option("none", role="part")
    """Behaviours as they are, or with each coordinate standardised over the members."""
    shrinkage: float = option(0.01, role="part", at_least=0, at_most=1)
    """By how much similarities are shrunk in log det, which bounds its gradient where members coincide."""

    def defaults(self) -> Mapping[str, Any]:
        """See Training."""
        return {"iterations": -(-self.steps // self.whole_iteration())}

    def refuse_conflicts(self) -> None:
        """See Training."""
        super().refuse_conflicts()
        if self.num_states is not None and self.num_states > self.batch_size:
            raise DvdrlError(f"num_states: a batch has {self.batch_size} states, got {self.num_states}")
        if type(self) is TD3 and self.population != 1:
            raise DvdrlError(f"population: td3 has one member, got {self.population}; e-td3 and dvd-td3 have more")

    def whole_iteration(self) -> int:
        """Environment steps of an iteration: `iteration_steps`, rounded up to whole calls of the update."""
        call = math.lcm(self.simulations * self.population, self.policy_delay)
        return -(-self.iteration_steps // call) * call

    def of_length(self: "TD3", length: int) -> "TD3":
        """See Training."""
        return dataclasses.replace(self, steps=length)

    def x(self: "TD3[Never]", iteration: int, env_steps: int) -> int:  # noqa: ARG002
        """See Training."""
        return env_steps

    def env_steps(self: "TD3[Never]", horizon: int) -> int:
        """See Training."""
        return self.steps + self.iterations * self.population * self.evaluation_episodes * horizon

    def multiply_adds(self: "TD3[Never]", num_observed: int, num_actions: int) -> float:
        """See Training. They are an upper bound: first layers save some. There is one update per step.

        Each of the two derivatives of a product costs as much as the product. Both critics need the targets' actions
        and values, and their own values with all derivatives. In every `policy_delay`-th update, each member needs its
        actions with all derivatives, and the first critic's values with the derivatives for the actions only.
        """
        policy = _num_params(num_observed, *self.hidden, num_actions)
        critic = _num_params(num_observed + num_actions, *self.hidden, 1)
        of_critics = policy + 2 * critic + 2 * 3 * critic
        of_member = 3 * policy + 2 * critic
        return self.steps * self.batch_size * (of_critics + self.population * of_member / self.policy_delay)


def _num_params(*sizes: int) -> int:
    """Of a network with layers of these sizes."""
    return sum((before + 1) * after for before, after in pairwise(sizes))


@dataclass(frozen=True, kw_only=True)
class ETD3(TD3[Open], Generic[Open]):
    """E-TD3: M policies that share a twin critic and a replay buffer, without regard to diversity."""

    algorithm: ClassVar[str] = "e-td3"

    population: int = option(5)
    """Number of members, M."""


@dataclass(frozen=True, kw_only=True)
class DvDTD3(Controlled[Open], ETD3[Open], Generic[Open]):
    """DvD-TD3: E-TD3 and the log determinant of all members' behaviours; a bandit chooses how much either counts."""

    algorithm: ClassVar[str] = "dvd-td3"

    controller: Controller = option("thompson")
    pull_interval: int = option(1, role="part", at_least=1)
    """Rounds from one choice of lambda to the next; in a round every member finishes an episode."""

    def defaults(self) -> Mapping[str, Any]:
        """See Training."""
        return {**super().defaults(), **presets.of_controller(self.controller)}


_ALL: tuple[type[Training], ...] = (ES, NSRES, DvDES, TD3, ETD3, DvDTD3)
ALGORITHMS = {kind.algorithm: kind for kind in _ALL}
"""The classes of options by the name of the algorithm."""


def with_role(*roles: Role) -> set[str]:
    """The names of the options, of all algorithms, that have one of these roles."""
    return {name for kind in _ALL for name, each in facts(kind).items() if each.role in roles}
