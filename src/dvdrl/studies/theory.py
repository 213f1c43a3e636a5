"""Figure 1 and appendix B in numbers: differences between populations that only the determinant shows.

There are two pictures: (a) members in four clusters, (b) members in a plane. Each is compared with members that have
the same mean distance but are spread evenly, with all pairs at the same distance. In addition, small populations shrink
to a point: the power with which det K falls shows which property of a population it measures.
"""

import csv
import itertools
import math
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dvdrl import files
from dvdrl.diversity import KERNELS, gram, vendi_score
from dvdrl.record import make_output_directory, write_record, writing
from dvdrl.studies import figures

_SIZES = np.geomspace(1e-3, 1e-2, 5)
POPULATIONS = range(2, 7)


class Picture(NamedTuple):
    """The measurements of one population."""

    population: str
    kernel: str
    mean_distance: float
    """The mean over pairs."""
    determinant: float
    vendi: float
    """The effective number of members."""


class Order(NamedTuple):
    """How fast det K of M members falls as they shrink to a point."""

    population: int
    exponent: float
    """The power p in det K ~ size^p. A squared volume has 2 (M - 1); a sum of squared distances has 2."""
    volume_ratio: float
    """det K / (2^(M-1) * squared volume of the parallelepiped that the members span), at the smallest size."""


def clusters() -> np.ndarray:
    """(a): eight members in four clusters of two."""
    centres = 2.0 * np.asarray([(1, 1), (1, -1), (-1, 1), (-1, -1)])
    return np.concatenate([centres, centres + 0.05])


def in_a_plane() -> np.ndarray:
    """(b): six members whose embeddings, in five dimensions, lie in a plane, at the corners of a hexagon."""
    angles = np.arange(6) * math.pi / 3
    return np.stack([np.cos(angles), np.sin(angles), *np.zeros((3, 6))], axis=1)


_PICTURES = {"(a) four clusters": clusters, "(b) in a plane": in_a_plane}


def evenly(num: int, mean_distance: float) -> np.ndarray:
    """Members that are all at the same distance from each other."""
    return np.eye(num) * mean_distance / math.sqrt(2)


def pictures() -> list[Picture]:
    """Both pictures and their evenly spread counterparts, with the paper's kernel and with the linear kernel."""
    populations = {}
    for name, members in _PICTURES.items():
        populations[name] = members()
        populations[f"{name}, spread evenly"] = evenly(len(members()), _mean_distance(members()))
    return [
        _measure(name, kernel, members)
        for name, members in populations.items()
        for kernel in ("squared-exponential", "linear")
    ]


def orders() -> list[Order]:
    """The orders of populations of 2 to 6 members in general position, in six dimensions."""
    result = []
    for population in POPULATIONS:
        members = np.random.default_rng(population).normal(size=(population, 6))
        dets = [_determinant(size * members) for size in _SIZES]
        exponent = np.polyfit(np.log(_SIZES), np.log(dets), 1)[0]
        edges = _SIZES[0] * (members[1:] - members[0])
        volume = np.linalg.det(edges @ edges.T)
        result.append(Order(population, float(exponent), float(dets[0] / (2 ** (population - 1) * volume))))
    return result


def reproduce(directory: Path) -> None:
    """Print the tables, and save them with the figure and the record of how they were made."""
    make_output_directory(directory)
    measured, shrinking = pictures(), orders()
    with writing(directory):
        _write(directory / "pictures.csv", measured)
        _write(directory / "orders.csv", shrinking)
        _save_figure(measured, shrinking, directory / "theory")
        write_record(directory, "jax", "numpy")
    _print_tables(measured, shrinking)
    print(f"Saved {directory}/theory.png, pictures.csv, orders.csv, record.json")


def _measure(label: str, kernel: str, members: np.ndarray) -> Picture:
    with jax.enable_x64(True):
        # Our kernels use distances per dimension; in this section the paper's kernels use plain distances.
        scale = math.sqrt(0.5 / members.shape[1]) if kernel == "squared-exponential" else 1.0
        K = np.asarray(gram(KERNELS[kernel](length_scale=scale), jnp.asarray(members)))
        vendi = float(vendi_score(jnp.asarray(K), order=1.0))
    return Picture(label, kernel, _mean_distance(members), max(float(np.linalg.det(K)), 0.0), vendi)


def _determinant(members: np.ndarray) -> float:
    """det of exp(-|x - y|^2) in exact arithmetic, because shrinking populations need more digits than floats have."""
    from fractions import Fraction

    def similarity(x: np.ndarray, y: np.ndarray) -> Fraction:
        exponent = -sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(x, y, strict=True))
        term, total = Fraction(1), Fraction(1)
        for n in range(1, 16):  # |exponent| < 0.01
            term = term * exponent / n
            total += term
        return total.limit_denominator(10**60)

    rows = [[similarity(x, y) for y in members] for x in members]
    det = Fraction(1)
    for column in range(len(rows)):
        pivot = rows[column][column]
        det *= pivot
        for row in rows[column + 1 :]:
            factor = row[column] / pivot
            row[:] = [value - factor * above for value, above in zip(row, rows[column], strict=True)]
    return float(det)


def _mean_distance(members: np.ndarray) -> float:
    return float(np.mean([np.linalg.norm(x - y) for x, y in itertools.combinations(members, 2)]))


def _write(path: Path, rows: list[Any]) -> None:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0]._fields)
    writer.writerows([f"{value:.6g}" if isinstance(value, float) else value for value in row] for row in rows)
    files.write_atomically(path, text.getvalue().encode())


def _print_tables(measured: list[Picture], shrinking: list[Order]) -> None:
    from rich.console import Console
    from rich.table import Table

    first = Table("population", "kernel", "mean distance", "det K", "Vendi score")
    for p in measured:
        first.add_row(p.population, p.kernel, f"{p.mean_distance:.2f}", f"{p.determinant:.2g}", f"{p.vendi:.2f}")
    second = Table("members", "det K falls as size to the", "det K / (2^(M-1) volume^2)")
    for order in shrinking:
        second.add_row(str(order.population), f"{order.exponent:.3f}", f"{order.volume_ratio:.4f}")
    for table in (first, second):
        Console(width=110).print(table)


def _save_figure(measured: list[Picture], shrinking: list[Order], path: Path) -> None:
    figure, axes = figures.pyplot().subplots(1, 3, figsize=(10, 3.2))
    for axis, title in zip(axes, _PICTURES, strict=False):
        members = _PICTURES[title]()
        by_kernel = {p.kernel: p for p in measured if p.population == title}
        axis.plot(members[:, 0], members[:, 1], "o", color="black", markersize=5)
        numbers = [f"mean distance {by_kernel['linear'].mean_distance:.2f}"]
        numbers += [f"det, {name}: {p.determinant:.2g}" for name, p in by_kernel.items()]
        axis.set(title=title, aspect="equal")
        axis.set_xlabel("\n".join(numbers))
        axis.margins(0.2)
    axes[2].plot(
        [o.population for o in shrinking], [o.exponent for o in shrinking], "o", color="black", label="measured"
    )
    axes[2].plot(POPULATIONS, [2 * (M - 1) for M in POPULATIONS], "-", color="0.6", label="squared volume, 2 (M - 1)")
    axes[2].plot(POPULATIONS, [2] * len(POPULATIONS), ":", color="0.6", label="squared distances, 2")
    axes[2].set(title="members shrink to a point", xlabel="members", xticks=POPULATIONS)
    axes[2].set_ylabel("det K falls with this power of their size")
    axes[2].legend()
    figures.save(figure, path)
