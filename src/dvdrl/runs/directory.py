"""Reading run directories: a run, its population, and the directories of several seeds.

Training writes run directories (`dvdrl.runs.loop`). Views and studies need only this module.
"""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Never, TypeVar

from dvdrl import files
from dvdrl.errors import DvdrlError, expect
from dvdrl.policies import Population
from dvdrl.runs import ends, file, kept, metrics, policies
from dvdrl.runs.training import SEEDS, Training

Options = TypeVar("Options", bound=Training)
MOST_SEEDS = 10_000
"""The most runs that are trained at once."""


@dataclass(frozen=True, init=False)
class Run:
    """A run directory."""

    directory: Path

    def __init__(self, directory: str | Path):
        expect("directory", directory, str, Path)
        object.__setattr__(self, "directory", Path(directory))

    def __repr__(self) -> str:
        return f"Run({str(self.directory)!r})"

    @property
    def config(self) -> Training[Never]:
        """All options of the run, resolved."""
        return file.from_json(self.directory / "config.json")

    @property
    def record(self) -> dict[str, Any]:
        """The command that started the run, when it started, and the versions of the software that it ran on."""
        path = self.directory / "record.json"
        try:
            made: dict[str, Any] = dict(files.read_json(path))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError) as error:
            raise DvdrlError(f"{path}: expected the record of a run, got {type(error).__name__}: {error}") from error
        return made

    @property
    def metrics(self) -> metrics.Lines:
        """One dict per iteration, and columns by name. docs/es.md and docs/td3.md explain them."""
        return metrics.read(self.directory / "metrics.jsonl")

    @property
    def finished(self) -> bool:
        """Whether the run has ended by itself."""
        return self.ended is not None

    @property
    def ended(self) -> str | None:
        """Why the run has ended by itself, in words; None if it has not."""
        return ends.course(self.metrics, self.config).ended

    @property
    def population(self) -> Population:
        """The current members."""
        return policies.load(self.directory / "policies")


Which = Literal["last", "best", "best-each"] | int
"""Which population of a run. last: that of the last iteration, or what niche-ES ends with. best: that with the highest
mean return from new starts. best-each: each member when its own return from new starts was highest. A number: that of
this iteration, if it was kept."""


def population_of(run: Run, which: Which = "last") -> tuple[int, Population]:
    """A population of a run, and its iteration; for best-each, the latest of theirs.

    Raises:
        DvdrlError: it was not kept.
    """
    last = lines[-1]["iteration"] if (lines := run.metrics) else 0
    if which in ("last", last) or (which in ("best", "best-each") and run.config.keeps_its_best):
        return last, run.population
    if which in ("best", "best-each"):
        if not (found := kept.iterations(run.directory, which)):
            raise DvdrlError(f"which: {run.directory} has not been evaluated yet, so it has no best population")
        return found[-1], kept.load(run.directory, which, found[-1]).population
    of_iterations: dict[int, kept.Kind] = {}
    for kind in ("best", "every"):
        of_iterations |= dict.fromkeys(kept.iterations(run.directory, kind), kind)
    if which not in [*of_iterations]:  # not as a key: whatever is asked for may be no key
        known = ", ".join(map(str, sorted({*of_iterations, last})))
        raise DvdrlError(
            f"which: expected last, best, best-each or an iteration that {run.directory} has kept, {known};"
            f" got {which!r}; training with --keep-every keeps more"
        )
    return which, kept.load(run.directory, of_iterations[which], which).population


def is_run(directory: Path) -> bool:
    """Whether the directory holds a run. Training writes config.json when everything else has been prepared."""
    return (directory / "config.json").is_file()


def existing_run(directory: Path | str) -> Run:
    """The run in a directory. Raises DvdrlError if there is none."""
    expect("directory", directory, str, Path)
    directory = Path(directory)
    if not is_run(directory):
        begun = [each for each in of_seeds(directory) if is_run(each)]
        advice = f"; it has runs of several seeds, such as {begun[0]}" if begun else ""
        raise DvdrlError(f"{directory}: not a run directory, it has no config.json{advice}")
    return Run(directory)


