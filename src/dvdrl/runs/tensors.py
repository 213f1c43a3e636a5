"""Reads safetensors files that somebody else may have written, and computes digests of arrays."""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from dvdrl import files

_KINDS = {np.dtype(kind) for kind in ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")}


def read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays of a file in a folder of a run directory, by name, and what is said about them.

    Raises:
        OSError: as for `files.opened`.
        ValueError: it holds something else.
    """
    with _opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        about: dict[str, str] = file.metadata() or {}
    for name, tensor in tensors.items():
        if tensor.dtype not in _KINDS:
            raise ValueError(f"expected numbers that NumPy has, got {name} of type {tensor.dtype}")
    return tensors, about


def about(path: Path) -> dict[str, str]:
    """What is said about the arrays of a file; as for `read`."""
    with _opened(path) as file:
        return file.metadata() or {}


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with files.opened(path, most=files.MOST_OF_TENSORS, within=path.parent.parent) as file:
        try:
            # By its descriptor: the path could lead to another file by now.
            with safe_open(f"/dev/fd/{file.fileno()}", framework="numpy") as tensors:
                yield tensors
        except (SafetensorError, TypeError, AttributeError, LookupError, ArithmeticError, MemoryError) as error:
            raise ValueError(str(error)) from error


def digest(tensors: Mapping[str, np.ndarray], about: str = "") -> str:
    """The SHA-256 digest of named arrays and of the text `about`."""
    digest = hashlib.sha256(about.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        digest.update(np.ascontiguousarray(tensor).data)
    return digest.hexdigest()
