"""The option --module of the commands that read a run."""

from typing import Annotated

import tyro

from dvdrl import imports

Module = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(
        help="A module to import, if the task, a measure or a wrapper is your own. A run directory is not trusted to"
        " choose it."
    ),
]


def import_named(modules: tuple[str, ...]) -> None:
    """Import the modules that the user names with --module."""
    if modules:
        imports.search_working_directory(named=True)
    for module in modules:
        imports.import_named(module, "module")
