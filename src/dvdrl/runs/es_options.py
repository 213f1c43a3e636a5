"""The options of ES, NSR-ES, DvD-ES and niche-ES. `dvdrl.runs.options` says how options are declared."""

import dataclasses
import reprlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Never, Self

from dvdrl.errors import DvdrlError
from dvdrl.runs import presets
from dvdrl.runs.fields import option
from dvdrl.runs.presets import Preset
from dvdrl.runs.training import MOST_MEMBERS, Controlled, InNiches, Normalization, OnRay, Open, Training, XAxis

Behaviour = Literal["actions", "visits", "measures"]
AUTOMATIC_MEMBERS = 10
"""The number of members that `--population auto` trains."""
_MOST = MOST_MEMBERS // 3


@dataclass(frozen=True, kw_only=True)
class ES(OnRay[Open], Training[Open], Generic[Open]):
    """ES (evolution strategies): each member follows only its own reward."""

    algorithm: ClassVar[str] = "es"
    trainer: ClassVar[str] = "dvdrl.runs.evolution:make_trainer"
    x_axis: ClassVar[XAxis] = "rollouts"

    preset: Preset = option("recommended", role="run", group="basic")
    """Source of the defaults. recommended: our values, the same for all tasks. paper: the paper's tables.
    authors: the authors' code."""
    executor: Literal["local", "ray", "device"] = option("local", role="incidental", may_change=True, group="execution")
    """Where rollouts run. local: this machine's cores.
    ray: a Ray cluster (pip install 'dvdrl[ray]'). device: this machine's GPU (pip install 'dvdrl[gpu]')."""

    sensings: int | Open = option(None, at_least=1)
    """Number of directions k in a gradient estimate. Both signs of each are rolled out. Default: 20."""
    sigma: float | Open = option(None, above=0)
    """Standard deviation of the perturbations. Default: 0.05."""
    step_rule: Literal["plain", "adam", "authors"] | Open = option(None)
    """plain: the paper's equation. adam: Adam.
    authors: the sign of the gradient, times a factor that depends on the iteration.
    Default: adam; with the preset paper, plain; with the preset authors, authors."""
    orthogonal: bool = option(False)
    """Make perturbations orthogonal, which lowers the variance of the gradient estimate."""
    state_filter: bool = option(True)
    """Whether each member standardises its observations, by their running mean and standard deviation."""
    choices: Literal["greedy", "sampled"] = option("greedy", role="part")
    """For actions that are choices: which one training takes. greedy: the most likely one. sampled: one that is drawn
    from the policy's distribution. Evaluations, videos and exports take the most likely one."""
    starts: Literal["same", "per-iteration", "per-rollout"] | Open = option(None)
    """Which rollouts start in the same state. same: all rollouts of the run, as in the paper, whose environments are
    deterministic. per-iteration: those of an iteration. per-rollout: none.
    Default: per-iteration; with the presets paper and authors, same."""

    evaluation_interval: int = option(10, role="run", at_least=1, group="execution")
    """Evaluate the members from new starts in the first iteration, and then each time that this number is done."""
    evaluation_episodes: int = option(5, role="run", at_least=1, group="execution")
    """Episodes of each member per evaluation. They begin in the same new starts in each evaluation, so that
    iterations can be compared, and are not learned from."""

    num_states: int = option(20)
    state_pool: int = option(100, at_least=1, group="diversity")
    """Number of states, each from another rollout of the iteration, from which num_states are chosen.
    The number is reduced to the number of rollouts, but never below num_states."""
    state_rule: Literal["uniform", "zero-function", "k-dpp"] = option("uniform", group="diversity")
    """Rule that chooses num_states states from the pool."""
    state_interval: int | Open = option(None, at_least=1, group="diversity")
    """Number of iterations after which new states are chosen. Default: 20; with the preset authors, 1."""

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
        """See Training. Counts rollouts for gradients, with both signs; those of unperturbed members do not count."""
        return iteration // self.updates_each() * self.population * 2 * self.sensings

    def env_steps(self: "ES[Never]", horizon: int) -> int:
        """See Training."""
        each = self.episodes() * horizon
        iterations = self.iterations if self.steps is None else min(self.iterations, -(-self.steps // each))
        return iterations * each

    def most_iterations(self: "ES[Never]", steps: int) -> int:
        """See Training. An episode may have a single step."""
        return -(-steps // self.episodes())

    def episodes(self: "ES[Never]") -> int:
        """Episodes of an iteration."""
        return self.population + 2 * self.sensings * (self.population // self.updates_each())

    def packages(self) -> tuple[str, ...]:
        """See Training."""
        more = {"local": (), "ray": ("ray",), "device": ("mujoco-warp", "warp-lang")}
        return (*super().packages(), *more[self.executor])


class MeasureName(NamedTuple):
    """The parts of a measure's name."""

    last: bool
    """Whether it begins with `last:`."""
    module: str
    """Empty if the name is a key of `info`."""
    name: str


def parse_measure(text: str) -> MeasureName:
    """NAME or module:function, each perhaps after `last:`.

    Raises:
        DvdrlError: the text has another form, or the function is one of Python's own.
    """
    rest = text.removeprefix("last:")
    module, colon, name = rest.rpartition(":")
    if not name or (colon and not all(part.isidentifier() for part in (*module.split("."), name))):
        raise DvdrlError(
            f"measures: expected NAME, last:NAME, module:function or last:module:function, got {reprlib.repr(text)}"
        )
    if module.partition(".")[0] in sys.stdlib_module_names:  # always imported: no file shall have them called
        raise DvdrlError(f"measures: expected a function of your own, got {reprlib.repr(text)} of Python's library")
    return MeasureName(rest != text, module, name)


@dataclass(frozen=True, kw_only=True)
class Compared(ES[Open], Generic[Open]):
    """The options of what members are compared by."""

    behaviour: Behaviour = option("actions", role="part", group="diversity")
    """What members are compared by. actions: what they do in the same states. visits: the mean of their observations.
    measures: what you name with --measures."""
    measures: tuple[str, ...] = option((), role="part", group="diversity")
    """Measures, for --behaviour measures. NAME: the mean of this number in the environment's info, such as a part of
    the reward. module:function: the mean of your function of observations, from (n, obs) to (n, D).
    last:NAME, last:module:function: the value after the last step. Default: those of the task, if it has any."""

    def modules(self) -> dict[str, str]:
        """See Training."""
        named = {text: parse_measure(text).module for text in self.measures}
        return super().modules() | {text: module for text, module in named.items() if module}

    def refuse_conflicts(self) -> None:
        """See Training."""
        super().refuse_conflicts()
        if self.measures and self.behaviour != "measures":
            raise DvdrlError(f"measures: only for --behaviour measures, and behaviour is {self.behaviour}")


@dataclass(frozen=True, kw_only=True)
class NSRES(Compared[Open], Generic[Open]):
    """NSR-ES: reward and novelty, the mean distance to the other members. One member is updated per iteration."""

    algorithm: ClassVar[str] = "nsr-es"

    novelty_weight: float = option(0.5, role="part", at_least=0, at_most=1, group="diversity")
    """Weight of novelty, lambda. The reward has the weight 1 - lambda."""
    members: Literal["one", "all"] = option("one", group="diversity")
    """Which members an iteration updates: one, drawn at random, as in the paper; or all."""
    normalization: Normalization = option("none")
    """none: compare behaviours as they are, as the paper's distance does.
    across-members: first standardise them over the members."""


@dataclass(frozen=True, kw_only=True)
class DvDES(Controlled[Open], Compared[Open], Generic[Open]):
    """DvD-ES: reward and the determinant of all members' behaviours. A bandit chooses their weights."""

    algorithm: ClassVar[str] = "dvd-es"

    objective: Literal["det", "log-det"] = option("det", role="part", group="diversity")
    """Diversity score of joint perturbations: the determinant, or its logarithm."""
    members: Literal["all", "one"] = option("all", group="diversity")
    """Which members an iteration updates: all together, as in the paper; or one, drawn at random, as in NSR-ES."""

    def defaults(self: "DvDES") -> Mapping[str, Any]:
        """See Training."""
        values = super().defaults()
        return {**values, **presets.of_controller(values["controller"] if self.controller is None else self.controller)}


@dataclass(frozen=True, kw_only=True)
class NicheES(InNiches[Open], Compared[Open], Generic[Open]):
    """niche-ES: members occupy different niches. Worse copies of others begin anew, and the best ones are kept."""

    algorithm: ClassVar[str] = "niche-es"
    # "auto" becomes a number before anybody else sees the options. Each member is compared with two elites too.
    population: int | Literal["auto"] | Open = option(None, at_least=1, at_most=_MOST)  # type: ignore[assignment]
    """Number of members, M. auto: train ten, and end with as many as are good and different. Default: 5."""
    behaviour: Behaviour = option("visits")
    state_interval: int | Open = option(None)
    """Number of iterations after which new states are chosen, for the diversity metrics. Default: 20.
    With --behaviour actions it does not apply: members are compared with elites on the same states for the whole run,
    so states are chosen once, in the first iteration."""

    def spelled_out(self) -> Self:
        """See Training."""
        auto: Any = {"population": AUTOMATIC_MEMBERS, "distinct_only": True}
        return dataclasses.replace(self, **auto) if self.population == "auto" else self
