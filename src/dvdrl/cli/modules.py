"""The option --module of the commands that read a run."""

from typing import Annotated

import tyro

from dvdrl.errors import DvdrlError
from dvdrl.imports import search_working_directory

Module = Annotated[
    str | None,
    tyro.conf.arg(
        help="The module to import, if the task or a measure is your own. A run directory is not trusted to choose it."
    ),
]


def import_named(module: str | None) -> None:
    """Import the module that the user names with --module, if any."""
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
