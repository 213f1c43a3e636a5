"""The options of any run, and the methods by which each class of options describes its algorithm.

Options that algorithms of several kinds share are here too.
"""

import dataclasses
import json
import math
import reprlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Never, Self

import tyro
from typing_extensions import TypeVar
from tyro.conf import UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from dvdrl.documented import documented
from dvdrl.errors import DvdrlError
from dvdrl.runs.fields import option

Open = TypeVar("Open", default=None, covariant=True)
"""The type of an option that is left open. Users write `ES`, which is `ES[None]`: an open option is None, and gets its
value from a preset or from other options. `resolve` returns `ES[Never]`, in which no option is open. An option that may
stay absent (`steps`, `out`, `seeds`) has the type `... | None` in both."""

Normalization = Literal["none", "across-members"]
Kernel = Literal["squared-exponential", "exponential", "linear", "rational-quadratic", "matern32", "matern52"]
Controller = Literal["thompson", "authors-thompson", "sliding-window", "discounted", "plateau"]
XAxis = Literal["rollouts", "environment steps"]
MOST_MEMBERS = 2047
"""For more members, single precision has no determinant (`dvdrl.diversity.least_shrinkage`)."""
_PACKAGES = {"gymnax": ("gymnax",), "playground": ("playground", "mujoco-mjx", "mujoco")}
"""The packages of environments with a prefix."""
SEEDS = 2**32
"""The number of possible seeds: JAX's keys are made from 32 bits."""


def _read(words: Sequence[str]) -> Any:
    for kind in (json.loads, float):  # float: nan and inf are said to be no finite numbers, instead of texts
        try:
            return kind(words[0])
        except ValueError:
            continue
    return words[0]


Json = Annotated[
    Any,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="VALUE",
        instance_from_str=_read,
        is_instance=lambda value: True,
        str_from_instance=lambda value: [as_word(value)],
    ),
]
"""A JSON value. On the command line, whatever is not JSON is a text."""


def as_word(value: Any) -> str:
    """A JSON value as one word of the command line."""
    return value if isinstance(value, str) and isinstance(_read([value]), str) else json.dumps(value)


