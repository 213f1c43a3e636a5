"""Runs an experiment and says what came out: tables, and a figure in the paper's layout."""

import csv
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dvdrl.errors import DvdrlError
from dvdrl.record import make_output_directory, write_record
from dvdrl.runs.config import NSRES, runs_of
from dvdrl.runs.loop import Run, resume, train
from dvdrl.studies.experiments import EXPERIMENTS, Experiment

_STYLES = {
    "es": ("0.6", ":"),
    "nsr-es": ("0.6", "--"),
    "dvd-es": ("black", "-"),
    "dvd-es-authors": ("black", "--"),
    "dvd-es-fixed-0.5": ("tab:blue", "-."),
    "dvd-es-leader": ("tab:orange", "-"),
}


class Result(NamedTuple):
    """One run. Curves have a value for every M-th iteration of NSR-ES, so that all are as long."""

    setting: str
    variant: str
    seed: int
    curve: np.ndarray
    """Return of the best member, by iteration."""
    env_steps: int
    versions: Mapping[str, str] = {}
    """Of what it was trained with."""


def run_cell(name: str, setting: str, variant: str, *, scale: str, seeds: str, executor: Any) -> list[Result]:
    """Train one cell of an experiment; what is finished is kept, what is not is resumed."""
    # Runs of another scale, of other seeds or of another executor are not this study's.
    study = Path("runs") / name / f"{scale}-{seeds}-{executor}"
    directory = study / setting.replace(" ", "-") / variant
    config = EXPERIMENTS[name].config(setting, variant, scale)
    config = replace(config, seeds=seeds, executor=executor, out=directory)
    planned = dict(runs_of(config))
    if not directory.exists():
        train(config)
    begun = [Run(path) for path in planned if path.exists()]
    if not all(run.finished for run in begun):
        resume(directory)
    for path, single in planned.items():
        if not path.exists():  # killed before all seeds had begun
            train(replace(single, out=path))
    return [result_of(setting, variant, Run(path)) for path in planned]


def result_of(setting: str, variant: str, run: Run) -> Result:
    """What a run gave."""
    lines = run.metrics
    every = (run.config.population or 1) if isinstance(run.config, NSRES) else 1
    curve = np.asarray([line["best_return"] for line in lines])[::every]
    return Result(setting, variant, run.config.seed, curve, int(lines[-1]["env_steps"]), run.record.get("versions", {}))


def reproduce(name: str, directory: Path, *, scale: str, seeds: str, executor: Any) -> None:
    """Run what is not yet run; print and save the tables and the figure.

    Raises:
        DvdrlError: cells that could not be run, after all others have been, and their results saved.
    """
    make_output_directory(directory)
    experiment = EXPERIMENTS[name]
    results: list[Result] = []
    missing = []
    for setting, variant in itertools.product(experiment.scales[scale].settings, experiment.variants):
        try:
            results += run_cell(name, setting, variant, scale=scale, seeds=seeds, executor=executor)
        except DvdrlError as error:
            missing.append(f"{setting}, {variant}: {error}")
    if not results:
        raise DvdrlError("no cell could be run: " + missing[0])
    rows = summarize(results, experiment)
    write_tables(results, rows, directory)
    save_figure(results, experiment, directory / name)
    trained = list({json.dumps(r.versions): r.versions for r in results}.values())
    write_record(directory, seeds=seeds, scale=scale, executor=executor, trained_with=trained, missing=missing)
    print_table(rows)
    print(f"Saved {directory}/{name}.png, {name}.svg, summary.csv, runs.csv, record.json")
    if missing:
        raise DvdrlError("not in these results: " + "; ".join(missing))


