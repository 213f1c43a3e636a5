"""The command `dvdrl`. Each subcommand is a frozen dataclass: its fields are the options, its docstring the help.

Nothing heavy is imported before a subcommand runs, so that `--help` answers at once.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, subcommand

from dvdrl import __version__
from dvdrl.errors import DvdrlError


@dataclass(frozen=True)
class Reproduce:
    """Reproduce an experiment of the paper: prints its table and saves the numbers and the figure.

    tabular: the four-state MDP of figure 2, every population enumerated (seconds).
    """

    experiment: Positional[Literal["tabular"]]
    """Which experiment."""
    out: Path | None = None
    """Directory for table, figure and the record of how they were made; default: results/EXPERIMENT."""

    def __call__(self) -> None:
        """Run the experiment."""
        from dvdrl.studies import tabular

        tabular.reproduce(self.out or Path("results") / self.experiment)


@dataclass(frozen=True)
class Bench:
    """Measure speed as ratios to a reference timed in the same run.

    diversity: Gram matrix, log determinant and gradient against an actor-critic update on the same batch.
    tasks: environment steps a second of an engine against the physics alone, and against Gymnasium (minutes).
    """

    subject: Positional[Literal["diversity", "tasks"]]
    """What to measure."""
    engine: Literal["host", "device"] = "host"
    """For tasks: this machine's cores, or its GPU."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def __call__(self) -> None:
        """Measure and print."""
        from importlib import import_module

        module = "device" if self.subject == "tasks" and self.engine == "device" else self.subject
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


Command = (
    Annotated[Reproduce, subcommand("reproduce")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[Tasks, subcommand("tasks")]
)  # fmt: skip


def main() -> None:
    """Entry point of the console command."""
    if sys.argv[1:] == ["--version"]:
        print(f"dvdrl {__version__}")
        return
    command: Reproduce | Bench | Tasks = tyro.cli(
        Command,
        config=(OmitArgPrefixes, FlagCreatePairsOff),
        prog="dvdrl",
        description="Diversity via Determinants: train populations of policies that are all good and all different.",
    )
    try:
        command()
    except DvdrlError as error:
        print(f"dvdrl: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
