"""The paper's tables, the presets, and the values of options that a user leaves open.

The preset `paper` follows the paper's tables and text; where they are silent, it follows the authors' code. The preset
`authors` follows the authors' code throughout. The preset `recommended` is ours, and the same for all tasks.
"""

import dataclasses
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Never, overload

from dvdrl.errors import DvdrlError
from dvdrl.runs import fields

if TYPE_CHECKING:  # the classes of options import this module
    from dvdrl.runs.options import ES, OffPolicyTraining
    from dvdrl.runs.training import Training

Preset = Literal["recommended", "paper", "authors"]

# The hyper-parameters of the paper's two tables (appendix A.2), by task. Population sizes are in section 5.
# Iterations are from its kernel table; tasks that are not in that table get 200, our choice. All tasks without an entry
# here use the column of HalfCheetah.
_COLUMN: dict[str, Any] = {
    "population": 5,
    "sensings": 100,
    "sigma": 0.1,
    "learning_rate": 0.05,
    "hidden": (32, 32),
    "iterations": 200,
}
_MULTIMODAL: dict[str, Any] = {**_COLUMN, "population": 3, "sigma": 0.001, "learning_rate": 0.001}
PAPER_TABLES: dict[str, dict[str, Any]] = {
    "Point-v0": {**_COLUMN, "hidden": (16, 16), "iterations": 50},
    "Swimmer-v5": {**_COLUMN, "hidden": (16, 16), "iterations": 100},
    "HalfCheetah-v5": _COLUMN,
    "Walker2d-v5": _COLUMN,
    "BipedalWalker-v3": _COLUMN,
    "HalfCheetah-FwdBwd-v0": _MULTIMODAL,
    "Ant-FwdBwd-v0": {**_MULTIMODAL, "hidden": (64, 64), "sensings": 300},
}
_PAPER: dict[str, Any] = {
    "starts": "same",
    "step_rule": "plain",
    "state_interval": 20,
    "controller": "thompson",
    "normalization": "none",
}
_PRESETS: dict[Preset, dict[str, Any]] = {
    "recommended": {
        **_PAPER,
        "population": 5,
        "sensings": 20,
        "sigma": 0.05,
        "step_rule": "adam",
        "learning_rate": 0.02,
        "hidden": (32, 32),
        "iterations": 200,
        "starts": "per-iteration",
    },
    "paper": _PAPER,
    "authors": {
        "starts": "same",
        "step_rule": "authors",
        "state_interval": 1,
        "controller": "authors-thompson",
        "normalization": "across-members",
    },
}
_ARMS = {"plateau": (0.0, 0.5, 0.8)}
_PAPER_ARMS = (0.0, 0.5)


def of_task(task: str, preset: Preset) -> Mapping[str, Any]:
    """Values for open options of ES and its variants on a task."""
    return {**PAPER_TABLES.get(task, _COLUMN), **_PRESETS[preset]}


def of_controller(controller: str) -> Mapping[str, Any]:
    """Values for open options that depend on the controller."""
    return {"arms": _ARMS.get(controller, _PAPER_ARMS)}


@overload
def resolve(options: "ES") -> "ES[Never]": ...
@overload
def resolve(options: "OffPolicyTraining") -> "OffPolicyTraining[Never]": ...
@overload
def resolve(options: "Training") -> "Training[Never]": ...
def resolve(options: "Training") -> "Training[Never]":
    """The options, with a value for each one that is open.

    Raises:
        DvdrlError: an option has a value that no run can have, or needs a package that is not installed.
    """
    if options.wandb and find_spec("wandb") is None:
        raise DvdrlError("wandb: Weights & Biases is not installed; pip install 'dvdrl[wandb]'")
    return filled_in(options)


def filled_in(options: "Training") -> "Training[Never]":
    """Like `resolve`, but for any machine, as when a run is only read.

    Raises:
        DvdrlError: an option has a value that no run can have.
    """
    lists: dict[str, Any] = {name: tuple(value) for name, value in vars(options).items() if isinstance(value, list)}
    options = dataclasses.replace(options, **lists).spelled_out()  # Python users may pass lists
    fields.check(options)
    options.refuse_conflicts()
    defaults = options.defaults()
    missing = {name for name, value in vars(options).items() if value is None}
    resolved: Any = dataclasses.replace(options, **{name: defaults[name] for name in missing & defaults.keys()})
    return resolved  # type: ignore[no-any-return]
