"""A study whose process is killed half way, and again, comes to the tables of one that was left alone."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from soak.outcome import note
from stopped_runs import DVDRL

pytestmark = pytest.mark.soak

COMMAND = [*DVDRL, "reproduce", "states", "--scale", "smoke", "--seeds", "0..1"]
NUM_CELLS = 6


def tables(directory: Path) -> dict[str, str]:
    return {name: (directory / "results" / "states" / f"{name}.csv").read_text() for name in ("summary", "comparisons")}


def begun(directory: Path) -> int:
    """Cells of which a first line of metrics is there."""
    return len({path.parents[1] for path in directory.glob("runs/states/*/*/*/seed-*/metrics.jsonl")})


def test_a_study_that_was_killed_comes_to_the_same_tables(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    subprocess.run(COMMAND, cwd=whole, check=True, capture_output=True)
    for cells in (2, 4):
        process = subprocess.Popen(COMMAND, cwd=killed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while begun(killed) < cells and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it was to be killed and ended by itself"
    assert begun(killed) < NUM_CELLS
    subprocess.run(COMMAND, cwd=killed, check=True, capture_output=True)
    assert tables(killed) == tables(whole)
    note("killed-study", command="dvdrl reproduce states --scale smoke --seeds 0..1", kills=2, cells=NUM_CELLS)
