"""Fifty real training processes killed at random moments, each resumed: the numbers are those of a run left alone.

Writes what it did to build/soak/kills-*.csv.
"""

import csv
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from dvdrl.runs import checkpoint, metrics
from soak.outcome import OUT, note
from stopped_runs import DVDRL

pytestmark = pytest.mark.soak

POINT = ["--task", "Point-v0", "--population", "2"]
ES = ["dvd-es", *POINT, "--sensings", "4", "--hidden", "4", "--state-interval", "7"]
TD3 = [
    *("dvd-td3", *POINT, "--hidden", "8", "--iteration-steps", "60", "--random-steps", "90", "--batch-size", "16"),
    *("--buffer-size", "400", "--evaluation-episodes", "2", "--num-states", "5"),
]
# Long enough that each of the kills falls into the run.
KINDS = {
    "es-local": (20, [*ES, "--iterations", "1500"]),
    "td3-local": (20, [*TD3, "--steps", "36000"]),
    "es-ray": (10, [*ES, "--executor", "ray", "--iterations", "400"]),
}


def numbers(directory: Path) -> list[dict[str, Any]]:
    """The metrics without those that depend on the clock; every line has to be whole."""
    text = (directory / "metrics.jsonl").read_text()
    assert text.endswith("\n")
    lines = [json.loads(line) for line in text.splitlines()]
    return [{name: value for name, value in line.items() if name not in metrics.TIMINGS} for line in lines]


def last_state(directory: Path) -> dict[str, np.ndarray]:
    iteration = checkpoint.iterations(directory / "checkpoints")[-1]
    return load_file(directory / "checkpoints" / f"{iteration:08d}.safetensors")


def files(directory: Path) -> set[str]:
    """All but TensorBoard's, of which every start has one."""
    found = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith("tensorboard/")}


def lines_in(directory: Path) -> int:
    path = directory / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_moments_a_run_ends_in_the_same_bits(kind: str, tmp_path: Path) -> None:
    kills, train = KINDS[kind]
    seed = int(os.environ.get("SOAK_SEED", "0"))
    rng = random.Random(f"{kind} {seed}")
    whole, directory = tmp_path / "whole", tmp_path / "run"
    begin = time.monotonic()
    subprocess.run([*DVDRL, "train", *train, "--out", whole], check=True, stderr=subprocess.DEVNULL)
    expected = numbers(whole)
    # Most kills follow some iterations, so that the run has come to its end after the last one; others come at any
    # time after the start, that of importing and compiling included.
    per_kill, rows = len(expected) // (kills + 2), []
    for kill in range(kills):
        command = [*DVDRL, "resume", directory] if directory.exists() else [*DVDRL, "train", *train, "--out", directory]
        before = lines_in(directory)
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        started = time.monotonic()
        if rng.random() < 0.25 and kill:
            time.sleep(rng.uniform(0.0, 12.0))
        else:
            until = before + rng.randint(1, per_kill)
            while lines_in(directory) < until and process.poll() is None:
                time.sleep(0.0005)
            time.sleep(rng.uniform(0.0, 0.05))
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, f"it was to be killed and ended by itself: {said[-2000:]}"
        seconds = time.monotonic() - started
        saved = checkpoint.iterations(directory / "checkpoints")
        rows.append([kind, kill, f"{seconds:.2f}", before, lines_in(directory), saved[-1] if saved else ""])
    subprocess.run([*DVDRL, "resume", directory], check=True, stderr=subprocess.DEVNULL)
    assert numbers(directory) == expected
    left, right = last_state(directory), last_state(whole)
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name])
    assert files(directory) == files(whole)
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / f"kills-{kind}.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["run", "kill", "seconds_after_start", "lines_before", "lines_at_kill", "last_checkpoint"])
        writer.writerows(rows)
    command = " ".join(["dvdrl", "train", *train])
    note(f"kills-{kind}", run=command, kills=kills, iterations=len(expected), seconds=round(time.monotonic() - begin))
