"""The experiments of XQC: one agent against TD3, and how many modes of a task a population finds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dvdrl.runs.options import ETD3, TD3, XQC, DvDTD3, NicheXQC
from dvdrl.studies import tables
from dvdrl.studies.experiment import Experiment, Scale
from dvdrl.studies.kept import Result
from dvdrl.studies.measures import EVALUATED, modes_found, returns_in_modes

_TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5")
_FEW_RANDOM: dict[str, Any] = {"random_steps": 5_000}
"""XQC's default, for all variants: with TD3's 25,000, a short run would be mostly random."""
TINY: dict[str, Any] = {
    "iteration_steps": 20,
    "random_steps": 20,
    "evaluation_episodes": 1,
    "batch_size": 20,
    "hidden": (8, 8),
}
"""For runs of a few steps."""

OFF_POLICY_BASE = Experiment(
    figure="",
    claim="Not in the paper: whether one agent of XQC returns at least 1.3 times as much as TD3 after equally many"
    " steps, and whether the best member of a population with niches returns less.",
    settings={task: {"task": task} for task in _TASKS},
    variants={"xqc": (XQC, {}), "td3": (TD3, {}), "niche-xqc": (NicheXQC, {})},
    scales={
        "smoke": Scale("0..1", {"HalfCheetah-v5": 40}, {**TINY, "task_options": {"horizon": 20}}),
        "small": Scale("0..2", {"HalfCheetah-v5": 20_000, "Hopper-v5": 20_000}, _FEW_RANDOM),
        "paper": Scale("0..2", dict.fromkeys(_TASKS, 200_000), _FEW_RANDOM),
    },
    subject="xqc",
)

_TWO_WAYS, _ANT = "two-mode HalfCheetah", "two-mode Ant"
_MARKOV: dict[str, Any] = {"task_options": {"markov": 1}}
_TASKS_WITH_MODES: Mapping[str, Mapping[str, Any]] = {
    _TWO_WAYS: {"task": "HalfCheetah-FwdBwd-v0", **_MARKOV},
    _ANT: {"task": "Ant-FwdBwd-v0", **_MARKOV},
}
_FOUND = {_TWO_WAYS: 1000.0, _ANT: 1500.0}
"""The return above which a mode is found, as in `multimodal`: far above those of standing or being pushed about."""
_MEMBERS, _MODES = 3, ("forward", "backward")
_TINY_MODES: dict[str, Any] = {**TINY, "task_options": {"markov": 1, "horizon": 20}}
OFF_POLICY_MODES = Experiment(
    figure="",
    claim="Not in the paper: how many of the two modes off-policy populations of three members find.",
    settings=_TASKS_WITH_MODES,
    variants={
        "td3": (TD3, {}),
        "e-td3": (ETD3, {"population": _MEMBERS}),
        "dvd-td3": (DvDTD3, {"population": _MEMBERS}),
        "xqc": (XQC, {"population": _MEMBERS}),
        "niche-xqc": (NicheXQC, {"population": _MEMBERS}),
    },
    scales={
        "smoke": Scale("0..1", {_TWO_WAYS: 40}, _TINY_MODES),
        "small": Scale("0..1", {_TWO_WAYS: 60_000}, _FEW_RANDOM),
        "paper": Scale("0..9", dict.fromkeys(_TASKS_WITH_MODES, 300_000), _FEW_RANDOM),
    },
    subject="niche-xqc",
    measures={**modes_found(_FOUND), **EVALUATED},
)


def save_populations(directory: Path, name: str, results: Sequence[Result]) -> None:  # noqa: ARG001
    """Save what populations of independent agents find: agents of three seeds in a row are one population."""
    rows = []
    for (setting, variant), runs in tables.by_cell(results).items():
        in_order = sorted(runs, key=lambda run: run.seed)
        for first in range(0, len(runs) - _MEMBERS + 1, _MEMBERS):
            members = in_order[first : first + _MEMBERS]
            returns = {mode: max(run.measures[mode] for run in members) for mode in _MODES}
            found = sum(each > _FOUND[setting] for each in returns.values())
            row = {"setting": setting, "variant": variant, "first_seed": members[0].seed}
            rows.append({**row, **returns, "modes_found": found})
    tables.write_csv(directory / "populations.csv", rows)


OFF_POLICY_MODES_ALONE = Experiment(
    figure="",
    claim="Not in the paper: how many of the two modes three independent agents find, each with a third of the steps.",
    settings=_TASKS_WITH_MODES,
    variants={"xqc": (XQC, {})},
    scales={
        "smoke": Scale("0..2", {_TWO_WAYS: 40}, _TINY_MODES),
        "small": Scale("0..5", {_TWO_WAYS: 20_000}, _FEW_RANDOM),
        "paper": Scale("0..29", dict.fromkeys(_TASKS_WITH_MODES, 100_000), _FEW_RANDOM),
    },
    subject="xqc",
    measures={**returns_in_modes(_MODES), **EVALUATED},
    draw=save_populations,
)
