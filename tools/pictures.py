"""Draws the pictures of docs/concepts: `python tools/pictures.py`. Their numbers are computed by dvdrl.diversity."""

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt
import numpy as np

from dvdrl import views
from dvdrl.diversity import KERNELS, determinant, gram, mean_distance, ordered_shares
from dvdrl.views.palette import COLOURS

STYLE = Path(views.__file__).parents[1] / "studies" / "dvdrl.mplstyle"
KERNEL = KERNELS["squared-exponential"](length_scale=0.5)


def spread() -> dict[str, np.ndarray]:
    """Three populations of five members, whose behaviours are two numbers."""
    angles = np.arange(5) * 2 * np.pi / 5
    ends = np.array([[-1, 0], [-1, 0.1], [1, 0], [1, 0.1], [1, -0.1]])
    return {
        "alike": 0.1 * np.stack([np.cos(angles), np.sin(angles)], axis=1),
        "two groups": ends,
        "spread out": 0.82 * np.stack([np.cos(angles), np.sin(angles)], axis=1),
    }


def draw_determinant() -> Any:
    """Distance on average, and volume."""
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.9))
    for axis, (name, behaviours) in zip(axes, spread().items(), strict=True):
        K = gram(KERNEL, behaviours)
        axis.scatter(*behaviours.T, c=COLOURS[:5], s=60, alpha=0.8)
        axis.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal", xticks=[], yticks=[])
        axis.spines[:].set_visible(True)
        axis.set_title(name)
        axis.set_xlabel(f"mean distance {mean_distance(behaviours):.2f}\ndet K = {determinant(K):.1g}")
    return figure


def carts() -> dict[str, np.ndarray]:
    """The forces of two carts over 60 steps, for two pairs of carts: (2, 60)."""
    shaking = np.tile([0.7, -0.7, -0.7, 0.7], 15)  # four steps leave neither a velocity nor a way
    return {
        "other actions, the same way": np.stack([0.2 + shaking, 0.2 - shaking]),
        "similar actions, another way": np.stack([np.full(60, 0.1), np.full(60, -0.1)]),
    }


def way(force: np.ndarray) -> np.ndarray:
    """Where a cart is that a force pushes: the position after each step, (..., 60)."""
    return np.cumsum(np.cumsum(0.1 * force, axis=-1) * 0.1, axis=-1)


def draw_behaviour() -> Any:
    """What members do, and what comes of it."""
    figure, axes = plt.subplots(2, 2, figsize=(7.2, 4.6), sharex=True)
    for (above, below), (name, forces) in zip(axes.T, carts().items(), strict=True):
        ways = way(forces)
        for member in range(2):
            above.plot(forces[member], color=COLOURS[member], drawstyle="steps", alpha=0.8, linewidth=1)
            below.plot(ways[member], color=COLOURS[member], linewidth=3 - 1.5 * member)
        above.set(title=name, ylim=(-1.1, 1.1))
        above.set_xlabel(f"det K of actions: {determinant(gram(KERNEL, forces)):.2f}")
        below.set(ylim=(-3, 5))
        visits = ways.mean(axis=1, keepdims=True)
        below.set_xlabel(f"step\ndet K of visits: {determinant(gram(KERNEL, visits)):.2f}")
    axes[0, 0].set_ylabel("action: force")
    axes[1, 0].set_ylabel("visits: position")
    return figure


HILLS = ((-2.0, 1.0), (0.3, 0.7), (2.2, 0.85))
"""Where the hills are, and how high."""


def height(place: np.ndarray) -> np.ndarray:
    """The return of a member that is at a place."""
    return np.max([top * np.exp(-((place - centre) ** 2) / 0.5) for centre, top in HILLS], axis=0)


def members() -> dict[str, np.ndarray]:
    """Where four members are, before and after the renewal of the copies."""
    return {
        "two are copies": np.array([-2.0, -1.9, -2.2, 2.2]),
        "they have begun anew": np.array([-2.0, 0.3, 1.5, 2.2]),
    }


def shares(places: np.ndarray) -> np.ndarray:
    """The share of each member, given the fitter ones."""
    return np.asarray(ordered_shares(gram(KERNEL, places[:, None]), height(places)))


def draw_renewal() -> Any:
    """Members on hills, with their shares."""
    figure, axes = plt.subplots(2, 2, figsize=(7.2, 4.2), height_ratios=(1.3, 1))
    ground = np.linspace(-3.4, 3.4, 120)
    for (above, below), (name, places) in zip(axes.T, members().items(), strict=True):
        above.fill_between(ground, height(ground), color="#d5dbe3")
        above.scatter(places, height(places), c=COLOURS[:4], s=70, zorder=3)
        for number, place in enumerate(places):
            above.annotate(str(number), (place, float(height(place))), (0, 7), textcoords="offset points", ha="center")
        above.set(title=name, ylim=(0, 1.35), yticks=[], xticks=[], xlabel="behaviour")
        given = shares(places)
        below.bar(range(4), given, color=COLOURS[:4])
        below.axhline(0.5, color="0.5", linewidth=0.8, linestyle="--")
        for number, share in enumerate(given):
            below.annotate(f"{share:.2f}", (number, share), (0, 2), textcoords="offset points", ha="center", fontsize=8)
        below.set(ylim=(0, 1.2), xticks=range(4), xticklabels=[f"member {number}" for number in range(4)])
        below.set_xlabel(f"det K = {np.prod(given):.2g}, the product")
    axes[0, 0].set_ylabel("return")
    axes[1, 0].set_ylabel("share")
    return figure


PICTURES = {"determinant": draw_determinant, "behaviour": draw_behaviour, "renewal": draw_renewal}


def draw(directory: Path) -> None:
    """Write all pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    # Text stays text, and nothing depends on the time or on chance. So a picture differs only if what it shows differs.
    plain = {"svg.fonttype": "none", "svg.hashsalt": "dvdrl"}
    for name, picture in PICTURES.items():
        with plt.style.context([STYLE, plain]):
            figure = picture()
            figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "concepts")
