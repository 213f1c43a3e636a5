"""The experiment on adaptation: which populations have a member that still does well on a robot that is damaged.

It follows SMERL (Kumar et al., "One solution is not all you need: few-shot extrapolation via structured MaxEnt RL",
2020): train undamaged; after a damage, try members a few times; choose one; evaluate it in fresh episodes. Here
`dvdrl.arms` says which member to try, and the trials are at most two for each member. SMERL has five for each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dvdrl import arms
from dvdrl.runs.adaptation import Log, Simulations, try_members
from dvdrl.runs.directory import population_of
from dvdrl.runs.options import ES, XQC, DvDES, DvDTD3, DvDXQC, NicheES, NicheXQC
from dvdrl.studies import figures
from dvdrl.studies.experiment import Experiment, Scale, Variant
from dvdrl.studies.kept import Result
from dvdrl.studies.measures import MEAN, MEAN_RETURN, ONLY_MEAN, Measure, Outcome
from dvdrl.tasks.perturbations import UNPERTURBED, Perturb

STRENGTHS = 8
"""How strong a damage can be, from one eighth to eight."""
UNDAMAGED_EPISODES, FRESH_EPISODES = 10, 5
"""Episodes of each member before a damage, and with each damage after the trials."""

Damage = Callable[[float], Perturb]
"""Strength, above 0 up to 1 -> perturbations."""


def _weak(*motors: str) -> Damage:
    return lambda strength: {f"motor:{motor}": 1 - strength for motor in motors}


def _stuck(joint: str) -> Damage:
    return lambda strength: {f"stuck:{joint}": 2 * strength}


def _of_robot(motors: Sequence[str], joint: str) -> dict[str, Damage]:
    return {
        "motor": _weak(*motors),
        "stuck": _stuck(joint),
        "friction": lambda strength: {"friction": 1 - 0.9 * strength},
        "slope": lambda strength: {"slope": 10 * strength},
        "mass": lambda strength: {"mass": 1 + strength},
    }


DAMAGES: Mapping[str, Mapping[str, Damage]] = {
    "Hopper-v5": _of_robot(["leg_joint"], "foot_joint"),
    "Walker2d-v5": _of_robot(["thigh_joint", "leg_joint", "foot_joint"], "leg_left_joint"),
    "HalfCheetah-v5": _of_robot(["bthigh", "bshin", "bfoot"], "fthigh"),
    "Ant-v5": _of_robot(["hip_1", "ankle_1"], "ankle_2"),
}
"""Setting -> kind of damage -> how it depends on the strength. At full strength: a leg without force, of Hopper's only
leg the knee; a joint elsewhere with friction of twice what its motor can; a tenth of the friction of contacts; ten
degrees uphill; twice the mass."""
KINDS = tuple(DAMAGES["Ant-v5"])


class Adapted:
    """What a run's members return on damaged robots; arrays of (kinds, strengths)."""

    def __init__(self, outcome: Outcome):
        options, population = outcome.run.config, population_of(outcome.run, "best")[1]
        each = [
            damage(strength / STRENGTHS)
            for damage in DAMAGES[outcome.setting].values()
            for strength in range(1, STRENGTHS + 1)
        ]
        simulations, M = Simulations(options, population), len(population)
        before = simulations.undamaged(UNDAMAGED_EPISODES)
        known = arms.init(before.mean(axis=1), before.std(axis=1))
        logs = [Log(known) for _ in each]

        def run(places: Sequence[int], members: Sequence[int]) -> list[float]:
            numbers = [len(logs[place].tried) for place in places]
            return simulations.trials(members, numbers, [each[place] for place in places])

        try_members(logs, 2 * M, run)
        fresh = simulations.fresh(FRESH_EPISODES, list(range(M)), each).mean(axis=-1)
        best = int(np.argmax(known.prior))
        shape = len(KINDS), STRENGTHS
        self.undamaged = float(simulations.fresh(FRESH_EPISODES, [best], [UNPERTURBED]).mean())
        """What the best member returns without damage."""
        self.chosen = np.array([row[log.member] for row, log in zip(fresh, logs, strict=True)]).reshape(shape)
        """What the chosen members return."""
        self.unadapted = fresh[:, best].reshape(shape)
        """What the member returns that is best without damage."""
        self.in_hindsight = fresh.max(axis=1).reshape(shape)
        """What the best member returns for each damage."""
        self.near_best = (self.chosen >= self.in_hindsight - arms.MARGIN * np.abs(self.in_hindsight)).astype(float)
        """1 where the chosen member is as good as the best one, within 5 %."""
        self.trials = np.array([len(log.tried) for log in logs], float).reshape(shape)


def _mean(values: Callable[[Adapted], Float[np.ndarray, "kinds strengths"]], kind: int | None = None) -> Any:
    """A measure: the mean over damages, or over those of one kind."""

    def of(outcome: Outcome) -> float | None:
        found = values(outcome.once(Adapted))
        return float((found if kind is None else found[kind]).mean())

    return of


def _at(kind: int, strength: int, outcome: Outcome) -> float:
    return float(outcome.once(Adapted).chosen[kind, strength])


