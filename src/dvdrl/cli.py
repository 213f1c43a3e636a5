"""The command `dvdrl`. Each subcommand is a frozen dataclass: its fields are the options, its docstring the help.

Nothing heavy is imported before a subcommand runs, so that `--help` answers at once.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, subcommand

from dvdrl import __version__
from dvdrl.errors import DvdrlError
from dvdrl.runs.options import ALGORITHMS
from dvdrl.runs.training import Training

if TYPE_CHECKING:
    Algorithm = Training
else:
    Algorithm = Union[tuple(Annotated[kind[None], subcommand(name)] for name, kind in ALGORITHMS.items())]  # noqa: UP007

Module = Annotated[
    str | None,
    tyro.conf.arg(help="The module of a task of your own, to import it: a run directory is not trusted to choose one."),
]


@dataclass(frozen=True)
class Reproduce:
    """Reproduce an experiment of the paper: prints its tables and saves the numbers and the figure.

    `dvdrl reproduce --list` says what each is, and what it costs here. Ctrl-C ends it with the tables of what is
    finished; run again, it goes on where it was: what it trains is in runs/EXPERIMENT.
    """

    experiment: Positional[
        Literal[
            "tabular", "theory", "point", "multimodal", "unimodal", "kernels", "adaptive", "humanoid", "states",
            "population", "humanoid-choices", "td3-choices", "td3-base",
        ]
        | None
    ] = None  # fmt: skip
    """Which experiment."""
    scale: Literal["smoke", "small", "medium", "paper"] = "paper"
    """How much of it: to see that it runs; what two cores do in an hour or so; with a fifth of the paper's rollouts or
    less, which is for a GPU; or as in the paper. Experiments that are small already have no medium."""
    setting: str | None = None
    """One task of the experiment, as in Swimmer-v5, or one wall, as in "half width 4"; default: all of the scale."""
    seeds: str | None = None
    """First and last seed of what is trained, as in 0..9; default: as many as in the paper, fewer at smaller scales."""
    executor: Literal["local", "ray", "device"] = "local"
    """Where the rollouts of ES run; as for `dvdrl train`."""
    processes: int = 1
    """How many trainings run at once, each in a process of its own."""
    tables_only: bool = False
    """Train nothing: tables and figure of what is finished, and which cells are not."""
    out: Path | None = None
    """Directory for tables, figure, what they are made of and the record of how; what is kept there already is not
    trained again. Default: results/EXPERIMENT, and for one setting results/EXPERIMENT/SETTING."""
    list: bool = False
    """List the experiments with their costs instead."""

    def __call__(self) -> None:
        """Run the experiment."""
        from importlib import import_module

        if self.list:
            import_module("dvdrl.studies.costs").print_costs()
            return
        if self.experiment is None:
            raise DvdrlError("reproduce: name an experiment; `dvdrl reproduce --list` lists them")
        if self.processes < 1:
            raise DvdrlError(f"processes: expected at least 1, got {self.processes}")
        out = self.out or Path("results") / self.experiment / (self.setting or "").replace(" ", "-")
        if self.experiment in ("tabular", "theory"):
            if self.setting is not None:
                raise DvdrlError(f"setting: {self.experiment} has none; got {self.setting!r}")
            import_module(f"dvdrl.studies.{self.experiment}").reproduce(out)
            return
        from dvdrl.studies.study import reproduce

        reproduce(
            self.experiment,
            out,
            scale=self.scale,
            seeds=self.seeds,
            executor=self.executor,
            setting=self.setting,
            processes=self.processes,
            tables_only=self.tables_only,
        )


@dataclass(frozen=True)
class Bench:
    """Measure speed as ratios to a reference timed in the same run.

    diversity: Gram matrix, log determinant and gradient against an actor-critic update on the same batch.
    tasks: environment steps a second of an engine against the physics alone, and against Gymnasium (minutes).
    es: DvD-ES on HalfCheetah end to end against a bare mj_step loop; how Ray scales; ten seeds on a GPU (minutes).
    td3: an update by population, against one agent and sbx-rl's update; DvD-TD3 on Humanoid end to end (minutes).
    """

    subject: Positional[Literal["diversity", "tasks", "es", "td3"]]
    """What to measure."""
    engine: Literal["host", "device"] = "host"
    """For tasks and es: this machine's cores, or its GPU."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def __call__(self) -> None:
        """Measure and print."""
        from importlib import import_module

        on_device = {"tasks": "device", "es": "es_device"}
        if self.engine == "device" and self.subject not in on_device:
            raise DvdrlError(f"bench {self.subject}: --engine is for {' and '.join(on_device)}")
        module = on_device[self.subject] if self.engine == "device" else self.subject
        import_module(f"dvdrl.benchmarks.{module}").bench(as_json=self.json)


