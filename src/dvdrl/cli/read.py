"""The commands that read runs: `dvdrl evaluate`, `report`, `render` and `export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from dvdrl.cli.modules import Module, import_named
from dvdrl.cli.perturbed import PerturbTexts
from dvdrl.errors import DvdrlError, printable


@dataclass(frozen=True)
class Evaluate:
    """Roll out the members of runs from new starts. Print the return of each and how diverse they are.

    Each member also has its share of the determinant, given the fitter ones, and is distinct or not: good and different
    from the fitter ones. See docs/es.md.
    """

    directories: Positional[tuple[Path, ...]]
    """Run directories. A directory with the runs of several seeds, or a folder of runs, stands for all of them."""
    episodes: int = 10
    """Number of episodes of each member."""
    which: Literal["last", "best", "best-each"] | int = "last"
    """Which population: the last; the best, by mean return from new starts; each member at its own best; or that of an
    iteration, if it was kept. See docs/runs.md."""
    json: bool = False
    """Print one JSON object instead of a table; for several runs, a list of them."""
    paths: Path | None = None
    """Also save a picture of the members' paths from above, as PNG, SVG or PDF. Only for one run on Point-v0."""
    perturb: PerturbTexts = ()
    module: Module = ()

    def __call__(self) -> None:
        """Roll out and print."""
        import json

        from dvdrl.runs.directory import runs_in
        from dvdrl.runs.evaluation import described, evaluate
        from dvdrl.tasks.perturbations import parsed

        import_named(self.module)
        runs = runs_in(self.directories)
        if self.paths is not None:
            from dvdrl.views.paths import draw_paths, refuse_what_has_no_picture

            if len(runs) > 1:
                raise DvdrlError(f"paths: expected one run, got {len(runs)}")
            refuse_what_has_no_picture(runs[0], self.paths)
        results = []
        for run in runs:
            results.append(result := evaluate(run, self.episodes, which=self.which, perturb=parsed(self.perturb)))
            if not self.json:
                print(
                    *map(printable, [*([f"{run}:"] if len(runs) > 1 else []), *described(result)]), sep="\n", flush=True
                )
        if self.paths is not None:
            draw_paths(runs[0], self.paths, self.which)
        if self.json:
            several = [{"run": str(run), **result} for run, result in zip(runs, results, strict=True)]
            print(json.dumps(several if len(runs) > 1 else results[0]))


@dataclass(frozen=True)
class Report:
    """Make one self-contained HTML page of a run, or of several runs to compare them. See docs/views.md."""

    directories: Positional[tuple[Path, ...]]
    """Run directories. A directory with the runs of several seeds, or a folder of runs, stands for all of them."""
    out: Path | None = None
    """The file to write. Default: report.html in the run directory; for several runs, in the current directory."""
    watch: bool = False
    """Instead of writing a file, serve the page to browsers on this machine. It follows training runs, until Ctrl-C.
    It may be started before the runs are."""
    port: int | None = None
    """Port for --watch; 0 takes any free port. Default: 8000."""

    def __call__(self) -> None:
        """Write the page, or serve it."""
        if self.watch:
            from dvdrl.views.watch import serve

            if self.out is not None:
                raise DvdrlError("report: --watch writes no file, so it cannot be combined with --out")
            serve(self.directories, 8000 if self.port is None else self.port)
        else:
            from dvdrl.views.report import report

            if self.port is not None:
                raise DvdrlError("report: --port is for --watch, which serves the page; without it a file is written")
            print(report(self.directories, self.out))


@dataclass(frozen=True)
class Render:
    """Film the members of runs. No display is needed.

    The videos are DIR/videos/member-0.mp4 and so on, and tiled.mp4 with all members side by side. The last picture of
    tiled.mp4 is saved as tiled.png.
    """

    directories: Positional[tuple[Path, ...]]
    """Run directories. A directory with the runs of several seeds, or a folder of runs, stands for all of them."""
    every: int | None = None
    """Follow one run in training until its end, and film it each time that this number of iterations is done."""
    steps: int | None = None
    """Largest number of control steps to film. Default: the whole episode."""
    width: int = 320
    """Width of a member's picture, in pixels. Environments other than MuJoCo tasks have their own size."""
    height: int = 240
    """Height of a member's picture, in pixels, for MuJoCo tasks."""
    seed: int = 0
    """Seed of the state in which all members start."""
    which: Literal["last", "best", "best-each"] | int = "last"
    """Which population: the last; the best, by mean return from new starts; each member at its own best; or that of an
    iteration, if it was kept. See docs/runs.md."""
    perturb: PerturbTexts = ()
    module: Module = ()

    def __call__(self) -> None:
        """Film, and print where the videos are."""
        from dvdrl.runs.directory import runs_in
        from dvdrl.tasks.perturbations import parsed
        from dvdrl.views import render

        import_named(self.module)
        runs = runs_in(self.directories)
        options: dict[str, Any] = {"width": self.width, "height": self.height, "steps": self.steps, "seed": self.seed}
        options |= {"which": self.which, "perturb": parsed(self.perturb)}
        if self.every is not None and len(runs) > 1:
            raise DvdrlError(f"every: expected one run to follow, got {len(runs)}")
        films = (
            render.follow(runs[0], self.every, **options)
            if self.every is not None
            else (render.render(run, **options) for run in runs)
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
    which: Literal["last", "best", "best-each"] | int = "last"
    """Which population: the last; the best, by mean return from new starts; each member at its own best; or that of an
    iteration, if it was kept. See docs/runs.md."""

    def __call__(self) -> None:
        """Check the policies, write them, and print where they are."""
        from dvdrl.views.export import export

        for path in export(self.directory, self.format, self.out, distinct=self.distinct, which=self.which):
            print(path)