def summarize(results: Sequence[Result], experiment: Experiment) -> list[dict[str, Any]]:
    """For each cell medians and quartiles of returns, and where it can be solved how often, with a 95 % interval."""
    from scipy.stats import binomtest

    rows = []
    for setting, variant in dict.fromkeys((r.setting, r.variant) for r in results):
        cell = [r for r in results if (r.setting, r.variant) == (setting, variant)]
        best, final = [r.curve.max() for r in cell], [r.curve[-1] for r in cell]
        row: dict[str, Any] = {"setting": setting, "variant": variant, "seeds": len(cell)}
        row |= {"iterations": len(cell[0].curve)}
        for label, values in {"best": best, "final": final}.items():
            low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
            row |= {f"{label}_low": low, f"{label}_median": middle, f"{label}_high": high}
        if (threshold := experiment.solved.get(setting)) is not None:
            solved = sum(bool(r.curve.max() > threshold) for r in cell)
            interval = binomtest(solved, len(cell)).proportion_ci(method="wilson")
            row |= {"solved": solved, "share_low": interval.low, "share_high": interval.high}
            row["solved_within_50"] = sum(bool(r.curve[:50].max() > threshold) for r in cell)
        rows.append({key: round(float(value), 3) if isinstance(value, float) else value for key, value in row.items()})
    return rows


def write_tables(results: Sequence[Result], rows: Sequence[Mapping[str, Any]], directory: Path) -> None:
    """Write summary.csv and runs.csv."""
    with (directory / "summary.csv").open("w", newline="") as file:
        names = list(dict.fromkeys(key for row in rows for key in row))
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    with (directory / "runs.csv").open("w", newline="") as file:
        plain = csv.writer(file, lineterminator="\n")
        plain.writerow(["setting", "variant", "seed", "best_return", "final_return", "env_steps"])
        for r in results:
            plain.writerow([r.setting, r.variant, r.seed, f"{r.curve.max():.2f}", f"{r.curve[-1]:.2f}", r.env_steps])


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the summary."""
    from rich.console import Console
    from rich.table import Table

    table = Table("setting", "variant", "solved", "95 %", "median best", "median final", "quartiles")
    for row in rows:
        solved = f"{row['solved']} of {row['seeds']}" if "solved" in row else ""
        interval = f"{row['share_low']:.2f} to {row['share_high']:.2f}" if "solved" in row else ""
        table.add_row(
            row["setting"],
            row["variant"],
            solved,
            interval,
            f"{row['best_median']:.0f}",
            f"{row['final_median']:.0f}",
            f"{row['final_low']:.0f} to {row['final_high']:.0f}",
        )
    Console(width=110).print(table)


def save_figure(results: Sequence[Result], experiment: Experiment, path: Path) -> None:
    """Median return of the best member with the interquartile range, a panel a setting."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    settings = list(dict.fromkeys(r.setting for r in results))
    figure, axes = plt.subplots(
        1,
        len(settings),
        figsize=(3.1 * len(settings) + 0.8, 3.2),
        sharey=len(set(experiment.solved.values())) == 1,
        layout="constrained",
        squeeze=False,
    )
    for setting, panel in zip(settings, axes[0], strict=True):
        for variant in dict.fromkeys(r.variant for r in results):
            color, line = _STYLES[variant]
            curves = np.stack([r.curve for r in results if (r.setting, r.variant) == (setting, variant)])
            low, middle, high = np.quantile(curves, (0.25, 0.5, 0.75), axis=0)
            x = np.arange(1, len(middle) + 1)
            panel.plot(x, middle, color=color, linestyle=line, linewidth=1.4, label=variant)
            panel.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
        if setting in experiment.solved:
            panel.axhline(experiment.solved[setting], color="0.3", linewidth=0.6)
            panel.set_ylim(-1200, -500)
        panel.set(title=setting, xlabel="iteration")
        panel.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("return of the best member")
    axes[0][-1].legend(frameon=False, fontsize=7, loc="lower right")
    for suffix in ("png", "svg"):
        figure.savefig(path.with_suffix(f".{suffix}"), dpi=150)
    plt.close(figure)
