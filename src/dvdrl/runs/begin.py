"""How run directories begin: made, locked by nobody else, and described. Errors while writing say what to do."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Never

from dvdrl import files
from dvdrl.errors import DvdrlError, quoted
from dvdrl.record import record
from dvdrl.runs import file, lock
from dvdrl.runs.directory import is_run
from dvdrl.runs.training import Training


def make_directory(directory: Path, *, several: bool) -> None:
    """Make the directory of a run. Where the user has named it, it may be a link; one of several is not."""
    if several:
        directory.parent.mkdir(parents=True, exist_ok=True)
        files.make_folder(directory)
    else:
        directory.mkdir(parents=True, exist_ok=True)


def refuse_existing(directory: Path) -> None:
    """Refuse a directory that contains more than a run leaves behind if it is killed before it begins."""
    leftover = (lock.NAME, f".config.json{files.PARTIAL}", f".record.json{files.PARTIAL}", "record.json")
    try:
        taken = directory.exists() and any(path.name not in leftover for path in directory.iterdir())
    except OSError:  # not a directory
        taken = True
    if taken and is_run(directory):
        raise DvdrlError(f"{directory} exists; `dvdrl resume {quoted(directory)}` continues it, --out writes elsewhere")
    if taken:
        raise DvdrlError(f"{directory} exists and is not a run; --out writes elsewhere")


@contextlib.contextmanager
def writing(directory: Path, advice: str) -> Iterator[None]:
    """Turn an error while writing into a run directory into one that tells the user what to do."""
    try:
        yield
    except OSError as error:
        raise DvdrlError(f"cannot write to {directory}: {error.strerror or error}; {advice}") from error


def describe(directory: Path, options: Training[Never]) -> None:
    """Write record.json and config.json. The latter comes last, because it makes the directory a run."""
    made = record("jax", *options.packages(), options=file.to_values(options))
    files.write_atomically(directory / "record.json", made.encode())
    files.write_atomically(directory / "config.json", file.to_json(options).encode())
