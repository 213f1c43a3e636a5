"""Figures in the paper's layout: median over seeds, with the interquartile range shaded; readable without colour."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from dvdrl import files
from dvdrl.studies.experiment import Experiment
from dvdrl.studies.kept import Result
from dvdrl.studies.statistics import quartiles
from dvdrl.studies.tables import by_cell

_LINES = (
    ("black", "-"),
    ("tab:orange", "--"),
    ("tab:blue", "-."),
    ("tab:green", ":"),
    ("tab:purple", (0, (5, 1, 1, 1, 1, 1))),
    ("0.5", (0, (1, 1))),
    ("tab:red", (0, (8, 2))),
    ("tab:brown", (0, (3, 1, 1, 1))),
    ("tab:cyan", (0, (8, 1, 2, 1))),
    ("tab:olive", (0, (2, 3))),
)
"""A colour and a dash pattern for each variant, so that lines differ in grey too. No experiment has more variants."""


def pyplot() -> Any:
    """Matplotlib's pyplot without a display, in the style of all our figures."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.style.use(str(resources.files("dvdrl.studies") / "dvdrl.mplstyle"))
    return plt


def save(figure: Any, path: Path) -> None:
    """Save a figure as PNG and close it. The same numbers give the same file."""
    picture = BytesIO()
    figure.savefig(picture, format="png")
    files.write_atomically(path.with_suffix(".png"), picture.getvalue())
    pyplot().close(figure)


def save_study(directory: Path, name: str, results: Sequence[Result], experiment: Experiment) -> None:
    """Save curves over training: of the measures that have curves, or else of returns.

    For TD3, save the other panels of figure 7 too. The curves of all results are needed.
    """
    cells = by_cell(results)
    panels: dict[str, dict[str, list[tuple[np.ndarray, np.ndarray]]]] = {}
    marks: dict[str, list[float]] = {}
    drawn = {measure: each for measure, each in experiment.measures.items() if each.curve}
    for (setting, variant), cell in cells.items():
        titles = {f"{setting}, {measure}": measure for measure in drawn} or {setting: "best"}
        for title, curve in titles.items():
            panels.setdefault(title, {})[variant] = [(r.curves["x"], r.curves[curve]) for r in cell]
    for measure, each in experiment.measures.items():
        for setting, level in each.marks.items():
            marks.setdefault(f"{setting}, {measure}" if each.curve else setting, []).append(level)
    kind, _ = experiment.variants[results[0].variant]
    save(curves(panels, x_label=kind.x_axis, marks=marks), directory / name)
    if kind.x_axis == "rollouts":
        return
    best: dict[str, dict[str, list[float]]] = {}
    minutes: dict[str, dict[str, list[float]]] = {}
    lambdas: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for (setting, variant), cell in cells.items():
        best.setdefault(setting, {})[variant] = [r.measures["best"] for r in cell]
        minutes.setdefault(setting, {})[variant] = [r.seconds / 60 for r in cell]
        length = min(len(r.curves["lambda"]) for r in cell)
        mean = np.mean([r.curves["lambda"][:length] for r in cell], axis=0)
        lambdas.setdefault(setting, {})[variant] = (cell[0].curves["x"][:length], mean)
    save(details(best, minutes, lambdas, x_label=kind.x_axis), directory / f"{name}-details")


def curves(
    panels: Mapping[str, Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]]],
    *,
    x_label: str,
    marks: Mapping[str, Sequence[float]],
    y_label: str = "return of the best member",
) -> Any:
    """One panel per setting, with one curve per variant, given the (x, y) of each seed.

    Seeds of one variant may have points at different x. A value holds until the next point.
    """
    plt = pyplot()
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    columns = min(2 * len(panels), 5)
    size = (3.1 * len(panels) + 0.8, 2.9 + 0.15 * -(-len(names) // columns))
    figure, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False)
    for (title, panel), axis in zip(panels.items(), axes[0], strict=True):
        for name, runs in panel.items():
            color, line = _LINES[names.index(name)]
            x = np.unique(np.concatenate([run[0] for run in runs]))
            x = x[x >= max(run[0][0] for run in runs)]
            held = np.stack([y[np.searchsorted(at, x, side="right") - 1] for at, y in runs])
            low, middle, high = np.quantile(held, (0.25, 0.5, 0.75), axis=0)
            axis.plot(x, middle, color=color, linestyle=line, label=name)
            axis.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
        for level in marks.get(title, ()):
            axis.axhline(level, color="0.3", linewidth=0.6)
        axis.set(title=title.replace(", ", "\n"), xlabel=x_label)
        _shorten_numbers(axis.xaxis)
    axes[0][0].set_ylabel(y_label)
    _legend(figure, axes[0], names, columns)
    return figure


def details(
    best: Mapping[str, Mapping[str, Sequence[float]]],
    minutes: Mapping[str, Mapping[str, Sequence[float]]],
    lambdas: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]],
    *,
    x_label: str,
) -> Any:
    """The other panels of figure 7, one row per setting: best returns, wall-clock time, and lambda over time."""
    names = list(dict.fromkeys(name for row in best.values() for name in row))
    height = max(2.4, 0.9 + 0.28 * len(names))
    figure, axes = pyplot().subplots(len(best), 3, figsize=(10, height * len(best) + 0.5), squeeze=False)
    for setting, row in zip(best, axes, strict=True):
        _distributions(row[0], best[setting], f"{setting}, best return")
        _distributions(row[1], minutes[setting], "minutes")
        row[1].set_yticklabels([])
        for name, (x, mean) in lambdas[setting].items():
            color, line = _LINES[names.index(name)]
            row[2].plot(x, mean, color=color, linestyle=line, label=name)
        row[2].set(title="lambda, mean over seeds", xlabel=x_label)
        _shorten_numbers(row[2].xaxis)
    _legend(figure, axes[:, 2], names, 5)
    return figure


def _legend(figure: Any, axes: Iterable[Any], names: Sequence[str], columns: int) -> None:
    """One legend for all panels. A panel may lack some of the lines."""
    drawn = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    shown = [name for name in names if name in drawn]
    figure.legend([drawn[name] for name in shown], shown, loc="outside lower center", ncols=columns)


def _shorten_numbers(axis: Any) -> None:
    """Write 100k instead of 100000, so that neighbouring labels do not touch."""
    from matplotlib.ticker import EngFormatter

    axis.set_major_formatter(EngFormatter(sep=""))


def _distributions(axis: Any, samples: Mapping[str, Sequence[float]], title: str) -> None:
    """Draw the values of each variant as points on one line, with median and quartiles."""
    for place, values in enumerate(samples.values()):
        middle, low, high = quartiles(values)
        axis.plot(values, np.full(len(values), place), "o", color="0.6", markersize=4)
        axis.errorbar(middle, place, xerr=[[middle - low], [high - middle]], fmt="|", color="black", markersize=12)
    axis.set_yticks(range(len(samples)), list(samples))
    axis.set_ylim(len(samples) - 0.4, -0.6)
    axis.set_title(title)
