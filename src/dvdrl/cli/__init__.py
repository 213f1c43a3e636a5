"""The command `dvdrl`. Each subcommand is a frozen dataclass: its fields are the options, its docstring is the help.

Nothing heavy is imported before a subcommand runs, so that `--help` answers at once.
"""

import sys
from collections.abc import Callable
from typing import Annotated

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, subcommand

from dvdrl import __version__
from dvdrl.cli.read import Evaluate, Export, Render, Report
from dvdrl.cli.studies import Bench, Reproduce, Tasks
from dvdrl.cli.train import Repeat, Resume, Train
from dvdrl.process import well_behaved

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
