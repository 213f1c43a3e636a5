"""The command `dvdrl`. Each subcommand is a frozen dataclass: its fields are the options, its docstring is the help.

Nothing heavy is imported before a subcommand runs, so that `--help` answers at once.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, subcommand

from dvdrl import __version__
from dvdrl.errors import DvdrlError, printable, quoted
from dvdrl.imports import search_working_directory
from dvdrl.process import well_behaved
from dvdrl.runs.options import ALGORITHMS
from dvdrl.runs.training import Training

if TYPE_CHECKING:
    Algorithm = Training
else:
    Algorithm = Union[tuple(Annotated[kind[None], subcommand(name)] for name, kind in ALGORITHMS.items())]  # noqa: UP007

Module = Annotated[
    str | None,
    tyro.conf.arg(
        help="The module to import, if the task or a measure is your own. A run directory is not trusted to choose it."
    ),
]


@dataclass(frozen=True)
class Reproduce:
    """Reproduce an experiment of the paper: print its tables, and save the numbers and the figure.

    `dvdrl reproduce --list` describes each experiment and estimates its cost on this machine. Ctrl-C stops it and
    makes the tables of what is finished. The same command then continues it: its runs are in runs/EXPERIMENT.
    """

    experiment: Positional[
        Literal[
            "tabular", "theory", "point", "multimodal", "unimodal", "kernels", "adaptive", "humanoid", "states",
            "population", "modes", "modes-qd", "modes-alone", "modes-parts", "modes-auto", "humanoid-choices",
            "td3-choices", "td3-base",
        ]
        | None
    ] = None  # fmt: skip
    """The experiment to reproduce."""
    scale: Literal["smoke", "small", "medium", "paper"] = "paper"
    """How much of it to run. smoke: just to see that it runs. small: about an hour on two cores.
    medium: at most a fifth of the paper's rollouts, for a GPU. paper: as in the paper.
    Experiments that are small anyway have no medium."""
    setting: str | None = None
    """Only one task, such as Swimmer-v5, or one wall, such as "half width 4". Default: all of the scale."""
    seeds: str | None = None
    """First and last seed to train, such as 0..9. Default: as many as in the paper; fewer at smaller scales."""
    executor: Literal["local", "ray", "device"] = "local"
    """Where the rollouts of ES run, as in `dvdrl train`."""
    processes: int = 1
    """Number of trainings that run at once, each in its own process."""
    tables_only: bool = False
    """Train nothing. Make the tables and the figure from what is finished, and report which cells are not."""
    out: Path | None = None
    """Directory for the tables, the figure, their data and a record of how they were made.
    Results that are already there are not trained again.
    Default: results/EXPERIMENT; with --setting, results/EXPERIMENT/SETTING. That of modes-qd is that of modes."""
    list: bool = False
    """Only list the experiments and their costs."""

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
        study = self.experiment.removesuffix("-qd")  # a peer's results are beside those that they are compared with
        out = self.out or Path("results") / study / (self.setting or "").replace(" ", "-")
        if self.experiment in ("tabular", "theory"):
            if self.setting is not None:
                raise DvdrlError(f"setting: {self.experiment} has none; got {self.setting!r}")
            import_module(f"dvdrl.studies.{self.experiment}").reproduce(out)
            return
        if self.experiment == "modes-qd":
            if self.executor != "local" or self.processes > 1 or self.tables_only:
                raise DvdrlError("modes-qd: expected neither --executor, --processes nor --tables-only")
            peer = import_module("dvdrl.studies.quality_diversity")
            peer.reproduce(out, scale=self.scale, seeds=self.seeds, setting=self.setting)
            return
        import_module("dvdrl.studies.study").reproduce(
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
    """Measure speed, as ratios to a reference that is timed in the same run.

    - diversity: Gram matrix, log determinant and gradient, compared to an actor-critic update on the same batch.
    - tasks: environment steps per second of an engine, compared to the physics alone and to Gymnasium (minutes).
    - es: DvD-ES on HalfCheetah, compared to a bare mj_step loop; how Ray scales; ten seeds on a GPU (minutes).
    - td3: an update by population size, compared to one agent and to sbx-rl; all of DvD-TD3 on Humanoid (minutes).
    """

    subject: Positional[Literal["diversity", "tasks", "es", "td3"]]
    """What to measure."""
    engine: Literal["host", "device"] = "host"
    """For tasks and es. host: this machine's cores. device: its GPU."""
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
    """List the tasks, with their sizes, their horizon and the engines that run them."""

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
    """Print where the trained runs are, and how to look at them."""
    directory = trained[0].directory.parent if isinstance(trained, list) else trained.directory
    print(printable(f"finished: {directory}; `dvdrl report {quoted(directory)}` shows it"), file=sys.stderr)


