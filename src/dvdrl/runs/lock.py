"""One process at a time trains in a run directory; any number may read."""

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
    """Hold the directory. The kernel lets go of it with the process, however that ends.

    Raises:
        DvdrlError: another process has it, or the file is a link.
        OSError: there is no writing there.
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
            said = f"{directory}: its file system has no locks, so a second process would not be refused here"
            print(f"dvdrl: {said}", file=sys.stderr)
        if not alone:
            raise DvdrlError(
                f"another process is training in {directory}; wait for it or stop it, then `dvdrl resume {directory}`"
            )
        yield