_IN_FILES = replace(MEAN_RETURN, title="")
MEASURES = {
    "undamaged": Measure(lambda outcome: outcome.once(Adapted).undamaged, (MEAN_RETURN,)),
    "adapted": Measure(_mean(lambda found: found.chosen), (MEAN_RETURN,)),
    "unadapted": Measure(_mean(lambda found: found.unadapted), (MEAN_RETURN,)),
    "in_hindsight": Measure(_mean(lambda found: found.in_hindsight), (MEAN_RETURN,)),
    "near_best": Measure(_mean(lambda found: found.near_best), (MEAN,)),
    "trials": Measure(_mean(lambda found: found.trials), (MEAN,)),
    **{
        f"adapted_{kind}": Measure(_mean(lambda found: found.chosen, place), (_IN_FILES,))
        for place, kind in enumerate(KINDS)
    },
    **{
        f"{kind}_{strength + 1}": Measure(partial(_at, place, strength), (ONLY_MEAN,))
        for place, kind in enumerate(KINDS)
        for strength in range(STRENGTHS)
    },
}
"""Returns in fresh episodes, means over all damages and over each kind: of the chosen member, of the one that is best
undamaged, and of the best one in hindsight. `motor_1` to `motor_8` and so on are the returns at each strength."""


def draw(directory: Path, name: str, results: Sequence[Result]) -> None:
    """Save a figure for each setting: the return over the strength of the damage, with a panel for each kind."""
    for setting in dict.fromkeys(result.setting for result in results):
        panels: dict[str, dict[str, list[tuple[np.ndarray, np.ndarray]]]] = {}
        for kind in KINDS:
            for result in results:
                if result.setting == setting:
                    x = np.arange(STRENGTHS + 1)
                    y = [result.measures[f"{kind}_{strength}"] for strength in x[1:]]
                    curve = x, np.array([result.measures["undamaged"], *y])
                    panels.setdefault(kind, {}).setdefault(result.variant, []).append(curve)
        figure = figures.curves(panels, x_label="strength, in eighths", y_label="return after adapting", marks={})
        figures.save(figure, directory / f"{name}-{setting}")


# Few sensings leave steps for many iterations, which newborns of niche-ES need. With five, Hopper soon learns to hop.
_RECOMMENDED: dict[str, Any] = {"preset": "recommended", "population": 5, "sensings": 5}
_VARIANTS: dict[str, Variant] = {
    "single agent": (ES, {"population": 1, "sensings": 25}),
    "independent agents": (ES, {}),
    "niche-es without renewal": (NicheES, {"without": ("renewal",)}),
    "dvd-es": (DvDES, {}),
    "niche-es": (NicheES, {}),
}
# All are trained for as many environment steps. The iterations are more than these steps need.
_ITERATIONS = 2000
ADAPTATION = Experiment(
    figure="",
    claim="Not in the paper: what a population returns on a damaged robot after a few trials of its members, trained"
    " undamaged and with as many environment steps as a single agent.",
    settings={task: {"task": task, **_RECOMMENDED} for task in DAMAGES},
    variants=_VARIANTS,
    scales={
        "smoke": Scale("0..1", {"Hopper-v5": 1}, {"task_options": {"horizon": 20}}),
        "small": Scale(
            "700..702",
            {"Hopper-v5": _ITERATIONS, "HalfCheetah-v5": _ITERATIONS},
            {"steps": 500_000, "task_options": {"horizon": 150}},
        ),
        "medium": Scale("700..704", dict.fromkeys(DAMAGES, _ITERATIONS), {"steps": 10_000_000}),
        "paper": Scale("700..709", dict.fromkeys(DAMAGES, _ITERATIONS), {"steps": 30_000_000}),
    },
    subject="niche-es",
    measures=MEASURES,
    draw=draw,
)

# Twenty simulations for each variant, so that all collect and learn in portions of the same size.
_FIVE: dict[str, Any] = {"population": 5, "simulations": 4}
ADAPTATION_OFF_POLICY = Experiment(
    figure="",
    claim="Not in the paper: the same with off-policy learners, which need a hundredth of the environment steps.",
    settings={task: {"task": task} for task in DAMAGES},
    variants={
        "single agent": (XQC, {"simulations": 20}),
        "five agents, shared data": (XQC, _FIVE),
        "dvd-td3": (DvDTD3, _FIVE),
        "dvd-xqc": (DvDXQC, _FIVE),
        "niche-xqc": (NicheXQC, _FIVE),
    },
    scales={
        "smoke": Scale(
            "0..1",
            {"Hopper-v5": 40},
            {
                "task_options": {"horizon": 20},
                "iteration_steps": 20,
                "random_steps": 20,
                "evaluation_episodes": 1,
                "batch_size": 20,
                "hidden": (8, 8),
            },
        ),
        "small": Scale("700..701", {"Hopper-v5": 30_000}, {"random_steps": 5_000}),
        "medium": Scale("700..702", dict.fromkeys(DAMAGES, 200_000), {"iteration_steps": 20_000}),
        "paper": Scale("700..704", dict.fromkeys(DAMAGES, 1_000_000), {"iteration_steps": 40_000}),
    },
    subject="niche-xqc",
    measures=MEASURES,
    draw=draw,
)
