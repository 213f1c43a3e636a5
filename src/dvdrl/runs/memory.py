"""Sizes that cannot fit into memory are refused before anything of them is made: the process would be killed later.

What a training takes is estimated from the shapes of its largest arrays, and it takes more than that. So what is
refused could not have been trained; what is not refused may still be too much.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from dvdrl.errors import DvdrlError

NUMBER = 4
"""Bytes of a number in single precision."""
_AVAILABLE = Path("/proc/meminfo")
_LIMITS = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The limit of a container, in the two versions of its interface."""


class Need(NamedTuple):
    """Arrays that are in memory at the same time as those of the other needs."""

    what: str
    options: tuple[str, ...]
    """The options that decide their size, the one to look at first in front."""
    size: int
    """In bytes."""


def refuse_what_cannot_fit(needs: Sequence[Need]) -> None:
    """Refuse to begin if all needs together are more than the memory that is available.

    Raises:
        DvdrlError: they are. The message names the largest need, and the options that decide its size.
    """
    total, there = sum(need.size for need in needs), available()
    if total <= there:
        return
    largest = max(needs, key=lambda need: need.size)
    raise DvdrlError(
        f"{', '.join(largest.options)}: this takes at least {_gigabytes(total)} of memory,"
        f" {_gigabytes(largest.size)} of it for {largest.what}; {_gigabytes(there)} are available"
    )


def bytes_of(tree: Any) -> int:
    """The size of a tree of arrays, or of their shapes."""
    leaves = jax.tree.leaves(tree)
    return sum(math.prod(leaf.shape) * NUMBER for leaf in leaves)


def available() -> float:
    """The bytes available where JAX computes; infinite if the operating system does not report them."""
    device = jax.devices()[0].memory_stats() or {}  # only accelerators report it
    if "bytes_limit" in device:
        return float(device["bytes_limit"] - device.get("bytes_in_use", 0))
    return min(_of_machine(), *map(_of_container, _LIMITS))


def _of_machine() -> float:
    """What programs can have without others being stopped; where Linux does not report it, the whole memory."""
    try:
        lines = dict(line.split(":") for line in _AVAILABLE.read_text().splitlines())
        return sum(1024 * int(lines[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    except (OSError, ValueError, LookupError):
        if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", ()):
            return math.inf
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _of_container(limit: Path) -> float:
    try:
        return int(limit.read_text())
    except (OSError, ValueError):  # there is none, or it is "max"
        return math.inf


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"
