"""What the paper leaves open in DvD-TD3, measured: whose target policy, which length scale, on how many states.

Each row changes one option of DvD-TD3; E-TD3 is beside them. Small scale is for choosing between options, not for
comparing with other work.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dvdrl.record import make_output_directory, write_record
from dvdrl.runs.config import ETD3, DvDTD3
from dvdrl.runs.loop import Run, resume, train

BASE: dict[str, Any] = {"population": 5}
CHOICES: dict[str, ETD3] = {
    "e-td3": ETD3(task="", **BASE),
    "dvd-td3": DvDTD3(task="", **BASE),
    "bootstrapping-random": DvDTD3(task="", bootstrapping="random", **BASE),
    "length-scale-0.2": DvDTD3(task="", length_scale=0.2, **BASE),
    "length-scale-2": DvDTD3(task="", length_scale=2.0, **BASE),
    "num-states-20": DvDTD3(task="", num_states=20, **BASE),
    "across-members": DvDTD3(task="", normalization="across-members", **BASE),
    "lambda-0.5": DvDTD3(task="", arms=(0.5,), **BASE),
    "leader": DvDTD3(task="", controller="leader", **BASE),
}
"""By the name in the table; what a name does not say is as in `dvd-td3`."""


@dataclass(frozen=True)
class Scale:
    """How much of the study is run."""

    tasks: tuple[str, ...]
    options: Mapping[str, Any]


SCALES = {
    "smoke": Scale(
        ("Hopper-v5",),
        {
            "steps": 400,
            "iteration_steps": 200,
            "random_steps": 100,
            "evaluation_episodes": 1,
            "hidden": (8,),
            "batch_size": 20,
            "population": 2,
        },
    ),
    "small": Scale(("Hopper-v5", "HalfCheetah-v5"), {"steps": 100_000, "random_steps": 10_000}),
    "paper": Scale(("Hopper-v5", "HalfCheetah-v5"), {"steps": 1_000_000}),
}


def run_cell(task: str, name: str, scale: str, seeds: str) -> list[Run]:
    """Train one choice on one task, all seeds at once; what is finished is kept, what is not is resumed."""
    directory = Path("runs") / "td3-choices" / f"{scale}-{seeds}" / task / name
    if directory.exists():
        runs = resume(directory)
    else:
        runs = train(replace(CHOICES[name], task=task, seeds=seeds, out=directory, **SCALES[scale].options))
    assert isinstance(runs, list)
    return runs


def reproduce(directory: Path, *, scale: str, seeds: str) -> None:
    """Run what is not yet run; print and save the table."""
    make_output_directory(directory)
    rows = [
        summarize(task, name, run_cell(task, name, scale, seeds)) for task in SCALES[scale].tasks for name in CHOICES
    ]
    with (directory / "summary.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_record(directory, "jax", "jaxlib", "mujoco", seeds=seeds, scale=scale)
    print_table(rows)
    print(f"Saved {directory}/summary.csv, record.json")


def summarize(task: str, name: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Medians over seeds."""
    lines = [run.metrics for run in runs]
    best = [max(line["best_return"] for line in of_run) for of_run in lines]
    # The last tenth of the run, as single evaluations are noisy.
    final = [np.mean([line["best_return"] for line in of_run[-max(1, len(of_run) // 10) :]]) for of_run in lines]
    return {
        "task": task,
        "choice": name,
        "seeds": len(runs),
        "env_steps": lines[0][-1]["env_steps"],
        "median_best": round(float(np.median(best)), 1),
        "median_final": round(float(np.median(final)), 1),
        "least_final": round(float(min(final)), 1),
        "median_log_det": round(float(np.median([of_run[-1]["log_det"] for of_run in lines])), 2),
        "median_seconds": round(float(np.median([of_run[-1]["seconds"] for of_run in lines])), 1),
    }


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the summary."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*(name.replace("_", " ") for name in rows[0]))
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=130).print(table)
