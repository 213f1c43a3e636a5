"""A study over seeds on a Ray cluster: every seed is a separate run; their rollouts form one batch.

python examples/ray_study.py auto    # auto joins the cluster of this machine; without an argument, one is started here
"""

import statistics
import sys
from pathlib import Path
from typing import Any

from scipy.stats import t

import dvdrl


def main(out: Path, seeds: str = "0..9", address: str | None = None, **options: Any) -> tuple[float, float]:
    """The mean best return over the seeds, and half the width of its 95 % interval."""
    runs = dvdrl.train(
        dvdrl.DvDES(task="Point-v0", seeds=seeds, executor="ray", ray_address=address, out=out, **options)
    )
    assert isinstance(runs, list)
    best = [max(line["best_return"] for line in run.metrics) for run in runs]
    half = float(t.ppf(0.975, len(best) - 1)) * statistics.stdev(best) / len(best) ** 0.5
    return statistics.mean(best), half


if __name__ == "__main__":
    mean, half = main(Path("runs/study"), address=sys.argv[1] if len(sys.argv) > 1 else None)
    print(f"best return {mean:.1f} ± {half:.1f}; `dvdrl report runs/study` shows the details")