@dataclass(frozen=True)
class Train:
    """Train a population. Each algorithm has its own help, such as `dvdrl train dvd-es --help`.

    `dvdrl train --config FILE [--out DIR]` repeats a run from its config.json.
    """

    options: Algorithm

    def __call__(self) -> None:
        """Train."""
        from dvdrl.runs.loop import train

        search_working_directory(named=":" in self.options.task or bool(self.options.modules()))
        _say_where(train(self.options))


@dataclass(frozen=True)
class Repeat:
    """Repeat a run from its config.json."""

    config: Path
    """The config.json of a run."""
    out: Path | None = None
    """The new run directory. Default: runs/TASK-ALGORITHM-SEED."""
    module: Module = None

    def __call__(self) -> None:
        """Train with the options in the file."""
        from dvdrl.runs.file import from_json, refuse_unknown_module
        from dvdrl.runs.loop import train

        options = from_json(self.config)
        _import(self.module)
        refuse_unknown_module(options)
        _say_where(train(replace(options, out=self.out)))


@dataclass(frozen=True)
class Resume:
    """Continue a stopped run, exactly as if it had not stopped; or all runs that --seeds put into a directory."""

    directory: Positional[Path]
    """The run directory."""
    ray_address: str | None = None
    """Ray cluster to join, as in `dvdrl train`. Run directories do not store it."""
    module: Module = None

    def __call__(self) -> None:
        """Continue the training."""
        from dvdrl.runs.loop import resume

        _import(self.module)
        _say_where(resume(self.directory, ray_address=self.ray_address))


@dataclass(frozen=True)
class Evaluate:
    """Roll out the members of a run from new starts. Print the return of each and how diverse they are.

    Each member also has its share of the determinant, given the fitter ones, and is distinct or not: good and different
    from the fitter ones. See docs/es.md.
    """

    directory: Positional[Path]
    """The run directory."""
    episodes: int = 10
    """Number of episodes of each member."""
    json: bool = False
    """Print one JSON object instead of a table."""
    paths: Path | None = None
    """Also save a picture of the members' paths from above, as PNG, SVG or PDF. Only for Point-v0."""
    module: Module = None

    def __call__(self) -> None:
        """Roll out and print."""
        import json

        from dvdrl.runs.evaluation import described, evaluate

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
        print(*map(printable, described(result)), sep="\n")


@dataclass(frozen=True)
class Report:
    """Make one self-contained HTML page of a run, or of several runs to compare them. See docs/views.md."""

    directories: Positional[tuple[Path, ...]]
    """Run directories. A directory with the runs of several seeds stands for all of them."""
    out: Path | None = None
    """The file to write. Default: report.html in the run directory; for several runs, in the current directory."""
    watch: bool = False
    """Instead of writing a file, serve the page to browsers on this machine. It follows training runs, until Ctrl-C."""
    port: int = 8000
    """Port for --watch; 0 takes any free port."""

    def __call__(self) -> None:
        """Write the page, or serve it."""
        if self.watch:
            from dvdrl.views.watch import serve

            if self.out is not None:
                raise DvdrlError("report: --watch writes no file, so it cannot be combined with --out")
            serve(self.directories, self.port)
        else:
            from dvdrl.views.report import write_report

            print(write_report(self.directories, self.out))


@dataclass(frozen=True)
class Render:
    """Film the members of a run. No display is needed.

    The videos are DIR/videos/member-0.mp4 and so on, and tiled.mp4 with all members side by side. The last picture of
    tiled.mp4 is saved as tiled.png.
    """

    directory: Positional[Path]
    """The run directory."""
    every: int | None = None
    """Follow a run in training until its end, and film it each time that this number of iterations is done."""
    steps: int | None = None
    """Largest number of control steps to film. Default: the whole episode."""
    width: int = 320
    """Width of a member's picture, in pixels. Environments other than MuJoCo tasks have their own size."""
    height: int = 240
    """Height of a member's picture, in pixels, for MuJoCo tasks."""
    seed: int = 0
    """Seed of the state in which all members start."""
    module: Module = None

    def __call__(self) -> None:
        """Film, and print where the videos are."""
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
    """Export the policies of a run for use elsewhere, and check them against the run's own. See docs/deploy.md.

    There is one file per member, and one with the whole population, which takes a member's number as a second input.
    """

    directory: Positional[Path]
    """The run directory."""
    format: Literal["onnx", "safetensors"]
    """onnx: graphs for any ONNX runtime; needs pip install 'dvdrl[onnx]'. safetensors: only the arrays."""
    out: Path | None = None
    """Directory for the files. Default: DIR/exports."""
    distinct: bool = False
    """Only the members that are good and different from the others. Their files keep their numbers."""

    def __call__(self) -> None:
        """Check the policies, write them, and print where they are."""
        from dvdrl.views.export import export

        for path in export(self.directory, self.format, self.out, distinct=self.distinct):
            print(path)


def _import(module: str | None) -> None:
    from importlib import import_module

    if module is None:
        return
    search_working_directory(named=True)
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
    with well_behaved():
        command()
