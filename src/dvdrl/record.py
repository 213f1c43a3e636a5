"""Records how a result was made: the command, the versions and the machine."""

import json
import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dvdrl._version import __version__
from dvdrl.errors import DvdrlError


def make_output_directory(directory: Path) -> None:
    """Create the directory of a result. If it cannot be written, raise an error before anything is computed."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "record.json").touch()
    except OSError as error:
        raise DvdrlError(
            f"cannot write to {directory}: {error.strerror}; choose another directory with --out"
        ) from error


def provenance(*packages: str) -> dict[str, Any]:
    """The command as it was typed, the date, the machine and the versions."""
    return {
        "command": shlex.join([*_program(), *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": {
            "python": platform.python_version(),
            "dvdrl": __version__,
            **{name: version(name) for name in packages},
        },
    }


def _program() -> list[str]:
    """How the program was started: by the command `dvdrl`, as a module, or from another program."""
    if Path(sys.argv[0]).stem == "dvdrl":
        return ["dvdrl"]
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return ["python", "-m", spec.name] if spec is not None else ["python", *filter(None, sys.argv[:1])]


def record(*packages: str, **facts: Any) -> str:
    """The content of `record.json`: the provenance and the given facts, such as seeds."""
    return json.dumps({**provenance(*packages), **facts}, indent=2) + "\n"


def write_record(directory: Path, *packages: str, **facts: Any) -> None:
    """Write `record.json`."""
    (directory / "record.json").write_text(record(*packages, **facts))
