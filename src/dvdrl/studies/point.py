"""Figure 3, and what lies beyond it: which algorithms get around the wall of Point-v0, over widths of the wall.

The paper has one width (half width 2, the authors'), at which it reports that DvD-ES solves the task in all of ten
seeds while ES and NSR-ES stay in front of the wall, at -800. Wider walls are harder. All algorithms get the same number
of rollouts: NSR-ES, which updates one member an iteration, M times the iterations.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dvdrl.record import make_output_directory, write_record
from dvdrl.runs.config import ES, NSRES, DvDES
from dvdrl.runs.loop import Run, resume, train

ESCAPED = -600.0
"""A return that only a way around the wall gives (the paper: "a reward greater than -600")."""
_POINT: dict[str, Any] = {"task": "Point-v0", "preset": "authors"}
ALGORITHMS: dict[str, ES] = {
    "es": ES(**_POINT),
    "nsr-es": NSRES(**_POINT),
    "dvd-es": DvDES(**_POINT, controller="thompson"),
    "dvd-es-authors": DvDES(**_POINT, controller="authors-thompson"),
    "dvd-es-fixed-0.5": DvDES(**_POINT, arms=(0.5,)),
    "dvd-es-leader": DvDES(**_POINT, controller="leader"),
}
"""By the name in the tables; `dvd-es` has the paper's bandit. All have the authors' step rule, which on Point is faster
than the paper's plain one, for the baselines too."""
_STYLES = {
    "es": ("0.6", ":"),
    "nsr-es": ("0.6", "--"),
    "dvd-es": ("black", "-"),
    "dvd-es-authors": ("black", "--"),
    "dvd-es-fixed-0.5": ("tab:blue", "-."),
    "dvd-es-leader": ("tab:orange", "-"),
}


@dataclass(frozen=True)
class Scale:
    """How much of the study is run."""

    widths: tuple[float, ...]
    iterations: int
    overrides: Mapping[str, Any]


SCALES = {
    "smoke": Scale((2.0,), 2, {"population": 2, "sensings": 2, "num_states": 3}),
    "small": Scale((2.0, 4.0), 50, {}),
    "paper": Scale((2.0, 3.0, 4.0, 5.0), 80, {}),
}


class Result(NamedTuple):
    """One run. Curves have a value for every M-th iteration of NSR-ES, so that all are as long."""

    width: float
    algorithm: str
    seed: int
    curve: np.ndarray
    """Return of the best member, by iteration."""
    env_steps: int


def run_cell(width: float, algorithm: str, scale_name: str, seeds: str, executor: Any) -> list[Run]:
    """Train one algorithm at one width, all seeds at once; what is finished is kept, what is not is resumed."""
    # Runs of another scale, of other seeds or of another executor are not this study's.
    study = f"{scale_name}-{seeds}-{executor}"
    directory = Path("runs") / "point" / study / f"width-{width:g}" / algorithm
    scale = SCALES[scale_name]
    if directory.exists():
        runs = resume(directory)
    else:
        base = replace(ALGORITHMS[algorithm], **scale.overrides)
        updates = base.population or 5 if isinstance(base, NSRES) else 1
        options = replace(
            base,
            task_options={"wall_half_width": width},
            iterations=scale.iterations * updates,
            seeds=seeds,
            executor=executor,
            out=directory,
        )
        runs = train(options)
    assert isinstance(runs, list)
    return runs


def result_of(width: float, algorithm: str, run: Run) -> Result:
    """What a run gave."""
    lines = run.metrics
    every = (run.config.population or 1) if isinstance(run.config, NSRES) else 1
    curve = np.asarray([line["best_return"] for line in lines])[::every]
    return Result(width, algorithm, run.config.seed, curve, int(lines[-1]["env_steps"]))


