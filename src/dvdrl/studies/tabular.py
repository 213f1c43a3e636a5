"""Figure 2: on the four-state MDP, the determinant singles out the five optimal policies; the mean distance does not.

The study enumerates all populations of five agents with positive reward. Agents that behave alike are interchangeable,
so a population is a multiset of the five behaviours that pay.
"""

import csv
import itertools
import math
from io import BytesIO, StringIO
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from dvdrl import files
from dvdrl.diversity import KERNELS, distances, gram, least_shrinkage, log_determinant
from dvdrl.record import make_output_directory, write_record, writing
from dvdrl.tasks.tabular import ACTIONS, TERMINAL_REWARDS, Behavior, policies, rollout

POPULATION = 5
OPTIMAL: tuple[Behavior, ...] = ((-1, -1), (-1, 1), (0, 0), (1, -1), (1, 1))
"""The paper's phi*: each behaviour that pays, once."""
COUNTEREXAMPLE: tuple[Behavior, ...] = ((-1, -1), (-1, 1), (1, -1), (1, 1), (1, 1))
"""The paper's phi': one behaviour is doubled and one is missing, but members are farther apart on average."""


class ScoredPopulation(NamedTuple):
    """Five behaviours and both measures of their diversity."""

    behaviors: tuple[Behavior, ...]
    determinant: float
    distance: float
    """The paper's d = (1 / M) * sum over pairs of the Euclidean distance."""


def score_populations() -> list[ScoredPopulation]:
    """All populations of five agents with positive reward, sorted by falling determinant, then falling distance."""
    paying = sorted({episode.behavior for episode in map(rollout, policies()) if episode.reward > 0})
    populations = list(itertools.combinations_with_replacement(paying, POPULATION))
    with jax.enable_x64(True):
        embeddings = jnp.asarray(populations, jnp.float64)  # (populations, M, 2)
        kernel = KERNELS["squared-exponential"](length_scale=1.0)
        log_determinants = np.asarray(log_determinant(jax.vmap(lambda x: gram(kernel, x))(embeddings)))
        per_dimension = np.asarray(jax.vmap(distances)(embeddings))
    # If a member is repeated, det is 0 and the regularised determinant is at most 2 * shrinkage.
    floor = 2 * least_shrinkage(POPULATION, jnp.float64)
    dets = np.where(np.exp(log_determinants) > floor, np.exp(log_determinants), 0.0)
    sums = per_dimension.sum(axis=(1, 2)) / 2 * math.sqrt(embeddings.shape[-1])
    scored = [
        ScoredPopulation(population, float(det), float(total) / POPULATION)
        for population, det, total in zip(populations, dets, sums, strict=True)
    ]
    return sorted(scored, key=lambda p: (-p.determinant, -p.distance))


def reproduce(directory: Path) -> None:
    """Print the table, and save it with the figure and the record of how they were made."""
    make_output_directory(directory)
    populations = score_populations()
    _print_table(populations)
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["behaviors", "determinant", "distance"])
    for p in populations:
        writer.writerow([" ".join(map(_name, p.behaviors)), f"{p.determinant:.9f}", f"{p.distance:.9f}"])
    with writing(directory):
        files.write_atomically(directory / "populations.csv", text.getvalue().encode())
        _save_figure(populations, directory)
        write_record(directory, "jax", "jaxlib", "numpy", populations=len(populations))
    print(f"Saved {directory}/tabular.png, populations.csv, record.json")


def _name(behavior: Behavior) -> str:
    return f"[{behavior[0]},{behavior[1]}]"


def _print_table(populations: list[ScoredPopulation]) -> None:
    from rich.console import Console
    from rich.table import Table

    optimal = next(p for p in populations if p.behaviors == OPTIMAL)
    positive = sum(p.determinant > 0 for p in populations)
    farther = [p for p in populations if p.distance > optimal.distance + 1e-9]  # excludes ties up to rounding
    labels = {OPTIMAL: "φ*, the five optimal policies", COUNTEREXAMPLE: "φ', the paper's counterexample"}
    everything = policies()
    earning = [policy for policy in everything if rollout(policy).reward > 0]

    table = Table(title="The optimal population, and all populations that are farther apart on average")
    table.add_column("")
    table.add_column("behaviours")
    table.add_column("det K", justify="right")
    table.add_column("mean distance", justify="right")
    for p in (optimal, *farther):
        label = labels.get(p.behaviors, "")
        table.add_row(label, " ".join(map(_name, p.behaviors)), f"{p.determinant:.4f}", f"{p.distance:.4f}")
    console = Console(width=110, markup=False, highlight=False)
    console.print(
        f"{len(everything)} policies, {len(earning)} of them with positive reward, in "
        f"{len({rollout(policy).behavior for policy in earning})} behaviours: {len(populations)} populations."
    )
    console.print(table)
    console.print(
        f"Positive determinant: {positive} of {len(populations)} populations, only φ*.\n"
        f"Larger mean distance than φ*: {len(farther)} of {len(populations)}, each with a repeated member."
    )


def _save_figure(populations: list[ScoredPopulation], directory: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
    _draw_mdp(left)
    others = [p for p in populations if p.behaviors not in (OPTIMAL, COUNTEREXAMPLE)]
    right.scatter(
        [p.distance for p in others], [p.determinant for p in others], s=18, facecolors="none", edgecolors="0.45"
    )
    for behaviors, marker, label in (
        (OPTIMAL, "*", "φ*: five optimal policies"),
        (COUNTEREXAMPLE, "D", "φ': one doubled"),
    ):
        p = next(p for p in populations if p.behaviors == behaviors)
        right.scatter(
            p.distance, p.determinant, s=130 if marker == "*" else 45, marker=marker, color="0.1", label=label
        )
    right.set_xlabel("mean pairwise distance")
    right.set_ylabel("determinant")
    right.set_title(f"all {len(populations)} populations of five", fontsize=10)
    right.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False, loc="center left", fontsize=9)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=160)
    files.write_atomically(directory / "tabular.png", picture.getvalue())
    plt.close(figure)


def _draw_mdp(axes: Axes) -> None:
    def node(x: float, y: float, text: str, color: str) -> None:
        axes.text(
            x, y, text, ha="center", va="center", fontsize=9, bbox={"boxstyle": "circle", "fc": color, "ec": "0.2"}
        )

    def edge(start: tuple[float, float], end: tuple[float, float]) -> None:
        arrow = {"arrowstyle": "->", "color": "0.4", "shrinkA": 11, "shrinkB": 11}
        axes.annotate("", xy=end, xytext=start, arrowprops=arrow)

    for first in ACTIONS:
        edge((0, 2), (first, 1))
        for second in ACTIONS:
            edge((first, 1), (first + second, 0))
    node(0, 2, "$s_0$", "white")
    for number, x in enumerate(ACTIONS, start=1):
        node(x, 1, f"$s_{number}$", "white")
    for x, reward in TERMINAL_REWARDS.items():
        node(x, 0, f"{reward:+.0f}" if reward else " 0 ", "0.75" if reward else "white")
    axes.set(xlim=(-2.5, 2.5), ylim=(-0.5, 2.5))
    axes.set_title("left, down, right; two steps", fontsize=10)
    axes.axis("off")
