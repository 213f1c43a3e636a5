"""The command `dvdrl`. Each subcommand is a frozen dataclass: its fields are the options, its docstring is the help.

Nothing heavy is imported before a subcommand runs, so that `--help` answers at once.
"""

import sys

from dvdrl import __version__
from dvdrl.cli.parse import help_for, parsed
from dvdrl.process import piped, well_behaved


def main() -> None:
    """Entry point of the console command."""
    with piped():
        _run(sys.argv[1:])


def _run(words: list[str]) -> None:
    if words == ["--version"]:
        print(f"dvdrl {__version__}")
    elif (page := help_for(words)) is not None:
        print(page)
    else:
        with well_behaved():
            parsed(words)()
