"""What can be set of a run: frozen dataclasses that are the options of `dvdrl train` and its Python interface alike.

A field that is None takes its value from the preset: `paper` is what the paper's tables and text say and, where they
are silent, what the authors' code does; `authors` is what the authors' code does throughout. Imports nothing heavy.
"""

import dataclasses
import json
import math
import re
import reprlib
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dvdrl.errors import DvdrlError

Preset = Literal["paper", "authors"]
Normalization = Literal["none", "across-members"]
Controller = Literal["thompson", "authors-thompson", "sliding-window", "discounted", "plateau"]

# The hyper-parameters of the paper's two tables (appendix A.2), by task. Population sizes are in section 5; iterations
# are those of its kernel table, or ours (200) where it names none. Other tasks take the column of HalfCheetah.
_COLUMN: dict[str, Any] = {
    "population": 5,
    "sensings": 100,
    "sigma": 0.1,
    "learning_rate": 0.05,
    "hidden": (32, 32),
    "iterations": 200,
}
_MULTIMODAL: dict[str, Any] = {**_COLUMN, "population": 3, "sigma": 0.001, "learning_rate": 0.001}
PAPER_TABLES: dict[str, dict[str, Any]] = {
    "Point-v0": {**_COLUMN, "hidden": (16, 16), "iterations": 50},
    "Swimmer-v5": {**_COLUMN, "hidden": (16, 16), "iterations": 100},
    "HalfCheetah-v5": _COLUMN,
    "Walker2d-v5": _COLUMN,
    "BipedalWalker-v3": _COLUMN,
    "HalfCheetah-FwdBwd-v0": _MULTIMODAL,
    "Ant-FwdBwd-v0": {**_MULTIMODAL, "hidden": (64, 64), "sensings": 300},
}
_PRESETS: dict[Preset, dict[str, Any]] = {
    "paper": {"step_rule": "plain", "state_interval": 20, "controller": "thompson", "normalization": "none"},
    "authors": {
        "step_rule": "authors",
        "state_interval": 1,
        "controller": "authors-thompson",
        "normalization": "across-members",
    },
}
_ARMS = {"plateau": (0.0, 0.5, 0.8)}
_PAPER_ARMS = (0.0, 0.5)


@dataclass(frozen=True, kw_only=True)
class Training:
    """What all algorithms share."""

    algorithm: ClassVar[str]

    task: str
    """What to train on: a name that `dvdrl tasks` lists, or any Gymnasium id."""
    task_options: dict[str, float] = field(default_factory=dict)
    """Options of the task by name, such as wall_half_width of Point-v0."""
    population: int | None = None
    """Number of members, M; default: 5, and 3 for the two-mode tasks."""
    seed: int = 0
    """Of everything random in the run."""
    seeds: str | None = None
    """Several runs at once, as in 0..9; each gets a directory of its own, OUT/seed-0 and so on."""
    iterations: int | None = None
    """When to stop; default: by task."""
    steps: int | None = None
    """Stop earlier, after the iteration in which so many environment steps are reached."""
    out: Path | None = None
    """The run directory; default: runs/TASK-ALGORITHM-SEED."""
    keep_checkpoints: int = 3
    """How many of the latest checkpoints are kept; two at least, so that there is another if one is damaged."""
    wandb: bool = False
    """Send metrics to Weights & Biases too; needs the extra wandb."""

    hidden: tuple[int, ...] | None = None
    """Widths of the policy's hidden layers; default: by task."""
    learning_rate: float | None = None
    """eta; default: 0.05, and 0.001 for the two-mode tasks."""

    num_states: int | None = None
    """On how many states behaviour is compared."""
    kernel: Literal["squared-exponential", "exponential", "linear", "rational-quadratic", "matern32", "matern52"] = (
        "squared-exponential"
    )
    """Similarity of two behaviours."""
    length_scale: float = math.sqrt(0.5)
    """Of the kernel, for distances per dimension; the default is the authors' kernel, exp(-d^2)."""
    normalization: Normalization | None = None
    """Behaviours as they are, or with each coordinate standardised over the members."""