@documented
@dataclass(frozen=True, kw_only=True)
class Training(Generic[Open]):
    """The options that all algorithms share."""

    algorithm: ClassVar[str]
    trainer: ClassVar[str]
    """The function that makes its trainer, as module:function. It gets the resolved options and the number of runs."""
    x_axis: ClassVar[XAxis]
    """What the x-axis of its curves shows."""
    keeps_its_best: ClassVar[bool] = False
    """Whether the algorithm itself keeps the best members that it has found, and ends with them."""

    def __init_subclass__(cls) -> None:
        documented(cls)
        cls.__repr__ = Training.__repr__  # type: ignore[method-assign]  # or each dataclass would make one of its own

    def __repr__(self) -> str:
        given = [
            f"{field.name}={value!r}"
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != _default(field)
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    task: str = dataclasses.field(
        metadata={"role": "run", "group": "basic"}
    )  # not `option`: type checkers must see that it is required
    """The task to train on: a name that `dvdrl tasks` lists, or any Gymnasium id."""
    task_options: dict[str, Json] = option(factory=dict, role="run", group="basic")
    """Options of the task, each as its name and its value: a number, true, false, null, a text, or a list as in JSON.
    For example, `--task-options continuous true gravity -9.5`."""
    wrappers: Annotated[tuple[str, ...], UseAppendAction, arg(name="wrapper", metavar="MODULE:CALLABLE")] = option(
        (), role="run", group="basic"
    )
    """Gymnasium wrapper around each environment, such as gymnasium.wrappers:TimeAwareObservation, or a function of your
    own from an environment to an environment. With several, the first one is innermost."""
    perturb: Annotated[tuple[str, ...], UseAppendAction, arg(metavar="NAME=VALUE")] = option(
        (), role="run", group="basic"
    )
    """Change something in the task, such as motor:hip_1=0 or friction=0.5; may be repeated.
    `dvdrl tasks TASK --perturbations` lists what there is."""
    population: int | Open = option(None, at_least=1, at_most=MOST_MEMBERS, group="basic")
    """Number of members, M. Default: 5."""
    seed: int = option(0, role="incidental", at_least=0, below=SEEDS, group="basic")
    """Seed of all random numbers in the run."""
    seeds: str | None = option(None, role="outside", group="basic")
    """Train several runs at once, with seeds such as 0..9. Each run gets its own directory: OUT/seed-0 and so on."""
    iterations: int | Open = option(None, role="run", at_least=1, may_change=True, group="basic")
    """Number of iterations to train. Default: 200."""
    steps: int | None = option(None, role="run", at_least=1, may_change=True, group="basic")
    """Stop earlier: after the iteration that reaches this number of environment steps."""
    until: float | None = option(None, role="run", may_change=True, group="basic")
    """Stop earlier: when the return of a member in an iteration has reached this."""
    until_stalled: int | None = option(None, role="run", at_least=1, may_change=True, group="basic")
    """Stop earlier: when the best return has not risen for this number of iterations."""
    for_: Annotated[str | None, tyro.conf.arg(name="for")] = option(None, role="outside", group="basic")
    """Stop earlier: after the iteration in which this time is over, such as 30m, 2h or 1h30m."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = option(None, role="outside", group="basic")
    """Start from the policies of this run, of its export as safetensors, or of zoo:NAME, with their observation
    filters. Further members start from noisy copies of them."""
    from_members: tuple[int, ...] = option((), role="run", at_least=0, group="basic")
    """With --from, start from these members only, such as 0 2. Default: all."""
    from_digest: str | None = option(None, role="run", group="files")
    """With --from, refuse other policies than those with this digest. config.json has it, so that a repeated run starts
    from the same ones."""
    out: Path | None = option(None, role="outside", group="basic")
    """The run directory. Default: runs/TASK-ALGORITHM-SEED; with --seeds, runs/TASK-ALGORITHM."""
    keep_checkpoints: int = option(3, role="incidental", at_least=2, may_change=True, group="files")
    """Number of the latest checkpoints to keep. At least 2, so that another one is left if one is damaged."""
    keep_every: int | None = option(None, role="incidental", at_least=1, may_change=True, group="files")
    """Keep the population of every N-th iteration, for --which N of the commands that read runs. The best is kept
    anyway. Default: none."""
    wandb: bool = option(False, role="incidental", may_change=True, group="files")
    """Also send metrics to Weights & Biases. Needs pip install 'dvdrl[wandb]'."""
    wandb_project: str = option("dvdrl", role="incidental", may_change=True, group="files")
    """The project in Weights & Biases."""

    hidden: tuple[int, ...] | Open = option(None, role="part", at_least=1, below=2**20)
    """Widths of the policy's hidden layers. Default: 32 32."""
    learning_rate: float | Open = option(None, above=0)
    """Learning rate, eta. Default: 0.02."""

    num_states: int | None = option(None, at_least=1, group="diversity")
    """Number of states on which behaviours are compared."""
    kernel: Kernel = option("squared-exponential", role="part", group="diversity")
    """Kernel that measures the similarity of two behaviours."""
    length_scale: float = option(math.sqrt(0.5), role="part", above=0, group="diversity")
    """Length scale of the kernel, for distances per dimension. The default gives the authors' kernel, exp(-d^2)."""
    normalization: Normalization | Open = option(None, group="diversity")
    """none: compare behaviours as they are. across-members: first standardise each coordinate over the members.
    Default: none; with the preset authors, across-members."""

    def spelled_out(self) -> Self:
        """The same options, with what one option says about others in those."""
        return self

    def defaults(self) -> Mapping[str, Any]:
        """Values for options that are left open."""
        return {}

    def refuse_conflicts(self) -> None:
        """Refuse values that conflict, or that are wrong in a way that types and bounds do not express.

        Raises:
            DvdrlError: there are such values.
        """
        for name, value in self.task_options.items():
            _refuse_what_json_lacks(name, value)
        if self.perturb:
            from dvdrl.tasks.perturbations import parsed  # here, so that reading other options imports nothing heavy

            parsed(self.perturb)
        self.modules()

    def of_length(self, length: int) -> "Training":
        """The same options with another length of training, which studies use to compare variants.

        For ES, `length` counts iterations in which all members are updated. For TD3, it counts environment steps.
        """
        raise NotImplementedError

    def with_end(self: "Training[Never]", iterations: int | None, steps: int | None) -> "Training[Never]":
        """The same options with another end. If only one of the two is given, the other does not end the run first."""
        if iterations is None and steps is not None:
            iterations = self.most_iterations(steps)
        return self if iterations is None else dataclasses.replace(self, iterations=iterations, steps=steps)

    def most_iterations(self: "Training[Never]", steps: int) -> int:
        """How many iterations can be needed for so many environment steps."""
        raise NotImplementedError

    def updates_each(self: "Training[Never]") -> int:
        """Iterations until every member has been updated once."""
        return 1

    def x(self: "Training[Never]", iteration: int, env_steps: int) -> int:
        """The position of a run at this point on the x-axis of its curves."""
        raise NotImplementedError

    def env_steps(self: "Training[Never]", horizon: int) -> int:
        """Environment steps of a whole run with its evaluations, if every episode has `horizon` steps."""
        raise NotImplementedError

    def multiply_adds(self: "Training[Never]", num_observed: int, num_actions: int) -> float:  # noqa: ARG002
        """Multiply-adds in the matrix products of all updates; 0 if only simulation takes time that matters."""
        return 0.0

    def modules(self) -> dict[str, str]:
        """The modules that options name, besides the task's; each by the value that names it.

        Raises:
            DvdrlError: a value does not name a module and something in it.
        """
        named = {}
        for text in self.wrappers:
            module, _, name = text.rpartition(":")
            if not all(part.isidentifier() for part in (*module.split("."), name)):
                raise DvdrlError(f"wrappers: expected texts such as 'module:callable', got {reprlib.repr(text)}")
            if module.partition(".")[0] in {"__main__", *sys.stdlib_module_names}:
                raise DvdrlError(f"wrappers: expected one from a module of your own or of a package, got {text}")
            named[text] = module
        return named

    def packages(self) -> tuple[str, ...]:
        """The packages on which the numbers of a run depend, besides JAX: also those of environments and wrappers."""
        module, colon, _ = self.task.partition(":")
        if module in _PACKAGES:
            return _PACKAGES[module]
        roots = {each.partition(".")[0] for each in (*([module] if colon else []), *self.modules().values())}
        named = {package for root in roots - {"dvdrl"} for package in _installed().get(root, ())}
        return ("mujoco", "gymnasium", *sorted(named - {"mujoco", "gymnasium"}))

    def with_cluster(self, address: str | None) -> Self:  # noqa: ARG002
        """The same options with the Ray cluster at this address; unchanged if the algorithm cannot use Ray."""
        return self


@cache
def _installed() -> Mapping[str, list[str]]:
    """Module -> its packages. Once only: it reads what all packages have installed, which takes half a second."""
    return packages_distributions()


@dataclass(frozen=True, kw_only=True)
class Controlled(Generic[Open]):
    """The options of a controller of lambda."""

    controller: Controller | Open = option(None, role="part", group="diversity")
    """What chooses lambda. Default: thompson, the paper's bandit; with ES's preset authors, authors-thompson.
    authors-thompson: the bandit of the authors' code.
    sliding-window, discounted: bandits that forget old rounds.
    plateau: all members use the smallest arm while returns rise.
    When returns stall, members that have not improved try successively larger arms."""
    patience: int = option(4, role="part", at_least=1, group="diversity")
    """For plateau: after this many rounds without a rise, returns count as stalled. A round of ES is an iteration."""
    arms: tuple[float, ...] | Open = option(
        None, role="part", at_least=0, at_most=1, may_be_empty=False, group="diversity"
    )
    """Values of lambda from which the controller chooses. A single value fixes lambda.
    Default: 0 and 0.5, as in the paper; with plateau, 0, 0.5 and 0.8."""


@dataclass(frozen=True, kw_only=True)
class OnRay(Generic[Open]):
    """The options of algorithms whose simulations can run on a Ray cluster."""

    ray_address: str | None = option(None, role="outside", group="execution")
    """Ray cluster to join. Default: the one in the variable RAY_ADDRESS, or else a new one on this machine."""
    ray_time_limit: float = option(1800.0, role="incidental", above=0, may_change=True, group="execution")
    """Seconds after which a Ray worker that does not answer is ended. Its work is then done again elsewhere."""

    def with_cluster(self, address: str | None) -> Self:
        """See Training."""
        return dataclasses.replace(self, ray_address=address)


@dataclass(frozen=True, kw_only=True)
class InNiches(Generic[Open]):
    """The options of niches: worse copies of other members begin anew, and the best of all lives are kept."""

    keeps_its_best: ClassVar[bool] = True

    distinct_only: bool = option(False, role="part", group="diversity")
    """End with all members and elites that are good and different, however many, and with no others."""
    least_return: float | None = option(None, role="part", group="diversity")
    """Least return of a good member. A member below it begins anew, and does not count as distinct.
    Default: a quarter of the way from the first iteration's mean to the best so far."""
    without: tuple[Literal["relevance", "renewal", "order"], ...] = option((), role="part", group="diversity")
    """Leave out a part of the algorithm, to see what it is for. relevance: all coordinates count alike.
    renewal: copies go on as they are. order: members are compared with all others, not only with fitter ones."""


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _refuse_what_json_lacks(name: str, value: Any) -> None:
    """Refuse a value that config.json cannot hold."""
    if isinstance(value, list | dict):
        for inside in value.values() if isinstance(value, dict) else value:
            _refuse_what_json_lacks(name, inside)
    elif not isinstance(value, str | int | float | None):
        expected = "a number, a text, true, false, null, or a list or an object of them"
        raise DvdrlError(f"task_options: {name}: expected {expected}, got {reprlib.repr(value)}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise DvdrlError(f"task_options: {name}: expected a finite number, got {value}")
    elif isinstance(value, int) and abs(value) >= 2**53:
        raise DvdrlError(f"task_options: {name}: expected less than 2**53, got {reprlib.repr(value)}")
