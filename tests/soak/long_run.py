"""Trains for some minutes and writes a line for each iteration: memory, file handles, traces, time spent writing.

python long_run.py es|td3 MINUTES DIRECTORY OUT.csv
"""

import contextlib
import csv
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

import dvdrl
from dvdrl.runs import loop

# DvD-ES as the paper's table has it for Point, whose iterations are the shortest of all, so that writing weighs most;
# DvD-TD3 with its defaults, but that it learns earlier and writes five times as often.
OPTIONS: dict[str, Any] = {
    "es": dvdrl.DvDES(task="Point-v0", iterations=1_000_000),
    "td3": dvdrl.DvDTD3(task="HalfCheetah-v5", random_steps=1_000, iteration_steps=1_000),
}
FIELDS = ("iteration", "seconds", "memory_mb", "handles", "traces", "writing_seconds")


def memory() -> float:
    """Megabytes of its own: not those of files, which the kernel takes and gives back as it likes."""
    status = Path("/proc/self/status").read_text()
    return sum(int(kilobytes) for kilobytes in re.findall(r"^(?:RssAnon|VmSwap):\s+(\d+) kB$", status, re.M)) / 1000


class Enough(BaseException):
    """The time is over."""


def main(kind: str, minutes: float, directory: Path, out: Path) -> None:
    """Train, and stop in the middle of it."""
    traces = [0]

    def listen(event: str, *_: Any, **__: Any) -> None:
        traces[0] += event == "/jax/core/compile/jaxpr_trace_duration"

    jax.monitoring.register_event_duration_secs_listener(listen)
    begin, write = time.perf_counter(), loop._write

    with open(out, "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(FIELDS)

        def timed(run: Any, *arguments: Any) -> None:
            started = time.perf_counter()
            write(run, *arguments)
            now = time.perf_counter()
            handles = len(os.listdir("/proc/self/fd"))
            values = (f"{now - begin:.3f}", f"{memory():.1f}", handles, traces[0], f"{now - started:.5f}")
            rows.writerow([run.progress.iteration, *values])
            file.flush()
            traces[0] = 0
            if now - begin > 60 * minutes:
                raise Enough

        loop._write = timed
        with contextlib.suppress(Enough):
            loop.train(replace(OPTIONS[kind], out=directory))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
