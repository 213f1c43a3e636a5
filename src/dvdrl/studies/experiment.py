"""What an experiment is: a grid of cells, settings by variants of algorithms, and how much of it each scale runs.

A cell is one training of all its seeds at once. All variants of ES get the same number of rollouts for their gradients.
NSR-ES updates one member per iteration, so it gets M times the iterations (the paper divides its x-axis instead).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dvdrl.runs.training import Training
from dvdrl.studies.kept import Result
from dvdrl.studies.measures import Measure

Variant = tuple[type[Training], Mapping[str, Any]]
"""A class of options, and values for some of them."""


@dataclass(frozen=True)
class Scale:
    """How much of an experiment is run."""

    seeds: str
    """The first and the last seed. The scale "paper" has as many seeds as the paper."""
    length: Mapping[str, int]
    """Setting -> iterations, or for TD3 environment steps. Other settings are left out."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Options that replace those of every cell."""


@dataclass(frozen=True)
class Experiment:
    """A grid of cells, and how much of it each scale runs."""

    figure: str
    """The paper's figure; empty if the paper has no such experiment."""
    claim: str
    """The paper's claim, or the question that it leaves open."""
    settings: Mapping[str, Mapping[str, Any]]
    """Name -> options of the task."""
    variants: Mapping[str, Variant]
    scales: Mapping[str, Scale]
    subject: str
    """The variant that all others are compared with."""
    measures: Mapping[str, Measure] = field(default_factory=dict)
    """Name -> a measure of each run. The tables show these beside the best and the last return."""
    paper: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(setting, variant) -> the paper's median over seeds of the best return in training."""
    episodes: int = 5
    """Episodes of each member in an evaluation after training, for measures that ask for one."""
    draw: Callable[[Path, str, Sequence[Result]], None] | None = None
    """Saves further figures or tables: the directory, the name of the experiment, and the results."""

    def config(self, setting: str, variant: str, scale: str) -> Training:
        """The options of a cell, without its seeds."""
        size = self.scales[scale]
        kind, options = self.variants[variant]
        base = replace(kind(**{**self.settings[setting], **options}), **size.overrides)
        return base.of_length(size.length[setting])
