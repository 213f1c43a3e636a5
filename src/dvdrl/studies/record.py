"""How a result was made: the command, the versions and the machine, kept beside the numbers."""

import json
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dvdrl.errors import DvdrlError


def make_output_directory(directory: Path) -> None:
    """Create the directory of a study, or say why it cannot be written to, before anything is computed."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "record.json").touch()
    except OSError as error:
        raise DvdrlError(
            f"cannot write to {directory}: {error.strerror}; choose another directory with --out"
        ) from error


def write_record(directory: Path, command: str, packages: Sequence[str], **facts: Any) -> None:
    """Write `record.json`: what was run, on which versions, and the given facts (seeds, for one)."""
    record = {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": {name: version(name) for name in ("dvdrl", *packages)},
        **facts,
    }
    (directory / "record.json").write_text(json.dumps(record, indent=2) + "\n")


def command_line() -> str:
    """The command as it was typed, with the program's name instead of its path."""
    return " ".join(["dvdrl", *sys.argv[1:]])