@dataclass(frozen=True)
class Tasks:
    """List what can be trained on: sizes, horizon, and the engines that run it."""

    def __call__(self) -> None:
        """Print the table."""
        from rich.console import Console
        from rich.table import Table

        from dvdrl.engines import engines_of
        from dvdrl.tasks.registry import TASKS, make

        table = Table("task", "observation", "action", "horizon", "engines", box=None, header_style="bold")
        for task in map(make, TASKS):
            sizes = map(str, (task.observation_size, task.action_size, task.horizon))
            table.add_row(task.id, *sizes, ", ".join(engines_of(task)))
        table.add_row("any other Gymnasium id", "", "", "", "gymnasium")
        Console().print(table)


def _say_where(trained: Any) -> None:
    """Where what has been trained is, and how to look at it."""
    directory = trained[0].directory.parent if isinstance(trained, list) else trained.directory
    print(f"finished: {directory}; `dvdrl report {directory}` shows it", file=sys.stderr)


@dataclass(frozen=True)
class Train:
    """Train a population. Each algorithm has a --help of its own.

    `dvdrl train --config FILE [--out DIR]` repeats a run from its config.json.
    """

    options: Algorithm

    def __call__(self) -> None:
        """Train."""
        from dvdrl.runs.loop import train

        _say_where(train(self.options))


@dataclass(frozen=True)
class Repeat:
    """Repeat a run from its config.json."""

    config: Path
    """The config.json of a run."""
    out: Path | None = None
    """The new run directory; default: runs/TASK-ALGORITHM-SEED."""
    module: Module = None

    def __call__(self) -> None:
        """Train as the file says."""
        from dvdrl.runs.file import from_json, refuse_unknown_module
        from dvdrl.runs.loop import train

        options = from_json(self.config)
        _import(self.module)
        refuse_unknown_module(options)
        _say_where(train(replace(options, out=self.out)))


@dataclass(frozen=True)
class Resume:
    """Continue a run that stopped, exactly as if it had not; also all runs that --seeds has put into a directory."""

    directory: Positional[Path]
    """The run directory."""
    ray_address: str | None = None
    """As in `dvdrl train`: it is no part of a run."""
    module: Module = None

    def __call__(self) -> None:
        """Train on."""
        from dvdrl.runs.loop import resume

        _import(self.module)
        _say_where(resume(self.directory, ray_address=self.ray_address))


@dataclass(frozen=True)
class Evaluate:
    """Roll out the members of a run from new starts: returns of each, and how diverse they are."""

    directory: Positional[Path]
    """The run directory."""
    episodes: int = 10
    """Episodes of each member."""
    json: bool = False
    """Print one JSON object instead of a table."""
    paths: Path | None = None
    """Also save a picture of the members' paths, seen from above, as PNG, SVG or PDF; for Point-v0."""
    module: Module = None

    def __call__(self) -> None:
        """Roll out and print."""
        import json

        from dvdrl.runs.evaluation import evaluate

        _import(self.module)
        if self.paths is not None:
            from dvdrl.views.paths import draw_paths, refuse_what_has_no_picture

            refuse_what_has_no_picture(self.directory, self.paths)
        result = evaluate(self.directory, self.episodes)
        if self.paths is not None:
            draw_paths(self.directory, self.paths)
        if self.json:
            print(json.dumps(result))
            return
        print(f"{result['algorithm']} on {result['task']}, iteration {result['iteration']}, {self.episodes} episodes")
        members = zip(result["member_returns"], result["member_deviations"], strict=True)
        for member, (mean, deviation) in enumerate(members):
            print(f"  member {member}  {mean:10.1f} ± {deviation:.1f}")
        for mode, returns in result.get("mode_returns", {}).items():
            print(f"  {mode}: " + ", ".join(f"{value:.1f}" for value in returns))
        count = len(result["member_returns"])
        print(f"  log det {result['log_det']:.3f}   Vendi score {result['vendi_1']:.2f} of {count}")