@dataclass(frozen=True, kw_only=True)
class ES(Training):
    """Evolution strategies: every member follows its own reward alone."""

    algorithm: ClassVar[str] = "es"

    preset: Preset = "paper"
    """Where options that are not given come from: the paper's tables, or the authors' code."""
    executor: Literal["local", "ray", "device"] = "local"
    """Where rollouts run: this machine's cores, a Ray cluster (extra ray), or this machine's GPU (extra gpu)."""
    ray_address: str | None = None
    """The Ray cluster to join; default: that of the variable RAY_ADDRESS, or one on this machine."""
    ray_time_limit: float = 1800.0
    """Seconds after which a Ray worker that has not answered is ended, and its rollouts are run again elsewhere."""

    sensings: int | None = None
    """Directions k of a gradient estimate; both signs of each are rolled out. Default: 100, and 300 for the Ant."""
    sigma: float | None = None
    """Deviation of the perturbations; default: 0.1, and 0.001 for the two-mode tasks."""
    step_rule: Literal["plain", "adam", "authors"] | None = None
    """plain: the paper's equation. adam. authors: the sign of the gradient, times a factor of the iteration."""
    orthogonal: bool = False
    """Make perturbations orthogonal, which lowers the variance of the estimate."""
    state_filter: bool = True
    """Whether observations are standardised by the running mean and deviation of each member."""
    starts: Literal["same", "per-iteration", "per-rollout"] = "same"
    """Which rollouts start in the same state. The paper assumes a deterministic environment: same."""

    num_states: int = 20
    """On how many states behaviour is compared."""
    state_pool: int = 100
    """Of how many states, each from another rollout of the iteration, those are chosen; at most as many as there are
    rollouts, and never fewer than those."""
    state_rule: Literal["uniform", "zero-function", "k-dpp"] = "uniform"
    """How they are chosen."""
    state_interval: int | None = None
    """After how many iterations they are chosen anew; default: 20, with the preset authors 1."""
    normalization: Normalization | None = None
    """Behaviours as they are, or with each coordinate standardised over the members; default: as they are, with the
    preset authors standardised."""


@dataclass(frozen=True, kw_only=True)
class NSRES(ES):
    """NSR-ES: reward and novelty, the mean distance to the other members; one member is updated an iteration."""

    algorithm: ClassVar[str] = "nsr-es"

    novelty_weight: float = 0.5
    """lambda, the weight of novelty; the reward has 1 - lambda."""
    members: Literal["one", "all"] = "one"
    """Which members an iteration updates: one drawn at random, as the paper does, or all."""
    normalization: Normalization = "none"
    """Behaviours as they are, as the paper's distance has them, or standardised over the members."""


@dataclass(frozen=True, kw_only=True)
class DvDES(ES):
    """DvD-ES: reward and the determinant of all members' behaviours; a bandit chooses how much either counts."""

    algorithm: ClassVar[str] = "dvd-es"

    controller: Controller | None = None
    """What chooses lambda; default: thompson, the paper's bandit. authors-thompson: that of their code. plateau:
    the smallest of the arms while returns rise; when they do not, the next one, and the one after, for all that have
    found no way on."""
    patience: int = 4
    """Of the controller plateau: so many iterations without a rise are one."""
    arms: tuple[float, ...] | None = None
    """The values of lambda that it chooses from; one value alone is a fixed lambda. Default: the paper's, 0 and 0.5;
    with plateau 0, 0.5 and 0.8."""
    objective: Literal["det", "log-det"] = "det"
    """What joint perturbations are scored by."""
    members: Literal["all", "one"] = "all"
    """Which members an iteration updates: all, together, as the paper does, or one drawn at random, as NSR-ES does."""


