"""The command `dvdrl` as a process: its terminal, its signals and its exit codes."""

import contextlib
import multiprocessing
import os
import select
import signal
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from typing import TextIO

from dvdrl.errors import DvdrlError
from dvdrl.imports import search_working_directory

UNGUARDED = 79
"""The exit code of a worker whose script, imported once more, began to train again."""


def refuse_unguarded_script() -> None:
    """End this process if it is a worker that is importing the script which has started it.

    Python's workers import the script first. What the script does outside of `if __name__ == "__main__":` is then done
    again. The process that waits for this worker tells the user.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)


def refuse_script_without_a_file() -> None:
    """Refuse to start workers for a script that comes from standard input, because they could not import it."""
    if getattr(sys.modules["__main__"], "__file__", None) == "<stdin>":
        raise DvdrlError(
            "worker processes import the script that starts them, and this one comes from standard input; save it as a"
            " file"
        )


class Terminated(KeyboardInterrupt):
    """A SIGTERM: it ends a command as Ctrl-C does, with another exit code."""


@contextlib.contextmanager
def piped() -> Iterator[None]:
    """Write to standard output as long as somebody reads it, and end quietly if not, as in `dvdrl tasks | head -3`."""
    try:
        yield
        if sys.stdout is not None:  # it is None if the shell has closed it
            sys.stdout.flush()
    except BrokenPipeError:
        if _is_read(sys.stdout):  # it was another pipe, such as that of a worker
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
        sys.exit(1)  # as Rich does for tables


def _is_read(stream: TextIO) -> bool:
    """Whether somebody still reads what is written."""
    poll = select.poll()
    poll.register(stream)
    return not any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


@contextlib.contextmanager
def well_behaved() -> Iterator[None]:
    """Run a command: what a user can act on is one line, and each way to end has its exit code.

    2 for an error that has been said, 130 for Ctrl-C, 143 for SIGTERM.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for terminals without ±, and paths that are no text
    signal.signal(signal.SIGTERM, _terminate)
    try:
        search_working_directory(named=False)
        _refuse_what_mujoco_cannot_load()
        yield
    except DvdrlError as error:
        print(f"dvdrl: {error}", file=sys.stderr)
        sys.exit(2)
    except Terminated:
        sys.exit(143)
    except KeyboardInterrupt:
        sys.exit(130)


def _terminate(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending; a second one would disturb that
    raise Terminated


def _refuse_what_mujoco_cannot_load() -> None:
    """Check the library in MUJOCO_GL. MuJoCo loads it when imported, and ends in a traceback if it is missing."""
    named = os.environ.get("MUJOCO_GL")
    if named:
        try:
            import mujoco  # noqa: F401
        except Exception as error:
            raise DvdrlError(
                f"nothing to draw with: MUJOCO_GL={named} does not work here; unset it, and dvdrl finds one that works"
            ) from error
