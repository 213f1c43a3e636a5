"""The experiments that train: each is a grid of cells, a setting by a variant of an algorithm, over seeds.

A cell is one training of all seeds at once. All variants get the same number of rollouts: NSR-ES, which updates one
member an iteration, M times the iterations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dvdrl.runs.config import ES, NSRES, DvDES


@dataclass(frozen=True)
class Scale:
    """How much of an experiment is run."""

    settings: tuple[str, ...]
    """Of the experiment's."""
    iterations: Mapping[str, int]
    """By setting."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Options of every cell."""


@dataclass(frozen=True)
class Experiment:
    """A grid of cells, and how much of it each scale runs."""

    settings: Mapping[str, Mapping[str, Any]]
    """Name -> options of the task."""
    variants: Mapping[str, Any]
    """Name -> the class and options of an algorithm: (class, {option: value})."""
    scales: Mapping[str, Scale]
    solved: Mapping[str, float] = field(default_factory=dict)
    """Setting -> the return above which a run counts as one that solved it."""

    def config(self, setting: str, variant: str, scale: str) -> ES:
        """The options of a cell, without its seeds."""
        size = self.scales[scale]
        kind, options = self.variants[variant]
        base: ES = replace(kind(**{**self.settings[setting], **options}), **size.overrides)
        updates = base.population or 5 if isinstance(base, NSRES) else 1
        return replace(base, iterations=size.iterations[setting] * updates)


_CONTROLLERS: dict[str, Any] = {
    "dvd-es": (DvDES, {"controller": "thompson"}),
    "dvd-es-fixed-0.5": (DvDES, {"arms": (0.5,)}),
    "dvd-es-leader": (DvDES, {"controller": "leader"}),
}
"""`dvd-es` has the paper's bandit."""
_TINY = {"population": 2, "sensings": 2, "num_states": 3}
_WIDTHS = {f"half width {width}": float(width) for width in (2, 3, 4, 5)}

POINT = Experiment(
    # The authors' step rule is faster on Point than the paper's plain one, for the baselines too.
    settings={
        name: {"task": "Point-v0", "preset": "authors", "task_options": {"wall_half_width": width}}
        for name, width in _WIDTHS.items()
    },
    variants={
        "es": (ES, {}),
        "nsr-es": (NSRES, {}),
        "dvd-es-authors": (DvDES, {"controller": "authors-thompson"}),
        **_CONTROLLERS,
    },
    scales={
        "smoke": Scale(("half width 2",), {"half width 2": 2}, _TINY),
        "small": Scale(("half width 2", "half width 4"), dict.fromkeys(_WIDTHS, 50)),
        "paper": Scale(tuple(_WIDTHS), dict.fromkeys(_WIDTHS, 80)),
    },
    solved=dict.fromkeys(_WIDTHS, -600.0),  # the paper: "a reward greater than -600"
)
"""Figure 3, and what lies beyond it: who gets around the wall of Point-v0, over widths of the wall. The paper has one,
the authors' half width of 2, at which DvD-ES solves the task in ten of ten seeds while ES and NSR-ES stay in front of
the wall, at -800. Wider walls are harder."""

ADAPTIVE = Experiment(
    settings={task: {"task": task} for task in ("Point-v0", "Swimmer-v5", "HalfCheetah-v5", "Walker2d-v5")},
    variants={"es": (ES, {}), **_CONTROLLERS},
    scales={
        "smoke": Scale(("Point-v0",), {"Point-v0": 2}, _TINY),
        "small": Scale(("Swimmer-v5",), {"Swimmer-v5": 100}, {"sensings": 20}),
        "paper": Scale(
            ("Point-v0", "Swimmer-v5", "HalfCheetah-v5", "Walker2d-v5"),
            {"Point-v0": 50, "Swimmer-v5": 100, "HalfCheetah-v5": 200, "Walker2d-v5": 200},
        ),
    },
    solved={"Point-v0": -600.0},
)
"""Figure 6: what adapting lambda is worth, against lambda fixed at 0.5 and against reward alone."""

EXPERIMENTS = {"point": POINT, "adaptive": ADAPTIVE}