@dataclass(frozen=True, kw_only=True)
class TD3(Training):
    """TD3: one policy, a twin critic, one update of them for each environment step."""

    algorithm: ClassVar[str] = "td3"

    population: int = 1
    """Number of members, M. One: with more it is E-TD3."""
    steps: int = 1_000_000
    """Environment steps of all members together; the run ends with the iteration in which they are reached."""
    executor: Literal["local"] = "local"
    """Where simulations run: on this machine's cores. Ray and the engine on a GPU are for ES."""
    simulations: int = 1
    """Of each member, stepped together. With more of them steps and their updates come in larger portions, which takes
    less time; it is still one update for each environment step."""
    iterations: int | None = None
    """Stop earlier, after so many iterations."""
    iteration_steps: int = 5_000
    """Environment steps of all members together in an iteration; each ends with an evaluation and a checkpoint."""
    evaluation_episodes: int = 3
    """Episodes of each member, without exploration, in an evaluation."""

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of policies and critics."""
    learning_rate: float = 3e-4
    """Of Adam, for policies and critics."""
    batch_size: int = 256
    """Transitions in a batch."""
    buffer_size: int = 1_000_000
    """Transitions that the replay buffer holds."""
    random_steps: int = 25_000
    """Environment steps with random actions, before anything is learned."""
    discount: float = 0.99
    """gamma."""
    target_rate: float = 0.005
    """tau: how far targets go towards what they follow."""
    target_noise: float = 0.2
    """Deviation of the noise that smooths target policies."""
    target_noise_clip: float = 0.5
    """Where that noise is clipped."""
    policy_delay: int = 2
    """Updates of the critics for each update of the policies."""
    exploration_noise: float = 0.1
    """Deviation of the noise on actions while collecting."""
    bootstrapping: Literal["collector", "random"] = "collector"
    """Whose target policy a transition's target is computed with: that of the member that collected it, or of a member
    at random."""

    num_states: int | None = None
    """On how many states of a batch behaviour is compared; default: all."""
    normalization: Normalization = "none"
    """Behaviours as they are, or with each coordinate standardised over the members."""
    shrinkage: float = 0.01
    """By how much similarities are shrunk in log det, which bounds its gradient where members coincide."""


@dataclass(frozen=True, kw_only=True)
class ETD3(TD3):
    """E-TD3: M policies that share a twin critic and a replay buffer, without regard to diversity."""

    algorithm: ClassVar[str] = "e-td3"

    population: int = 5
    """Number of members, M."""


@dataclass(frozen=True, kw_only=True)
class DvDTD3(ETD3):
    """DvD-TD3: E-TD3 and the log determinant of all members' behaviours; a bandit chooses how much either counts."""

    algorithm: ClassVar[str] = "dvd-td3"

    controller: Controller = "thompson"
    """What chooses lambda: thompson is the paper's bandit; plateau has the smallest of the arms while returns rise,
    and when they do not, the next one, and the one after, for all that have found no way on."""
    patience: int = 4
    """Of the controller plateau: so many rounds without a rise are one."""
    arms: tuple[float, ...] | None = None
    """The values of lambda that it chooses from; one value alone is a fixed lambda. Default: the paper's, 0 and 0.5;
    with plateau 0, 0.5 and 0.8."""
    pull_interval: int = 1
    """Rounds from one choice of lambda to the next; in a round every member finishes an episode."""


CONFIGS: dict[str, type[Training]] = {config.algorithm: config for config in (ES, NSRES, DvDES, TD3, ETD3, DvDTD3)}
"""By the name of the algorithm."""
Config = TypeVar("Config", bound=Training)

FORMAT = 3
"""Of run directories, in config.json. 1 had no such number, no digests in policies/, and ray_address in config.json; 2
had an option of a controller that is gone. Both are read as they are. A change that cannot be read this way needs a new
number, and a command that migrates."""
_GONE = {1: ("ray_address", "exploration_rounds"), 2: ("exploration_rounds",)}
"""Options of older formats that mean nothing now."""
_NOT_IN_FILE = ("out", "seeds", "ray_address")
"""Where a run goes and by which machines it is computed is not part of what it is, and not for a file to decide."""


def resolve(config: Config) -> Config:
    """The config with every None that a preset fills in filled in.

    Raises:
        DvdrlError: a value that no run can have.
    """
    if config.wandb and find_spec("wandb") is None:
        raise DvdrlError("wandb: Weights & Biases is not installed; pip install 'dvdrl[wandb]'")
    return _filled_in(config)


