"""Where modules are found: in the working directory only if the user names one, and never in a run directory."""

import contextlib
import os
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from dvdrl import files
from dvdrl.errors import DvdrlError, explained

_SAFE_PATH, _OURS = "PYTHONSAFEPATH", "dvdrl"


def in_a_run(directory: Path) -> bool:
    """Whether the directory is a run or lies in one, by what can be read of config.json; what cannot be read is one."""
    for folder in (directory, *directory.parents):
        try:
            values = files.read_json(folder / "config.json")
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return True
        if isinstance(values, dict) and "algorithm" in values:
            return True
    return False


def search_working_directory(*, named: bool) -> None:
    """Have modules found in the working directory if the user has named one, as `python -m` does.

    In a run directory they are not, even where Python itself has begun to look there: somebody else may have made it,
    and whatever is imported later could come from it.
    """
    here = Path.cwd().resolve()
    searched = [each for each in sys.path if Path(each or ".").resolve() == here]
    if in_a_run(here):
        for each in searched:
            sys.path.remove(each)
    elif named and not searched:
        sys.path.insert(0, str(here))


def import_named(module: str, where: str, advice: str = "") -> None:
    """Import a module that the user names; `where` is what names it, and `advice` follows if there is none.

    Raises:
        DvdrlError: there is no such module, or its code raises.
    """
    if not all(part.isidentifier() for part in module.split(".")):
        raise DvdrlError(f"{where}: expected the name of a module, got {module!r}{advice}")
    try:
        import_module(module)
    except Exception as error:  # other people's code may raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is None or not f"{module}.".startswith(f"{missing}."):
            raise DvdrlError(f"{where}: the module {module} cannot be imported: {explained(error)}") from error
        close = get_close_matches(missing, [each.name for each in iter_modules()], n=1, cutoff=0.8)
        hint = f"; did you mean {close[0]}?" if close else advice
        raise DvdrlError(f"{where}: {error}{hint}") from error


@contextlib.contextmanager
def away_from_a_run() -> Iterator[None]:
    """Leave the working directory for the root if it is in a run: for what has others import from where it is."""
    with contextlib.chdir("/") if in_a_run(Path.cwd()) else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def safe_children() -> Iterator[None]:
    """Start processes of Python that do not import from the working directory; what is started calls `unsafe_again`."""
    if os.environ.get(_SAFE_PATH):
        yield
        return
    os.environ[_SAFE_PATH] = _OURS
    try:
        yield
    finally:
        del os.environ[_SAFE_PATH]


def unsafe_again() -> None:
    """Leave to the programs that this process starts what they import, as it is without `safe_children`."""
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]
