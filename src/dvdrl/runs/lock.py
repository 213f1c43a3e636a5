"""One process at a time trains in a run directory; any number may read."""

import contextlib
import errno
import fcntl
import sys
from collections.abc import Iterator
from pathlib import Path

from dvdrl.errors import DvdrlError

NAME = ".lock"


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory. The kernel lets go of it with the process, however that ends.

    Raises:
        DvdrlError: another process has it.
        OSError: there is no writing there.
    """
    with open(directory / NAME, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DvdrlError(
                f"another process is training in {directory}; wait for it or stop it, then `dvdrl resume {directory}`"
            ) from error
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
                raise
            said = f"{directory}: its file system has no locks, so a second process would not be refused here"
            print(f"dvdrl: {said}", file=sys.stderr)
        yield