def _filled_in(config: Config) -> Config:
    lists: dict[str, Any] = {name: tuple(value) for name, value in vars(config).items() if isinstance(value, list)}
    config = dataclasses.replace(config, **lists)  # as one may write them in Python
    _check_types(config)
    values: dict[str, Any] = {}
    if isinstance(config, TD3):
        values["iterations"] = -(-config.steps // whole_iteration(config))
    elif isinstance(config, ES):
        values |= {**PAPER_TABLES.get(config.task, _COLUMN), **_PRESETS[config.preset]}
    if isinstance(config, DvDES | DvDTD3):
        values["arms"] = _ARMS.get(config.controller or values["controller"], _PAPER_ARMS)
    missing = {f.name for f in dataclasses.fields(config) if getattr(config, f.name) is None}
    resolved = dataclasses.replace(config, **{name: values[name] for name in missing & values.keys()})
    _check(resolved)
    return resolved


def whole_iteration(config: TD3) -> int:
    """Environment steps of an iteration: `iteration_steps`, rounded up to whole calls of the update."""
    call = math.lcm(max(config.simulations, 1) * max(config.population, 1), max(config.policy_delay, 1))
    return -(-max(config.iteration_steps, 1) // call) * call


def runs_of(config: Config) -> list[tuple[Path, Config]]:
    """The directory and the config of each run: one, or with `seeds` as many as there are seeds."""
    name = re.sub(r"[^\w.-]", "-", f"{config.task}-{config.algorithm}")  # one directory, whatever the task is called
    if config.seeds is None:
        return [(Path(config.out or Path("runs") / f"{name}-{config.seed}"), config)]
    match = re.fullmatch(r"(\d+)\.\.(\d+)", config.seeds) if isinstance(config.seeds, str) else None
    if not match or int(match[1]) > int(match[2]):
        raise DvdrlError(f"seeds: expected the first and the last, as in 0..9, got {config.seeds!r}")
    if int(match[2]) >= _SEEDS:
        raise DvdrlError(f"seeds: expected less than 2**32, got {config.seeds}")
    if config.seed:
        raise DvdrlError(f"seed: with seeds {config.seeds} there is no other, got {config.seed}; leave one of both out")
    out = Path(config.out or Path("runs") / name)
    return [
        (out / f"seed-{seed}", dataclasses.replace(config, seed=seed, seeds=None))
        for seed in range(int(match[1]), int(match[2]) + 1)
    ]


def to_json(config: Training) -> str:
    """The file config.json."""
    values = {name: value for name, value in dataclasses.asdict(config).items() if name not in _NOT_IN_FILE}
    return json.dumps({"format": FORMAT, "algorithm": config.algorithm, **values}, indent=2) + "\n"


def from_json(path: Path) -> Training:
    """What `to_json` wrote.

    Raises:
        DvdrlError: it is something else, has a value that no run can have, or is of a later format.
    """
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise DvdrlError(f"{path}: there is no such file; a run directory has a config.json") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DvdrlError(f"{path}: expected the config.json of a run, got {_said(error)}") from error
    return from_values(values, path)


def from_values(values: Any, path: Path) -> Training:
    """The same for what has been read already, from a file that may hold more.

    Raises:
        DvdrlError: as for `from_json`.
    """
    try:
        values = dict(values)
        made = values.pop("format", 1)
        if made not in range(1, FORMAT + 1):
            raise DvdrlError(
                f"{path}: a run of format {reprlib.repr(made)}, and this version of dvdrl reads formats up to {FORMAT};"
                " pip install --upgrade dvdrl"
            )
        for gone in _GONE.get(made, ()):
            values.pop(gone, None)
        kind = CONFIGS[values.pop("algorithm")]
    except (ValueError, KeyError, TypeError) as error:
        raise DvdrlError(f"{path}: expected the config.json of a run, got {_said(error)}") from error
    types = get_type_hints(kind)
    known = {each.name for each in dataclasses.fields(kind)}.difference(_NOT_IN_FILE)
    options: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise DvdrlError(f"{path}: {kind.algorithm} has no option {reprlib.repr(name)}")
        try:
            options[name] = _typed(types[name], value)
        except (ValueError, OverflowError) as error:
            raise DvdrlError(
                f"{path}: {name}: expected {_said_type(types[name])}, got {reprlib.repr(value)}"
            ) from error
    if "task" not in options:
        raise DvdrlError(f"{path}: expected the config.json of a run, got one without a task")
    try:
        return _filled_in(kind(**options))
    except DvdrlError as error:
        raise DvdrlError(f"{path}: {error}") from error


def refuse_unknown_module(config: Training) -> None:
    """Refuse a task of a module that nobody has imported: a file that somebody else wrote must not choose what runs."""
    module = config.task.rpartition(":")[0]
    if module and module not in sys.modules:
        raise DvdrlError(
            f"{config.task}: the file names the module {module}, whose code would run; if you trust it,"
            f" `--module {module}`, or in Python `import {module}` first"
        )


def _typed(kind: Any, value: Any) -> Any:
    """A value of JSON as a field of that type has it."""
    origin, inside = get_origin(kind), get_args(kind)
    kind = dict if origin is dict else kind  # of which the values are looked at with all others'
    if origin in (Union, UnionType):
        kind, origin, inside = (NoneType, None, ()) if value is None else _of_union(inside)
    if origin is Literal:
        if isinstance(value, str) and value in inside:
            return value
    elif origin is tuple:
        if isinstance(value, list):
            return tuple(_typed(inside[0], item) for item in value)
    elif kind is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif isinstance(value, kind) and isinstance(value, bool) == (kind is bool):
        return value
    raise ValueError


def _said_type(kind: Any) -> str:
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        kind, origin, inside = _of_union(inside)
    return f"one of {', '.join(inside)}" if origin is Literal else getattr(kind, "__name__", str(kind))


def _of_union(inside: tuple[Any, ...]) -> tuple[Any, Any, tuple[Any, ...]]:
    """The one type of `type | None` that is not None."""
    (kind,) = (each for each in inside if each is not NoneType)
    return kind, get_origin(kind), get_args(kind)


_AT_LEAST_1 = (
    *("population", "steps", "iterations", "sensings", "num_states", "state_pool", "state_interval"),
    *("simulations", "iteration_steps", "evaluation_episodes", "batch_size", "buffer_size", "policy_delay"),
    *("pull_interval", "patience"),
)
_POSITIVE = ("sigma", "learning_rate", "length_scale", "ray_time_limit")
_NOT_NEGATIVE = ("seed", "random_steps", "target_noise", "target_noise_clip", "exploration_noise")
_MOST_MEMBERS = 2047
"""Of more there is no determinant in single precision (`dvdrl.diversity.least_shrinkage`)."""
_SEEDS = 2**32
"""JAX's keys are made of 32 bits."""
_FROM_0_TO_1 = ("arms", "novelty_weight", "discount", "target_rate", "shrinkage")


def _check_types(config: Training) -> None:
    types = get_type_hints(type(config))
    for name, value in vars(config).items():
        if name not in _NOT_IN_FILE and value is not None:
            try:
                _typed(types[name], list(value) if isinstance(value, tuple) else value)
            except (ValueError, OverflowError) as error:
                raise DvdrlError(f"{name}: expected {_said_type(types[name])}, got {reprlib.repr(value)}") from error


def _check(config: Training) -> None:
    given = {name: value for name, value in vars(config).items() if value is not None}
    for name in (name for name in _AT_LEAST_1 if name in given):
        if given[name] < 1:
            raise DvdrlError(f"{name}: expected at least 1, got {given[name]}")
    if given["population"] > _MOST_MEMBERS:
        raise DvdrlError(f"population: expected at most {_MOST_MEMBERS}, got {given['population']}")
    if config.keep_checkpoints < 2:  # so that there is another if one is damaged
        raise DvdrlError(f"keep_checkpoints: expected at least 2, got {config.keep_checkpoints}")
    for name, value in config.task_options.items():
        if not isinstance(value, int | float):
            raise DvdrlError(f"task_options: expected a number for {name}, got {reprlib.repr(value)}")
    if config.seed >= _SEEDS:
        raise DvdrlError(f"seed: expected less than 2**32, got {config.seed}")
    for name in (name for name in _POSITIVE if name in given):
        if not 0 < given[name] < math.inf:
            raise DvdrlError(f"{name}: expected a positive number, got {given[name]}")
    for name in (name for name in _NOT_NEGATIVE if name in given):
        if not 0 <= given[name] < math.inf:
            raise DvdrlError(f"{name}: expected 0 or more, got {given[name]}")
    for name in (name for name in _FROM_0_TO_1 if name in given):
        values = given[name] if isinstance(given[name], tuple) else (given[name],)
        if not values or not all(0 <= value <= 1 for value in values):
            raise DvdrlError(f"{name}: expected values from 0 to 1, got {', '.join(map(str, values)) or 'none'}")
    if config.hidden is not None and any(width < 1 for width in config.hidden):
        raise DvdrlError(f"hidden: expected widths of at least 1, got {config.hidden}")
    if isinstance(config, TD3) and (config.num_states or 0) > config.batch_size:
        raise DvdrlError(f"num_states: a batch has {config.batch_size} states, got {config.num_states}")
    if isinstance(config, TD3) and config.steps >= 2**31:  # they are counted on the device, in 32 bits
        raise DvdrlError(f"steps: expected less than 2**31, got {config.steps:,}")
    if type(config) is TD3 and config.population != 1:
        raise DvdrlError(f"population: td3 has one member, got {config.population}; e-td3 and dvd-td3 have more")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
