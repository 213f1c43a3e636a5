"""A lock on run directories: one process at a time trains in a directory; any number may read it."""

import contextlib
import errno
import sys
from collections.abc import Iterator
from pathlib import Path

from filelock import lock_descriptor

from dvdrl.errors import DvdrlError

NAME = ".lock"


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory. The kernel releases it when the process ends, whatever the cause.

    Raises:
        DvdrlError: another process holds the lock, or the lock file is a link.
        OSError: the lock file cannot be written.
    """
    path = directory / NAME
    if path.is_symlink():
        raise DvdrlError(f"{path} is a link, and training would write where it leads; remove it")
    with open(path, "ab") as file:
        try:
            alone = lock_descriptor(file.fileno(), blocking=False)
        except OSError as error:
            alone = True
            if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
                raise
            said = f"{directory}: its file system has no locks; a second training here would not be refused"
            print(f"dvdrl: {said}", file=sys.stderr)
        if not alone:
            raise DvdrlError(
                f"another process is training in {directory}; wait for it or stop it, then `dvdrl resume {directory}`"
            )
        yield
