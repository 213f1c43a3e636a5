"""An hour of training each: memory and file handles stay as they are, nothing is traced again, writing is no burden.

SOAK_MINUTES sets another time. Writes what it measured to build/soak/long-es.csv and long-td3.csv.
"""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dvdrl
from dvdrl.runs import metrics
from soak.outcome import OUT, note

pytestmark = pytest.mark.soak

MINUTES = os.environ.get("SOAK_MINUTES", "60")


@pytest.mark.parametrize("kind", ["es", "td3"])
def test_a_long_run_stays_as_it_is(kind: str, tmp_path: Path) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    out = OUT / f"long-{kind}.csv"
    script = Path(__file__).with_name("long_run.py")
    subprocess.run(
        [sys.executable, script, kind, MINUTES, tmp_path / "run", out], check=True, stderr=subprocess.DEVNULL
    )
    with open(out) as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    fifth = len(rows) // 5
    assert fifth >= 2, "too short to tell a start from an end"
    warm, early, late = rows[fifth:], rows[fifth : 2 * fifth], rows[-fifth:]
    memory, handles = ([max(row[name] for row in part) for part in (early, late)] for name in ("memory_mb", "handles"))
    traces = sum(row["traces"] for row in warm)
    seconds = warm[-1]["seconds"] - rows[fifth - 1]["seconds"]
    writing = sum(row["writing_seconds"] for row in warm) / seconds
    facts = {"minutes": float(MINUTES), "iterations": len(rows), "memory_mb": memory, "handles": handles}
    note(f"long-{kind}", **facts, traces_after_the_start=traces, share_of_time_writing=round(writing, 5))
    assert memory[1] < 1.03 * memory[0]
    assert handles[1] <= handles[0]
    assert traces == 0
    assert writing < 0.05
    # Stopped in its midst, as by a kill: all lines are there, and it can go on.
    lines = metrics.read(tmp_path / "run" / "metrics.jsonl")
    assert [line["iteration"] for line in lines] == [int(row["iteration"]) for row in rows]
    assert not dvdrl.Run(tmp_path / "run").finished
