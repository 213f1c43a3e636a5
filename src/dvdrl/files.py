"""Where files of run directories, studies, exports and videos are opened, for reading and for writing.

Somebody else may have made such a directory. Links in it could lead anywhere, a FIFO could wait forever, and a file
could be larger than the memory. So only regular files are opened, up to a stated size, and no link is followed: neither
the file itself nor a folder above it, up to the directory that the user has named (`within`). That one may be a link.
"""

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

PARTIAL = ".partial"
"""Ends the names of files that are being written."""

MOST_OF_JSON = 2**24
"""The most bytes of a file that is one JSON value, such as config.json: 16 MiB."""
MOST_OF_CELL = 2**28
"""The most bytes of a kept cell of a study: 256 MiB."""
MOST_OF_LINE = 2**26
"""The most bytes of a metrics line: 64 MiB, enough for all pairs of the most members."""
MOST_OF_METRICS = 2**30
"""The most bytes of a metrics.jsonl: 1 GiB."""
MOST_OF_TENSORS = 2**34
"""The most bytes of a checkpoint, a policy, or a part of a replay buffer: 16 GiB."""
MOST_OF_FILM = 2**28
"""The most bytes of a video: 256 MiB."""
_DEEPEST = 50
"""The most levels of a JSON value. Python's own limit depends on where a value is read and written."""


@contextlib.contextmanager
def opened(path: Path, *, most: int, within: Path | None = None) -> Iterator[BinaryIO]:
    """A file for reading.

    Args:
        path: of the file.
        most: bytes of the file.
        within: the directory below which no folder may be a link; default: the file's own.

    Raises:
        OSError: there is none, it cannot be read, or it is a link, not a regular file or too large.
    """
    with _folder(path, within) as (folder, name):
        descriptor = _open(folder, name, os.O_RDONLY)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size > most:
            raise _too_large(path, f"{size} bytes", most)
        yield file


def read(path: Path, *, most: int, within: Path | None = None) -> bytes:
    """The content of a file; as for `opened`."""
    with opened(path, most=most, within=within) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a metrics.jsonl with their ends, without one that has none; as for `opened`."""
    total = 0
    with opened(path, most=MOST_OF_METRICS) as file:
        while (line := file.readline(MOST_OF_LINE + 1)).endswith(b"\n"):
            total += len(line)
            if total > MOST_OF_METRICS:
                raise _too_large(path, "more bytes", MOST_OF_METRICS)
            yield line
        if len(line) > MOST_OF_LINE:
            raise _too_large(path, "a line of more bytes", MOST_OF_LINE)


def read_json(path: Path, *, most: int = MOST_OF_JSON, within: Path | None = None) -> Any:
    """The JSON value in a file.

    Raises:
        OSError: as for `opened`.
        ValueError: it holds something else.
    """
    try:
        value = json.loads(read(path, most=most, within=within))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(_DEEPEST):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [item for each in inner for item in each if isinstance(item, dict | list)]
        if not level:
            return value
    raise ValueError(f"nested more than {_DEEPEST} levels deep")


def write_atomically(path: Path, content: bytes, *, durable: bool = True, within: Path | None = None) -> None:
    """Have the file either as it was or with all of the content, whenever the process is killed.

    A link at the path is replaced, and what it leads to stays.

    Args:
        path: of the file.
        content: of the file.
        durable: whether it is there also when the machine stops; that waits for the disk.
        within: as for `opened`.
    """
    with _folder(path, within) as (folder, name):
        partial = f".{name}{PARTIAL}"
        _remove(folder, partial)
        try:
            # A new file, never where a link in somebody's directory leads.
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            _remove(folder, partial)  # half a file on a full disk is of no use to anybody
            raise
        if durable:
            os.fsync(folder)


def create(path: Path, *, within: Path | None = None) -> None:
    """Have a file that is at least empty; as for `opened`."""
    with _folder(path, within) as (folder, name), contextlib.suppress(FileExistsError):
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder))
    with opened_to_append(path, within=within):
        pass


@contextlib.contextmanager
def opened_to_append(path: Path, *, within: Path | None = None) -> Iterator[BinaryIO]:
    """A file that exists, for writing at its end; as for `opened`."""
    with _folder(path, within) as (folder, name):
        descriptor = _open(folder, name, os.O_WRONLY | os.O_APPEND)
    with os.fdopen(descriptor, "ab") as file:
        yield file


def append(path: Path, content: bytes, *, durable: bool) -> None:
    """Append to a file that exists, without keeping it open. With `durable`, wait for the disk; as for `opened`."""
    with opened_to_append(path) as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def make_folder(path: Path, *, within: Path | None = None) -> None:
    """Have a folder, which may exist but is no link.

    Raises:
        OSError: it is a link or a file, or cannot be made.
    """
    with _folder(path, within) as (folder, name):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        os.close(_enter(name, folder))


def remove(path: Path, *, within: Path | None = None) -> None:
    """Remove a file, if there is one; of a link the link itself."""
    with contextlib.suppress(FileNotFoundError), _folder(path, within) as (folder, name):
        _remove(folder, name)


@contextlib.contextmanager
def _folder(path: Path, within: Path | None) -> Iterator[tuple[int, str]]:
    """The folder of a file as a descriptor, and the file's name in it."""
    within = path.parent if within is None else within
    *folders, name = path.relative_to(within).parts
    descriptor = os.open(within, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            inner = _enter(folder, descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, name
    finally:
        os.close(descriptor)


def _enter(name: str, folder: int) -> int:
    if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise _is_link(name)
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def _open(folder: int, name: str, flags: int) -> int:
    # Looked at before it is opened, as to open a device may be enough to change it; and after, as it may be another.
    _refuse_what_is_no_file(os.stat(name, dir_fd=folder, follow_symlinks=False), name)
    descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        _refuse_what_is_no_file(os.fstat(descriptor), name)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_what_is_no_file(about: os.stat_result, name: str) -> None:
    if stat.S_ISLNK(about.st_mode):
        raise _is_link(name)
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, f"{name} is not a regular file")


def _is_link(name: str) -> OSError:
    return OSError(errno.ELOOP, f"{name} is a link, and links are not followed here")


def _too_large(path: Path, found: str, most: int) -> OSError:
    return OSError(errno.EFBIG, f"{path.name} has {found}, and at most {most} are read")


def _remove(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