@dataclass(frozen=True)
class Report:
    """Make one self-contained HTML page of a run, or of several to compare them: see docs/views.md."""

    directories: Positional[tuple[Path, ...]]
    """Run directories; one with the runs of several seeds stands for all of them."""
    out: Path | None = None
    """The file; default: report.html in the run directory, or here for several."""
    watch: bool = False
    """Serve the page to browsers on this machine instead, and follow runs that are being trained; until Ctrl-C."""
    port: int = 8000
    """Of --watch; 0 takes any that is free."""

    def __call__(self) -> None:
        """Write the page, or serve it."""
        if self.watch:
            from dvdrl.views.watch import serve

            if self.out is not None:
                raise DvdrlError("report: --watch writes no file, so --out does not go with it")
            serve(self.directories, self.port)
        else:
            from dvdrl.views.report import write_report

            print(write_report(self.directories, self.out))


@dataclass(frozen=True)
class Render:
    """Film the members of a run, without a display: DIR/videos/member-0.mp4, .., and all side by side in tiled.mp4.

    The last picture of the latter is saved as tiled.png.
    """

    directory: Positional[Path]
    """The run directory."""
    every: int | None = None
    """Follow a run that is being trained, and film it whenever so many more iterations are done, until its end."""
    steps: int | None = None
    """At most so many control steps; default: the whole episode."""
    width: int = 320
    """Of a member's picture, in pixels; environments other than MuJoCo's tasks have a size of their own."""
    height: int = 240
    """Likewise."""
    seed: int = 0
    """Of the state in which all members start."""
    module: Module = None

    def __call__(self) -> None:
        """Film, and say where the videos are."""
        from dvdrl.views import render

        _import(self.module)
        options: dict[str, Any] = {"width": self.width, "height": self.height, "steps": self.steps, "seed": self.seed}
        films = (
            render.follow(self.directory, self.every, **options)
            if self.every is not None
            else iter([render.render(self.directory, **options)])
        )
        for paths in films:
            print(*paths, sep="\n", flush=True)


@dataclass(frozen=True)
class Export:
    """Write the policies of a run for use elsewhere, checked against the run's own: see docs/deploy.md.

    One file with the whole population, which takes the number of a member as a second input, and one file a member.
    """

    directory: Positional[Path]
    """The run directory."""
    format: Literal["onnx", "safetensors"]
    """onnx: graphs that any ONNX runtime runs (extra onnx). safetensors: the bare arrays."""
    out: Path | None = None
    """Where the files go; default: DIR/exports."""

    def __call__(self) -> None:
        """Check, write, and say where."""
        from dvdrl.views.export import export

        for path in export(self.directory, self.format, self.out):
            print(path)


def _import(module: str | None) -> None:
    from importlib import import_module

    if module is None:
        return
    if not all(part.isidentifier() for part in module.split(".")):
        raise DvdrlError(f"module: expected the name of a module, got {module!r}")
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        raise DvdrlError(f"module: {error}") from error


Command = (
    Annotated[Reproduce, subcommand("reproduce")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[Tasks, subcommand("tasks")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Resume, subcommand("resume")]
    | Annotated[Evaluate, subcommand("evaluate")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Render, subcommand("render")]
    | Annotated[Export, subcommand("export")]
)  # fmt: skip


def _refuse_what_mujoco_cannot_load() -> None:
    """MuJoCo loads what MUJOCO_GL names when it is imported, and ends in a traceback if it is not there."""
    named = os.environ.get("MUJOCO_GL")
    if named:
        try:
            import mujoco  # noqa: F401
        except Exception as error:
            raise DvdrlError(
                f"nothing to draw with: MUJOCO_GL={named} does not work here; unset it, and what works is found"
            ) from error


def main() -> None:
    """Entry point of the console command."""
    if sys.argv[1:] == ["--version"]:
        print(f"dvdrl {__version__}")
        return
    arguments = sys.argv[1:]
    command: Callable[[], None]
    if arguments[:1] == ["train"] and any(argument.split("=")[0] == "--config" for argument in arguments[1:]):
        command = tyro.cli(Repeat, args=arguments[1:], prog="dvdrl train")
    else:
        command = tyro.cli(
            Command,
            args=arguments,
            config=(OmitArgPrefixes, FlagCreatePairsOff),
            prog="dvdrl",
            description=(
                "Diversity via Determinants: train populations of policies that are all good and all different."
            ),
        )
    try:
        _refuse_what_mujoco_cannot_load()
        command()
    except DvdrlError as error:
        print(f"dvdrl: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
