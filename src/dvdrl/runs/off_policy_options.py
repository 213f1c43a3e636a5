"""The options of TD3, XQC and their populations. `dvdrl.runs.options` says how options are declared."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Generic, Literal, Never, cast

from dvdrl.errors import DvdrlError
from dvdrl.runs import presets
from dvdrl.runs.fields import option
from dvdrl.runs.training import Controlled, Controller, InNiches, Normalization, OnRay, Open, Training, XAxis

_ATOMS = 101
_STEPS = 2**31
"""The limit of environment steps: the device counts them in 32 bits."""


@dataclass(frozen=True, kw_only=True)
class ControlledInRounds(Controlled[Open], Generic[Open]):
    """The same for an off-policy learner, whose controller chooses between rounds of episodes."""

    pull_interval: int = option(1, role="part", at_least=1, group="diversity")
    """Number of rounds between choices of lambda. In a round, every member finishes an episode."""


@dataclass(frozen=True, kw_only=True)
class OffPolicyTraining(OnRay[Open], Training[Open], Generic[Open]):
    """The options that all off-policy learners share."""

    trainer: ClassVar[str] = "dvdrl.runs.learners:make_trainer"
    learner: ClassVar[str]
    """The function in `dvdrl.off_policy` that makes its learner."""
    x_axis: ClassVar[XAxis] = "environment steps"

    population: int = option(1)
    """Number of members, M."""
    steps: int = option(1_000_000, at_least=1, below=_STEPS)
    """Environment steps of all members together. The run ends with the iteration that reaches this number."""
    executor: Literal["local", "ray"] = option("local", role="incidental", may_change=True, group="execution")
    """Where simulations for training run. local: this machine's cores. ray: a Ray cluster (pip install 'dvdrl[ray]').
    Ray pays if a step of the environment takes milliseconds or more. Evaluations run on this machine."""
    simulations: int = option(1, at_least=1, group="execution")
    """Number of simulations of each member, which step together. There is one update per environment step.
    With more simulations, steps and updates come in larger portions, which takes less time."""
    iterations: int | Open = option(None)
    """Stop earlier: after this number of iterations."""
    iteration_steps: int = option(5_000, role="run", at_least=1)
    """Environment steps of all members together per iteration. It ends with an evaluation and a checkpoint."""
    evaluation_episodes: int = option(3, role="run", at_least=1, group="execution")
    """Episodes of each member per evaluation, without exploration."""

    hidden: tuple[int, ...] = option((256, 256))
    """Widths of the hidden layers of policies."""
    learning_rate: float = option(3e-4)
    """Learning rate of Adam, for policies and critics."""
    batch_size: int = option(256, at_least=1)
    """Number of transitions in a batch."""
    buffer_size: int = option(1_000_000, at_least=1)
    """Number of transitions that the replay buffer holds."""
    random_steps: int = option(25_000, role="run", at_least=0)
    """Environment steps with random actions at the start, before any learning."""
    discount: float = option(0.99, at_least=0, at_most=1)
    """Discount factor, gamma."""
    target_rate: float = option(0.005, at_least=0, at_most=1)
    """tau: how far target networks move towards their networks at a time, from 0 to 1."""
    policy_delay: int = option(2, at_least=1)
    """Number of critic updates per policy update."""

    num_states: int | None = option(None)
    """Number of states of a batch on which behaviours are compared. Default: all."""
    normalization: Normalization = option("none", role="part")
    """none: compare behaviours as they are. across-members: first standardise each coordinate over the members."""
    shrinkage: float = option(0.01, role="part", at_least=0, at_most=1, group="diversity")
    """How much similarities shrink in log det. This bounds its gradient, even if members coincide."""

    def defaults(self) -> Mapping[str, Any]:
        """See Training."""
        return {"iterations": self.most_iterations(self.steps)}

    def refuse_conflicts(self) -> None:
        """See Training."""
        super().refuse_conflicts()
        if self.num_states is not None and self.num_states > self.batch_size:
            raise DvdrlError(f"num_states: a batch has {self.batch_size} states, got {self.num_states}")

    def _steps_per_call(self) -> int:
        """Environment steps between two calls of the update, which is a whole number of periods of policy_delay."""
        return math.lcm(self.simulations * self.population, self.policy_delay)

    def whole_iteration(self) -> int:
        """Environment steps of an iteration: `iteration_steps`, rounded up to whole calls of the update."""
        call = self._steps_per_call()
        return -(-self.iteration_steps // call) * call

    def whole_buffer(self) -> int:
        """The size of the replay buffer that a run needs: a run is a whole number of iterations."""
        iteration = self.whole_iteration()
        return min(self.buffer_size, -(-self.steps // iteration) * iteration)

    def with_end(
        self: "OffPolicyTraining[Never]", iterations: int | None, steps: int | None
    ) -> "OffPolicyTraining[Never]":
        """See Training."""
        if iterations is not None and steps is None:
            steps = max(self.steps, iterations * self.whole_iteration())
        return cast("OffPolicyTraining[Never]", super().with_end(iterations, steps))

    def most_iterations(self, steps: int) -> int:
        """See Training."""
        return -(-steps // self.whole_iteration())

    def of_length(self: "OffPolicyTraining", length: int) -> "OffPolicyTraining":
        """See Training."""
        return dataclasses.replace(self, steps=length)

    def packages(self) -> tuple[str, ...]:
        """See Training."""
        return (*super().packages(), *(("ray",) if self.executor == "ray" else ()))

    def x(self: "OffPolicyTraining[Never]", iteration: int, env_steps: int) -> int:  # noqa: ARG002
        """See Training."""
        return env_steps

    def env_steps(self: "OffPolicyTraining[Never]", horizon: int) -> int:
        """See Training."""
        return self.steps + self.iterations * self.population * self.evaluation_episodes * horizon


@dataclass(frozen=True, kw_only=True)
class TD3(OffPolicyTraining[Open], Generic[Open]):
    """TD3: one policy and a twin critic, with one update per environment step."""

    algorithm: ClassVar[str] = "td3"
    learner: ClassVar[str] = "td3"

    population: int = option(1)
    """Number of members, M. TD3 has one; with more, use e-td3."""
    hidden: tuple[int, ...] = option((256, 256), role="algorithm")
    """Widths of the hidden layers of policies and critics."""
    target_noise: float = option(0.2, at_least=0)
    """Standard deviation of the noise that smooths target policies."""
    target_noise_clip: float = option(0.5, at_least=0)
    """Largest magnitude of the noise that smooths target policies. Larger values are clipped."""
    exploration_noise: float = option(0.1, at_least=0)
    """Standard deviation of the noise on actions during collection."""
    bootstrapping: Literal["collector", "random"] = option("collector")
    """Whose target policy computes the target of a transition.
    collector: that of the member that collected the transition. random: that of a random member."""

    def refuse_conflicts(self) -> None:
        """See Training."""
        super().refuse_conflicts()
        if type(self) is TD3 and self.population != 1:
            raise DvdrlError(f"population: td3 has one member, got {self.population}; e-td3 and dvd-td3 have more")

    def multiply_adds(self: "TD3[Never]", num_observed: int, num_actions: int) -> float:
        """See Training. The result is an upper bound, because first layers need fewer. There is one update per step.

        Each of the two derivatives of a product costs as much as the product. Both critics need the targets' actions
        and values, and their own values with all derivatives. In every `policy_delay`-th update, each member needs its
        actions with all derivatives, and the first critic's values with the derivatives for the actions only.
        """
        policy = _num_params(num_observed, *self.hidden, num_actions)
        critic = _num_params(num_observed + num_actions, *self.hidden, 1)
        of_critics = policy + 2 * critic + 2 * 3 * critic
        of_member = 3 * policy + 2 * critic
        return self.steps * self.batch_size * (of_critics + self.population * of_member / self.policy_delay)


@dataclass(frozen=True, kw_only=True)
class ETD3(TD3[Open], Generic[Open]):
    """E-TD3: M policies that share a twin critic and a replay buffer. Diversity does not count."""

    algorithm: ClassVar[str] = "e-td3"

    population: int = option(5)
    """Number of members, M."""


@dataclass(frozen=True, kw_only=True)
class DvDTD3(ControlledInRounds[Open], ETD3[Open], Generic[Open]):
    """DvD-TD3: E-TD3 and the log determinant of all members' behaviours. A bandit chooses their weights."""

    algorithm: ClassVar[str] = "dvd-td3"

    controller: Controller = option("thompson")

    def defaults(self) -> Mapping[str, Any]:
        """See Training."""
        return {**super().defaults(), **presets.of_controller(self.controller)}


