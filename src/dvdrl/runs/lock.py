"""A lock on run directories: one process at a time trains in a directory; any number may read it."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import lock_descriptor

from dvdrl import files
from dvdrl.errors import DvdrlError, printable, quoted

NAME = ".lock"


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[Callable[[], None]]:
    """Hold the lock of a directory. The kernel releases it when the process ends, whatever the cause.

    Yields:
        What raises an error once the lock's file has been removed or replaced, so that it keeps nobody out any more.

    Raises:
        DvdrlError: another process holds the lock, or the lock file is a link.
        OSError: the lock file cannot be written.
    """
    path = directory / NAME
    files.create(path)
    with files.opened_to_append(path) as file:
        try:
            alone = lock_descriptor(file.fileno(), blocking=False)
        except OSError as error:
            alone = True
            if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
                raise
            said = f"{directory}: its file system has no locks; a second training here would not be refused"
            print(f"dvdrl: {printable(said)}", file=sys.stderr)
        if not alone:
            raise DvdrlError(
                f"another process is training in {directory}; wait for it or stop it, then"
                f" `dvdrl resume {quoted(directory)}`"
            )

        def refuse_lost() -> None:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(path.stat(follow_symlinks=False), os.fstat(file.fileno())):
                    return
            raise DvdrlError(
                f"{path} was removed or replaced during training, so that another process could train there too; see"
                f" that none does, then `dvdrl resume {quoted(directory)}`"
            )

        yield refuse_lost
