"""Records how a result was made: the command, the versions and the machine."""

import contextlib
import json
import platform
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dvdrl import files
from dvdrl._version import __version__
from dvdrl.errors import DvdrlError


def make_output_directory(directory: Path) -> None:
    """Create the directory of a result. If it cannot be written, raise an error before anything is computed."""
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        files.create(directory / "record.json")


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Raise what goes wrong while a result is written as an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise DvdrlError(
            f"cannot write to {directory}: {error.strerror}; choose another directory with --out"
        ) from error


def provenance(*packages: str) -> dict[str, Any]:
    """The command, the date, the machine and the versions."""
    return {
        "command": shlex.join(_command()),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": {
            "python": platform.python_version(),
            "dvdrl": __version__,
            **{name: version(name) for name in packages},
        },
    }


def _command() -> list[str]:
    """How the program was started.

    Of the command `dvdrl` all words, as they say how a result was made. Of any other program its name alone: nobody
    knows what its arguments are, and a password must not end in a report.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None:
        ours = spec.name.split(".")[0] == "dvdrl"
        return ["python", "-m", spec.name.removesuffix(".__main__"), *(sys.argv[1:] if ours else ())]
    name = Path(sys.argv[0]).name
    return ["dvdrl", *sys.argv[1:]] if name == "dvdrl" else ["python", *filter(None, [name])]


def record(*packages: str, **facts: Any) -> str:
    """The content of `record.json`: the provenance and the given facts, such as seeds."""
    return json.dumps({**provenance(*packages), **facts}, indent=2) + "\n"


def write_record(directory: Path, *packages: str, **facts: Any) -> None:
    """Write `record.json`."""
    files.write_atomically(directory / "record.json", record(*packages, **facts).encode())