def reproduce(directory: Path, *, scale: str, seeds: str, executor: Any) -> None:
    """Run what is not yet run; print and save the tables and the figure."""
    make_output_directory(directory)
    size = SCALES[scale]
    results = [
        result_of(width, algorithm, run)
        for width in size.widths
        for algorithm in ALGORITHMS
        for run in run_cell(width, algorithm, scale, seeds, executor)
    ]
    rows = summarize(results)
    write_tables(results, rows, directory)
    save_figure(results, size.widths, directory)
    packages = ("jax", "jaxlib", "mujoco", *(("mujoco-warp", "warp-lang") if executor == "device" else ()))
    write_record(directory, *packages, seeds=seeds, scale=scale, executor=executor)
    print_table(rows)
    print(f"Saved {directory}/point.png, point.svg, summary.csv, runs.csv, record.json")


def summarize(results: Sequence[Result]) -> list[dict[str, Any]]:
    """For each width and algorithm: how many seeds escaped, with a 95 % Wilson interval, and medians of returns."""
    from scipy.stats import binomtest

    rows = []
    for width, algorithm in dict.fromkeys((r.width, r.algorithm) for r in results):
        cell = [r for r in results if (r.width, r.algorithm) == (width, algorithm)]
        escaped = sum(bool(r.curve.max() > ESCAPED) for r in cell)
        within_50 = sum(bool(r.curve[:50].max() > ESCAPED) for r in cell)
        interval = binomtest(escaped, len(cell)).proportion_ci(method="wilson")
        rows.append(
            {
                "wall_half_width": width,
                "algorithm": algorithm,
                "seeds": len(cell),
                "iterations": len(cell[0].curve),
                "escaped": escaped,
                "escaped_within_50": within_50,
                "share_low": round(float(interval.low), 3),
                "share_high": round(float(interval.high), 3),
                "median_best": round(float(np.median([r.curve.max() for r in cell])), 1),
                "median_final": round(float(np.median([r.curve[-1] for r in cell])), 1),
                "worst_final": round(float(min(r.curve[-1] for r in cell)), 1),
            }
        )
    return rows


def write_tables(results: Sequence[Result], rows: Sequence[Mapping[str, Any]], directory: Path) -> None:
    """Write summary.csv and runs.csv."""
    with (directory / "summary.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    with (directory / "runs.csv").open("w", newline="") as file:
        plain = csv.writer(file, lineterminator="\n")
        plain.writerow(["wall_half_width", "algorithm", "seed", "best_return", "final_return", "env_steps"])
        for r in results:
            plain.writerow([r.width, r.algorithm, r.seed, f"{r.curve.max():.2f}", f"{r.curve[-1]:.2f}", r.env_steps])


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the summary."""
    from rich.console import Console
    from rich.table import Table

    table = Table("half width", "algorithm", "escaped", "95 %", "median best", "median final")
    for row in rows:
        table.add_row(
            f"{row['wall_half_width']:g}",
            row["algorithm"],
            f"{row['escaped']} of {row['seeds']}",
            f"{row['share_low']:.2f} to {row['share_high']:.2f}",
            f"{row['median_best']:.0f}",
            f"{row['median_final']:.0f}",
        )
    Console(width=100).print(table)


def save_figure(results: Sequence[Result], widths: Sequence[float], directory: Path) -> None:
    """Median return of the best member with the interquartile range, a panel a width."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(widths), figsize=(3.1 * len(widths) + 0.8, 3.2), sharey=True, layout="constrained", squeeze=False
    )
    for width, panel in zip(widths, axes[0], strict=True):
        for algorithm, (color, line) in _STYLES.items():
            curves = np.stack([r.curve for r in results if (r.width, r.algorithm) == (width, algorithm)])
            low, middle, high = np.quantile(curves, (0.25, 0.5, 0.75), axis=0)
            x = np.arange(1, len(middle) + 1)
            panel.plot(x, middle, color=color, linestyle=line, linewidth=1.4, label=algorithm)
            panel.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
        panel.axhline(ESCAPED, color="0.3", linewidth=0.6)
        panel.set(title=f"half width {width:g}", xlabel="iteration", ylim=(-1200, -500))
        panel.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("return of the best member")
    axes[0][-1].legend(frameon=False, fontsize=7, loc="lower right")
    for suffix in ("png", "svg"):
        figure.savefig(directory / f"point.{suffix}", dpi=150)
    plt.close(figure)
