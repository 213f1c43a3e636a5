"""Prints a table of the time that each kernel takes in an update of DvD-TD3 on a GPU, the slowest kernels first.

    python tools/profile_td3.py 40 > results/bench-td3/kernels-of-40-members.csv

The shapes are those of Humanoid in `dvdrl bench td3`. The kernels are profiled one after the other, in the order of the
program. In training they run side by side; then their times overlap and tell little.
"""

import csv
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import jax
from jax.profiler import ProfileData

from dvdrl.benchmarks.td3 import update


def profile(population: int) -> tuple[dict[str, list[float]], int]:
    """The microseconds of each run of each kernel in one call, and the number of updates in the call."""
    updates = update("Humanoid", population, 1, 200, in_order=True)
    jax.block_until_ready(updates.call())
    times = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(updates.call())
        for path in Path(folder).rglob("*.xplane.pb"):
            for plane in ProfileData.from_file(str(path)).planes:
                if "/device:GPU" in plane.name:
                    for event in (event for line in plane.lines for event in line.events):
                        times[event.name].append(event.duration_ns / 1e3)
    return times, updates.num_updates


def main() -> None:
    """Print the table."""
    if jax.default_backend() != "gpu":
        sys.exit("profile_td3: expected JAX to run on a GPU")
    times, num_updates = profile(int(sys.argv[1]))
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(["kernel", "microseconds_an_update", "times_an_update"])
    for kernel, each in sorted(times.items(), key=lambda item: -sum(item[1])):
        rows.writerow([kernel, round(sum(each) / num_updates, 2), round(len(each) / num_updates, 2)])


if __name__ == "__main__":
    main()
