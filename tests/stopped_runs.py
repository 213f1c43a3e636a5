"""Runs that are stopped from outside, and what makes two runs the same one."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from dvdrl.runs import checkpoint, metrics

DVDRL = [sys.executable, "-c", "from dvdrl.cli import main; main()"]
"""The command, in a process of its own."""


def numbers(directory: Path) -> list[dict[str, Any]]:
    """The metrics without those that depend on the clock."""
    lines = metrics.read(directory / "metrics.jsonl")
    return [{name: value for name, value in line.items() if name not in metrics.TIMINGS} for line in lines]


def assert_same_run(a: Path, b: Path) -> None:
    """Equal metrics, and states, with TD3 replay buffers too, that are equal to the bit."""
    assert numbers(a) == numbers(b)
    last = checkpoint.iterations(a / "checkpoints")[-1]
    assert checkpoint.iterations(b / "checkpoints")[-1] == last
    for folder in ("checkpoints", "replay"):
        files = [path / folder / f"{last:08d}.safetensors" for path in (a, b)]
        if folder == "replay" and not any(file.exists() for file in files):
            continue
        left, right = map(load_file, files)
        assert left.keys() == right.keys()
        for name in left:
            np.testing.assert_array_equal(left[name], right[name])


def started(arguments: list[str], directory: Path, until: int, **options: Any) -> subprocess.Popen[str]:
    """The command on a run in that directory, once it has written so many lines of metrics, or ended."""
    process = subprocess.Popen([*DVDRL, *arguments], stderr=subprocess.PIPE, text=True, **options)
    while len(metrics.read(directory / "metrics.jsonl")) < until and process.poll() is None:
        time.sleep(0.001)
    return process
