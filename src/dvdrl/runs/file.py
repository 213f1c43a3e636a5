"""config.json: the options of a run as a file, except where it is written and which machines compute it."""

import dataclasses
import json
import reprlib
import sys
from pathlib import Path
from typing import Any, Never, get_type_hints

from dvdrl import files
from dvdrl.errors import DvdrlError
from dvdrl.runs import fields
from dvdrl.runs.options import ALGORITHMS
from dvdrl.runs.presets import filled_in
from dvdrl.runs.training import Training

FORMAT = 3
"""The format of run directories, stored in config.json. Format 1 had no such number, no digests in policies/, and
ray_address in config.json. Format 2 had an option of a controller that no longer exists. Both can be read without
conversion. A change that cannot be read this way needs a new number, and a command that converts old directories."""
_GONE = {1: ("ray_address", "exploration_rounds"), 2: ("exploration_rounds",)}
"""Options of older formats that are ignored now."""


def to_values(options: Training) -> dict[str, Any]:
    """What config.json has of these options, as JSON values."""
    outside = fields.values(options, "outside")
    values = {name: value for name, value in dataclasses.asdict(options).items() if name not in outside}
    described: dict[str, Any] = json.loads(json.dumps({"algorithm": options.algorithm, **values}))
    return described


def to_json(options: Training) -> str:
    """The text of config.json for these options."""
    return json.dumps({"format": FORMAT, **to_values(options)}, indent=2) + "\n"


def from_json(path: Path) -> Training[Never]:
    """Read a config.json that `to_json` made.

    Raises:
        DvdrlError: the file holds something else, a value that no run can have, or a later format.
    """
    try:
        values = files.read_json(path)
    except FileNotFoundError as error:
        raise DvdrlError(f"{path}: there is no such file; a run directory has a config.json") from error
    except (OSError, ValueError) as error:
        found = "a directory" if path.is_dir() else _said(error)
        raise DvdrlError(f"{path}: expected the config.json of a run, got {found}") from error
    return from_values(values, path)


def from_values(values: Any, path: Path) -> Training[Never]:
    """Like `from_json`, for values that were already read from `path`. That file may hold other things too.

    Raises:
        DvdrlError: as in `from_json`.
    """
    try:
        values = dict(values)
        made = values.pop("format", 1)
        if made not in range(1, FORMAT + 1):
            raise DvdrlError(
                f"{path}: the run has format {reprlib.repr(made)}; this version of dvdrl reads formats up to {FORMAT};"
                " pip install --upgrade dvdrl"
            )
        for gone in _GONE.get(made, ()):
            values.pop(gone, None)
        kind = ALGORITHMS[values.pop("algorithm")]
    except (ValueError, KeyError, TypeError) as error:
        raise DvdrlError(f"{path}: expected the config.json of a run, got {_said(error)}") from error
    types = get_type_hints(kind)
    known = {name for name, each in fields.facts(kind).items() if each.role != "outside"}
    options: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise DvdrlError(f"{path}: {kind.algorithm} has no option {reprlib.repr(name)}")
        try:
            options[name] = fields.typed(types[name], value)
        except (ValueError, OverflowError) as error:
            raise DvdrlError(
                f"{path}: {name}: expected {fields.type_name(types[name])}, got {reprlib.repr(value)}"
            ) from error
    if "task" not in options:
        raise DvdrlError(f"{path}: expected the config.json of a run, got one without a task")
    try:
        return filled_in(kind(**options))
    except DvdrlError as error:
        raise DvdrlError(f"{path}: {error}") from error


def refuse_unknown_module(options: Training) -> None:
    """Refuse a module that is not imported, of the task or of a measure: a file must not choose which code runs."""
    from dvdrl.engines import module_of  # here, so that reading options imports nothing heavy

    for value, module in {options.task: module_of(options.task), **options.modules()}.items():
        if module and module not in sys.modules:
            raise DvdrlError(
                f"{value}: the file names the module {module}, whose code would run; if you trust it,"
                f" `--module {module}` imports it; in Python, `import {module}` first"
            )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
