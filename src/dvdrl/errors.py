"""The error that a user can act on: the command line prints its one line and exits with code 2."""

import shlex
from pathlib import Path


class DvdrlError(Exception):
    """Something in the input, the machine or a file is not as it must be; the message says what to do.

    It is one line that a terminal can show, whatever a file has contributed to it.
    """

    def __init__(self, message: str):
        super().__init__(printable(message))


def printable(text: str) -> str:
    """The text with escapes in place of control characters, which could do anything to a terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def quoted(path: Path) -> str:
    """A path as it is typed in a shell."""
    return shlex.quote(str(path))
