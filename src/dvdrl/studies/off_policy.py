"""The experiments of XQC: one agent against TD3, and how many modes of a task a population finds."""

from typing import Any

from dvdrl.runs.options import ETD3, TD3, XQC, DvDTD3, NicheXQC
from dvdrl.studies.experiment import Experiment, Scale
from dvdrl.studies.measures import EVALUATED, modes_found

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
    " steps.",
    settings={task: {"task": task} for task in _TASKS},
    variants={"xqc": (XQC, {}), "td3": (TD3, {})},
    scales={
        "smoke": Scale("0..1", {"HalfCheetah-v5": 40}, {**TINY, "task_options": {"horizon": 20}}),
        "small": Scale("0..2", {"HalfCheetah-v5": 20_000, "Hopper-v5": 20_000}, _FEW_RANDOM),
        "paper": Scale("0..2", dict.fromkeys(_TASKS, 200_000), _FEW_RANDOM),
    },
    subject="xqc",
)

_TWO_WAYS, _ANT = "two-mode HalfCheetah", "two-mode Ant"
_MARKOV: dict[str, Any] = {"task_options": {"markov": 1}}
OFF_POLICY_MODES = Experiment(
    figure="",
    claim="Not in the paper: how many of the two modes off-policy populations of three members find.",
    settings={
        _TWO_WAYS: {"task": "HalfCheetah-FwdBwd-v0", **_MARKOV},
        _ANT: {"task": "Ant-FwdBwd-v0", **_MARKOV},
    },
    variants={
        "td3": (TD3, {}),
        "e-td3": (ETD3, {"population": 3}),
        "dvd-td3": (DvDTD3, {"population": 3}),
        "xqc": (XQC, {"population": 3}),
        "niche-xqc": (NicheXQC, {"population": 3}),
    },
    scales={
        "smoke": Scale("0..1", {_TWO_WAYS: 40}, {**TINY, "task_options": {"markov": 1, "horizon": 20}}),
        "small": Scale("0..1", {_TWO_WAYS: 60_000}, _FEW_RANDOM),
        "paper": Scale("0..9", {_TWO_WAYS: 600_000, _ANT: 600_000}, _FEW_RANDOM),
    },
    subject="niche-xqc",
    # As in `multimodal`: far above the returns of standing or being pushed about.
    measures={**modes_found({_TWO_WAYS: 1000.0, _ANT: 1500.0}), **EVALUATED},
)