def load(directory: Path | str, which: Which = "last") -> Population:
    """A population of a run. `population.act(obs)` returns (M, action), `population[i].act(obs)` (action).

    Args:
        directory: the run directory, or "zoo:NAME" for a trained population that comes with dvdrl; see docs/zoo.md.
        which: which population: "last", "best", "best-each" or an iteration; see docs/runs.md.
    """
    return population_of(existing_run(in_zoo(directory) or directory), which)[1]


ZOO = Path(__file__).parents[1] / "zoo"
"""The trained populations that come with dvdrl. tools/zoo.py makes them."""


def in_zoo(name: Path | str) -> Path | None:
    """The run directory of "zoo:NAME"; None for any other text."""
    kind, _, entry = str(name).partition(":")
    if kind != "zoo":
        return None
    if entry not in (known := sorted(path.name for path in ZOO.iterdir() if path.is_dir())):
        raise DvdrlError(f"zoo: expected one of {', '.join(known)}; got {entry!r}")
    return ZOO / entry


def of_seeds(directory: Path) -> list[Path]:
    """The directories that training with `seeds` made in this one, in order. Some may not contain a run yet."""
    found = sorted((path for path in directory.glob("seed-*") if re.fullmatch(r"seed-\d+", path.name)), key=seed_of)
    for path in found:
        if path.is_symlink():
            raise DvdrlError(f"{path} is a link, and links are not followed here; put a copy in its place")
    return found


def seed_of(directory: Path) -> int:
    """The seed of the run in a directory that `of_seeds` returned."""
    return int(directory.name.removeprefix("seed-"))


def runs_in(directories: Sequence[Path]) -> list[Path]:
    """The runs in the directories, each once.

    A directory is a run itself, or contains the runs of several seeds, or is a folder of such directories, such as
    `runs`. Links in a folder are not followed.

    Raises:
        DvdrlError: there is no directory, or there are no runs in one of them.
    """
    if not directories:
        raise DvdrlError("no run directory given")
    found: list[Path] = []
    for directory in directories:
        if not (below := runs_below(directory)):
            raise DvdrlError(f"{directory}: not a run directory, it has no config.json, and there are no runs in it")
        found += below
    once: dict[Path, Path] = {}
    for run in found:
        once.setdefault(run.resolve(), run)
    return list(once.values())


def runs_below(directory: Path, *, is_folder: bool = True) -> list[Path]:
    """The runs in a directory, as `runs_in` finds them; there may be none."""
    if is_run(directory):
        return [directory]
    if of_several := [path for path in of_seeds(directory) if is_run(path)]:
        return of_several
    if not is_folder or not directory.is_dir():
        return []
    inside = (path for path in sorted(directory.iterdir()) if path.is_dir() and not path.is_symlink())
    return [run for path in inside for run in runs_below(path, is_folder=False)]


def planned(options: Options) -> list[tuple[Path, Options]]:
    """The directory and the options of each run to train: one run, or with `seeds` one for each seed."""
    name = re.sub(r"[^\w.-]", "-", f"{options.task}-{options.algorithm}")  # ids may have slashes
    if options.seeds is None:
        return [(Path(options.out or Path("runs") / f"{name}-{options.seed}"), options)]
    match = re.fullmatch(r"(\d+)\.\.(\d+)", options.seeds) if isinstance(options.seeds, str) else None
    if not match or int(match[1]) > int(match[2]):
        raise DvdrlError(f"seeds: expected the first and the last, as in 0..9, got {options.seeds!r}")
    if int(match[2]) >= SEEDS:
        raise DvdrlError(f"seeds: expected less than 2**32, got {options.seeds}")
    if (count := int(match[2]) - int(match[1]) + 1) > MOST_SEEDS:
        raise DvdrlError(f"seeds: expected at most {MOST_SEEDS:,} at once, got {count:,}")
    if options.seed:
        raise DvdrlError(
            f"seed: cannot be combined with seeds {options.seeds}, got {options.seed}; leave out one of the two"
        )
    out = Path(options.out or Path("runs") / name)
    return [
        (out / f"seed-{seed}", dataclasses.replace(options, seed=seed, seeds=None))
        for seed in range(int(match[1]), int(match[2]) + 1)
    ]