@dataclass(frozen=True, kw_only=True)
class XQC(OffPolicyTraining[Open], Generic[Open]):
    """XQC: policies that explore by chance, and well-conditioned critics in which each member has a head of its own."""

    algorithm: ClassVar[str] = "xqc"
    learner: ClassVar[str] = "xqc"
    population: int = option(1)
    """Number of members, M."""
    hidden: tuple[int, ...] = option((256, 256))
    """Widths of the hidden layers of policies."""
    critic_hidden: tuple[int, ...] = option((256, 256), at_least=1, may_be_empty=False)
    """Widths of the hidden layers of critics. The authors have 512 512 512 512, for GPUs."""
    shared_trunk: bool = option(False)
    """Whether all members share the hidden layers of their policies, and have only last layers of their own. Many
    members then need less memory."""
    updates_per_step: int = option(1, at_least=1)
    """Number of updates per environment step. The authors have 2."""
    random_steps: int = option(5_000)
    policy_delay: int = option(3)

    def _steps_per_call(self) -> int:
        """See OffPolicyTraining."""
        step = self.simulations * self.population
        return step * (self.policy_delay // math.gcd(step * self.updates_per_step, self.policy_delay))

    def multiply_adds(self: "XQC[Never]", num_observed: int, num_actions: int) -> float:
        """See Training. There are `updates_per_step` updates per step.

        Each of the two derivatives of a product costs as much as the product. Both critics need the values of two
        batches, those of their targets too, and all derivatives of the first. In every `policy_delay`-th update, the
        policies need their actions with all derivatives, and both critics' values with the derivatives for the actions.
        """
        policy = _num_params(num_observed, *self.hidden, 2 * num_actions)
        critic = _num_params(num_observed + num_actions, *self.critic_hidden, _ATOMS)
        of_critics = policy + 2 * 2 * (1 + 3) * critic
        of_policies = 3 * policy + 2 * 2 * critic
        return self.steps * self.updates_per_step * self.batch_size * (of_critics + of_policies / self.policy_delay)


@dataclass(frozen=True, kw_only=True)
class DvDXQC(ControlledInRounds[Open], XQC[Open], Generic[Open]):
    """DvD with XQC: the log determinant of all members' behaviours counts too. A bandit chooses its weight."""

    algorithm: ClassVar[str] = "dvd-xqc"

    population: int = option(5)
    """Number of members, M."""
    controller: Controller = option("thompson")

    def defaults(self) -> Mapping[str, Any]:
        """See Training."""
        return {**super().defaults(), **presets.of_controller(self.controller)}


@dataclass(frozen=True, kw_only=True)
class NicheXQC(InNiches[Open], XQC[Open], Generic[Open]):
    """niche-XQC: members occupy different niches. Worse copies of others begin anew, and the best ones are kept."""

    algorithm: ClassVar[str] = "niche-xqc"

    population: int = option(4)
    """Number of members, M."""


def _num_params(*sizes: int) -> int:
    """Number of parameters of a network with layers of these sizes."""
    return sum((before + 1) * after for before, after in pairwise(sizes))
