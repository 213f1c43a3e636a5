"""The experiments of niche-ES: how many modes it finds, what each of its parts is for, and how many members suffice."""

from collections.abc import Mapping
from typing import Any

from dvdrl.runs.options import ES, NSRES, DvDES, NicheES
from dvdrl.studies.experiment import Experiment, Scale, Variant
from dvdrl.studies.measures import EVALUATED, MEMBERS, modes_found, passes

PAST_THE_WALL = -730.0
"""On Point. In front of the wall returns are -770 and less."""
POINT_SOLVED = -600.0
"""On Point: "a reward greater than -600", section 5.1."""
WIDTHS = {f"half width {width}": float(width) for width in (2, 3, 4, 5)}
"""Of Point's wall."""

_RECOMMENDED: dict[str, Any] = {"preset": "recommended"}
_FEW, _MANY = {**_RECOMMENDED, "population": 5}, {**_RECOMMENDED, "population": 10}
_TWO_WAYS = "two-mode HalfCheetah"
_CUT = "two-mode HalfCheetah, 400 steps"
_WALLS = ("half width 4", "half width 5")
_TASKS_WITH_MODES: dict[str, Mapping[str, Any]] = {
    "landmarks 4": {"task": "Landmarks-v0", **_FEW},
    "landmarks 8": {"task": "Landmarks-v0", "task_options": {"landmarks": 8}, **_MANY},
    "four rooms": {"task": "FourRooms-v0", **_FEW},
    "forked maze": {"task": "ForkedMaze-v0", **_FEW},
    "eight rooms": {"task": "EightRooms-v0", **_MANY},
    **{name: {"task": "Point-v0", "task_options": {"wall_half_width": WIDTHS[name]}, **_FEW} for name in _WALLS},
    "dead end": {"task": "DeadEnd-v0", **_FEW},
    _TWO_WAYS: {"task": "HalfCheetah-FwdBwd-v0", **_RECOMMENDED, "population": 3},
    _CUT: {"task": "HalfCheetah-FwdBwd-v0", "task_options": {"horizon": 400}, **_RECOMMENDED, "population": 3},
}
# One solution is best here, so that looking for others could only cost something.
_WITHOUT_MODES = {task: {"task": task, **_FEW} for task in ("Swimmer-v5", "HalfCheetah-v5", "Walker2d-v5")}
_MODES: Mapping[str, Mapping[str, Any]] = {**_TASKS_WITH_MODES, **_WITHOUT_MODES}
_NICHES: dict[str, Variant] = {"niche-es": (NicheES, {})}
FOUND = {
    **dict.fromkeys(("landmarks 4", "landmarks 8"), 30.0),
    **dict.fromkeys(("four rooms", "forked maze", "eight rooms"), 70.0),
    _TWO_WAYS: 1000.0,
    _CUT: 400.0,
}
"""The return above which a mode is found, by setting. Going straight to a landmark and staying there pays 39 to 44, and
to a goal of a maze 82 to 89."""
_TINY_POPULATION: dict[str, Any] = {"population": 2, "sensings": 2, "num_states": 3}
# Seeds below 500 served to develop niche-ES; with them landmarks, walls and the two-mode HalfCheetah. Mazes did not.
MODES = Experiment(
    figure="",
    claim="Not in the paper: how many of a task's modes a population finds, whether it passes deceptive obstacles, and"
    " whether it loses anything where one solution is best, with the same steps and the same rollouts.",
    settings=_MODES,
    variants={"es": (ES, {}), "nsr-es": (NSRES, {}), "dvd-es": (DvDES, {}), **_NICHES},
    scales={
        "smoke": Scale("0..1", {"landmarks 4": 2}, _TINY_POPULATION),
        "small": Scale("500..504", dict.fromkeys(_WITHOUT_MODES, 60), {"task_options": {"horizon": 400}}),
        "medium": Scale("500..504", {_TWO_WAYS: 200, "Swimmer-v5": 100, "HalfCheetah-v5": 200, "Walker2d-v5": 100}),
        "paper": Scale(
            "500..519",
            {
                **dict.fromkeys(_TASKS_WITH_MODES, 200),
                **dict.fromkeys((_TWO_WAYS, *_WITHOUT_MODES), 100),
                _CUT: 80,
            },
        ),
    },
    subject="niche-es",
    measures={
        **modes_found(FOUND),
        **passes("past_the_wall", {**dict.fromkeys(_WALLS, PAST_THE_WALL), "dead end": -700.0}),
        **passes("solved", {**dict.fromkeys(_WALLS, POINT_SOLVED), "dead end": -600.0}),
        **EVALUATED,
    },
)

MODES_ALONE = Experiment(
    figure="",
    claim="Not in the paper: how well one agent does that is trained for one mode of the two-mode HalfCheetah alone,"
    " with the rollouts of the whole population.",
    # Three times the sensings stand for the three members.
    settings={
        name: {
            **_RECOMMENDED,
            "task": "HalfCheetah-v5",
            "task_options": {"forward_reward_weight": sign},
            "sensings": 60,
        }
        for name, sign in (("forward", 1.0), ("backward", -1.0))
    },
    variants={"es": (ES, {"population": 1})},
    scales={
        "smoke": Scale("0..1", {"forward": 1}, {"sensings": 2, "task_options": {"horizon": 20}}),
        "medium": Scale("500..503", {"forward": 200, "backward": 200}),
        "paper": Scale("500..503", {"forward": 100, "backward": 100}),
    },
    subject="es",
    measures=EVALUATED,
)

MODES_PARTS = Experiment(
    figure="",
    claim="Not in the paper: what each part of niche-ES is for.",
    settings={name: _TASKS_WITH_MODES[name] for name in ("landmarks 4", "four rooms", "half width 4", _TWO_WAYS, _CUT)},
    variants={
        **_NICHES,
        "without relevance": (NicheES, {"without": ("relevance",)}),
        "without renewal": (NicheES, {"without": ("renewal",)}),
        "without order": (NicheES, {"without": ("order",)}),
        "actions instead of visits": (NicheES, {"behaviour": "actions"}),
    },
    scales={
        "smoke": MODES.scales["smoke"],
        "paper": Scale(
            "500..519", {"landmarks 4": 200, "four rooms": 200, "half width 4": 200, _TWO_WAYS: 100, _CUT: 80}
        ),
    },
    subject="niche-es",
    measures=MODES.measures,
)

MODES_AUTO = Experiment(
    figure="",
    claim="Not in the paper, which asks to learn the size of the population: how many members `--population auto` ends"
    " with.",
    settings={name: _TASKS_WITH_MODES[name] for name in ("landmarks 4", "landmarks 8", _TWO_WAYS, _CUT)},
    variants={"niche-es auto": (NicheES, {"population": "auto"})},
    scales={
        "smoke": Scale("0..1", {"landmarks 4": 2}, {"sensings": 2, "num_states": 3}),
        "paper": Scale("500..519", {"landmarks 4": 200, "landmarks 8": 200, _TWO_WAYS: 100, _CUT: 80}),
    },
    subject="niche-es auto",
    measures={**MEMBERS, **modes_found(FOUND)},
)
