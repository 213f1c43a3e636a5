"""The error that a user can act on: the command line prints its one line and exits with code 2."""

import reprlib
import shlex
import sysconfig
import traceback
from numbers import Integral
from pathlib import Path

_OURS = str(Path(__file__).parent)
_PYTHON = sysconfig.get_path("stdlib")


class DvdrlError(Exception):
    """Something in the input, the machine or a file is not as it must be; the message says what to do.

    It is one line that a terminal can show, whatever a file has contributed to it.
    """

    def __init__(self, message: str):
        super().__init__(printable(message))


def expect(name: str, value: object, *kinds: type) -> None:
    """Refuse an argument of a function that is of none of these types.

    Integers of NumPy are integers; True and False are not.

    Raises:
        DvdrlError: it is. The message names the argument.
    """
    allowed = tuple(Integral if kind is int else kind for kind in kinds)
    if isinstance(value, allowed) and (bool in kinds or not isinstance(value, bool)):
        return
    expected = " or ".join(kind.__name__ for kind in kinds)
    raise DvdrlError(f"{name}: expected {expected}, got {reprlib.repr(value)}")


def printable(text: str) -> str:
    """The text with escapes in place of control characters, which could do anything to a terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def quoted(path: Path) -> str:
    """A path as it is typed in a shell."""
    return shlex.quote(str(path))


def explained(error: BaseException) -> str:
    """What somebody else's code has raised, as one line: the type, the message, and the file and line, if known.

    The line is the last one that is neither in an installed package nor in dvdrl, so most likely the user's own. If
    there is none, it is the last one of a package that is neither Gymnasium nor a part of Python.
    """
    trace = traceback.extract_tb(error.__traceback__)
    said = str(error) or (trace[-1].line if trace else "")  # a bare assertion says only in its code what it expects
    text = " ".join(f"{type(error).__name__}: {said}".split())
    frames = [(frame.filename, frame.lineno) for frame in trace]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno))
    packages = [frame for frame in frames if {"site-packages", "dist-packages"} & {*Path(frame[0]).parts}]
    own = [frame for frame in frames if frame not in packages and not frame[0].startswith(("<", _OURS, _PYTHON))]
    others = [frame for frame in packages if not {"dvdrl", "gymnasium"} & {*Path(frame[0]).parts}]
    if not (places := own or others):
        return text
    file, line = places[-1]
    return f"{text} ({file}, line {line})"
