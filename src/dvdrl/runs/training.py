"""What all algorithms share: the options of any run, and what each class of options answers for its algorithm."""

import dataclasses
import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Never, Self

from typing_extensions import TypeVar

from dvdrl.errors import DvdrlError
from dvdrl.runs.fields import option

Open = TypeVar("Open", default=None, covariant=True)
"""What stands in an option that is left open. Users write `ES`, which is `ES[None]`: an open option is None, and takes
its value from a preset or from other options. `resolve` returns `ES[Never]`: no option is open any more. An option that
may be absent for good (`steps`, `out`, `seeds`) has the type `... | None` in both."""

Normalization = Literal["none", "across-members"]
Kernel = Literal["squared-exponential", "exponential", "linear", "rational-quadratic", "matern32", "matern52"]
XAxis = Literal["rollouts", "environment steps"]
MOST_MEMBERS = 2047
"""Of more there is no determinant in single precision (`dvdrl.diversity.least_shrinkage`)."""
SEEDS = 2**32
"""JAX's keys are made of 32 bits."""


@dataclass(frozen=True, kw_only=True)
class Training(Generic[Open]):
    """What all algorithms share."""

    algorithm: ClassVar[str]
    trainer: ClassVar[str]
    """What trains it, as module:function; called with the resolved options and the number of runs."""
    x_axis: ClassVar[XAxis]
    """What its curves are drawn over."""

    task: str = dataclasses.field(metadata={"role": "run"})  # by `field` itself: type checkers see that it is required
    """What to train on: a name that `dvdrl tasks` lists, or any Gymnasium id."""
    task_options: dict[str, float] = option(factory=dict, role="run")
    """Options of the task by name, such as wall_half_width of Point-v0."""
    population: int | Open = option(None, at_least=1, at_most=MOST_MEMBERS)
    """Number of members, M; default: 5, and 3 for the two-mode tasks."""
    seed: int = option(0, role="incidental", at_least=0, below=SEEDS)
    """Of everything random in the run."""
    seeds: str | None = option(None, role="outside")
    """Several runs at once, as in 0..9; each gets a directory of its own, OUT/seed-0 and so on."""
    iterations: int | Open = option(None, role="run", at_least=1)
    """When to stop; default: by task."""
    steps: int | None = option(None, role="run", at_least=1)
    """Stop earlier, after the iteration in which so many environment steps are reached."""
    out: Path | None = option(None, role="outside")
    """The run directory; default: runs/TASK-ALGORITHM-SEED."""
    keep_checkpoints: int = option(3, role="incidental", at_least=2)
    """How many of the latest checkpoints are kept; two at least, so that there is another if one is damaged."""
    wandb: bool = option(False, role="incidental")
    """Send metrics to Weights & Biases too; needs the extra wandb."""

    hidden: tuple[int, ...] | Open = option(None, role="part", at_least=1)
    """Widths of the policy's hidden layers; default: by task."""
    learning_rate: float | Open = option(None, above=0)
    """eta; default: 0.05, and 0.001 for the two-mode tasks."""

    num_states: int | None = option(None, at_least=1)
    """On how many states behaviour is compared."""
    kernel: Kernel = option("squared-exponential", role="part")
    """Similarity of two behaviours."""
    length_scale: float = option(math.sqrt(0.5), role="part", above=0)
    """Of the kernel, for distances per dimension; the default is the authors' kernel, exp(-d^2)."""
    normalization: Normalization | Open = option(None)
    """Behaviours as they are, or with each coordinate standardised over the members; default: as they are, with the
    preset authors standardised."""

    def defaults(self) -> Mapping[str, Any]:
        """Values for options that are open."""
        return {}

    def refuse_conflicts(self) -> None:
        """Refuse values that are wrong together, or in a way that no type and no bounds say.

        Raises:
            DvdrlError: so they are.
        """
        for name, value in self.task_options.items():
            if not isinstance(value, int | float):
                raise DvdrlError(f"task_options: expected a number for {name}, got {reprlib.repr(value)}")

    def of_length(self, length: int) -> "Training":
        """The same for a study, whose lengths are comparable between variants.

        ES: iterations in which all members are updated. TD3: environment steps.
        """
        raise NotImplementedError

    def finished(self: "Training[Never]", iteration: int, env_steps: int) -> bool:
        """Whether a run that has come so far has had its iterations or its steps."""
        return iteration >= self.iterations or (self.steps is not None and env_steps >= self.steps)

    def updates_each(self: "Training[Never]") -> int:
        """Iterations until every member has been updated once."""
        return 1

    def x(self: "Training[Never]", iteration: int, env_steps: int) -> int:
        """Where a run that has come so far is on the x-axis of its curves."""
        raise NotImplementedError

    def env_steps(self: "Training[Never]", horizon: int) -> int:
        """Environment steps of a whole run with its evaluations, if every episode has as many as `horizon`."""
        raise NotImplementedError

    def multiply_adds(self: "Training[Never]", num_observed: int, num_actions: int) -> float:  # noqa: ARG002
        """Of the matrix products of all updates; 0 where only simulation takes time that counts."""
        return 0.0

    def packages(self) -> tuple[str, ...]:
        """What the numbers of a run depend on, beside JAX."""
        return ("mujoco",)

    def with_cluster(self, address: str | None) -> Self:  # noqa: ARG002
        """The same on the Ray cluster at this address; what does not use Ray stays as it is."""
        return self
