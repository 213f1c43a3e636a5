"""The measures of a study: what is measured in each run, summarised over seeds, and compared between variants.

A measure is a function of a finished run: of its metrics lines, or of its evaluated members. It gives one number per
run. The numbers are kept with the results, so that tables can be made after the runs were deleted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int

from dvdrl.runs.directory import Run
from dvdrl.runs.evaluation import evaluate
from dvdrl.studies import statistics

Row = Mapping[str, Any]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Outcome:
    """A finished run, as measures see it."""

    setting: str
    run: Run
    x: Int[np.ndarray, "t"]
    """Rollouts for gradients, or with TD3 environment steps, at each line."""
    lines: Sequence[Row]
    """Lines of its metrics, one for each point of its curve."""
    episodes: int
    """Episodes of each member in its evaluation."""
    _found: dict[Callable[["Outcome"], Any], Any] = field(default_factory=dict, compare=False)

    @cached_property
    def best(self) -> Float[np.ndarray, "t"]:
        """Return of the best member at each line."""
        return np.asarray([line["best_return"] for line in self.lines], float)

    def once(self, function: Callable[["Outcome"], Found]) -> Found:
        """What a function finds of this run. It is called when a measure first asks for it."""
        if function not in self._found:
            self._found[function] = function(self)
        found: Found = self._found[function]
        return found

    @cached_property
    def evaluated(self) -> dict[str, Any]:
        """The members' results of `dvdrl.runs.evaluation.evaluate`. It runs when a measure first asks for it."""
        return evaluate(self.run.directory, self.episodes)


@dataclass(frozen=True)
class Summary:
    """One way to summarise the numbers of several runs. Runs without a number have been left out."""

    columns: Callable[[str, Sequence[float]], dict[str, Any]]
    """The measure's name and its numbers in one cell -> columns of summary.csv."""
    compare: Callable[[str, Sequence[float], Sequence[float]], dict[str, Any]] | None = None
    """The measure's name and its numbers in two cells -> columns of comparisons.csv."""
    title: str = ""
    """The title of its one column in tables for readers; {} stands for the measure's name. If empty, these tables do
    not have it."""
    key: str = "{}"
    """The column of summary.csv that must have a value, or else the text is empty."""
    show: Callable[[str, Row], str] = lambda name, row: str(row[name])
    """The measure's name and a row of summary.csv -> the text for readers."""


@dataclass(frozen=True)
class Measure:
    """A number of each run, its summaries, and its part in figures."""

    of: Callable[[Outcome], float | None]
    """The number of a run; None if it has none, for instance in a setting where the measure has no meaning."""
    summaries: tuple[Summary, ...]
    curve: Callable[[Row], float] | None = None
    """A metrics line -> its value there. Figures then show it in a panel of its own, instead of the best return."""
    marks: Mapping[str, float] = field(default_factory=dict)
    """Setting -> height of a horizontal line in figures: in the measure's own panel, or else in that of the best
    return."""


def rounded(value: float) -> float:
    """A number as in tables and kept files. Rounding here makes tables from runs equal tables from files."""
    return round(float(value), 3)


def number(value: Any) -> float:
    """The same, but an integer stays an integer, and True becomes 1."""
    value = np.asarray(value).item()
    return int(value) if isinstance(value, int) else rounded(value)


def estimate(name: str, found: statistics.Estimate) -> dict[str, float]:
    """Three columns: a value and its interval."""
    return {name: rounded(found.value), f"{name}_low": rounded(found.low), f"{name}_high": rounded(found.high)}


def _compare_returns(name: str, first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    found = statistics.compare(first, second)
    tests = {f"{name}_welch_t": rounded(found.t), f"{name}_welch_p": rounded(found.p)}
    return estimate(f"{name}_improvement", found.improvement) | tests


def _show_interval(name: str, row: Row) -> str:
    value, low, high = (float(row[f"{name}{suffix}"]) for suffix in ("", "_low", "_high"))
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    interval = f" [{low:.{digits}f}, {high:.{digits}f}]" if low == low else ""  # one run alone has none
    return f"{value:.{digits}f}{interval}"


def _count(name: str, values: Sequence[float]) -> dict[str, Any]:
    count = sum(map(bool, values))
    return {name: count} | estimate(f"{name}_share", statistics.share(count, len(values)))


def _compare_shares(name: str, first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    p = statistics.compare_shares(*([bool(value) for value in values] for values in (first, second)))
    return {f"{name}_fisher_p": rounded(p)}


MEDIAN = Summary(
    columns=lambda name, values: estimate(name, statistics.median(values)),
    compare=_compare_returns,
    title="median {}",
    show=_show_interval,
)
"""The median with its interval. The probability of improvement and Welch's test compare variants."""

INTERQUARTILE_MEAN = Summary(
    columns=lambda name, values: estimate(f"{name}_iqm", statistics.interquartile_mean(values)),
)
"""The mean of the middle half with its interval; only CSV files have it."""

SHARE = Summary(columns=_count, compare=_compare_shares, title="{}")
"""The number of runs where it is true, and their share with Wilson's interval. Fisher's test compares variants."""

MEAN = Summary(
    columns=lambda name, values: {f"{name}_mean": rounded(float(np.mean(values)))},
    title="mean {}",
    key="{}_mean",
    show=lambda name, row: f"{float(row[f'{name}_mean']):.2f}",
)
"""The mean. It is for small counts, where a median tells little."""

ONLY_MEAN = Summary(columns=MEAN.columns)
"""The mean, only in CSV files."""

MEAN_RETURN = Summary(
    columns=lambda name, values: estimate(name, statistics.mean(values)),
    compare=lambda name, first, second: estimate(f"{name}_ratio", statistics.ratio(first, second)),
    title="mean {}",
    show=_show_interval,
)
"""The mean with its interval. The ratio of the means compares variants."""

FIRST_AND_LAST = Summary(
    columns=lambda name, values: {f"{name}_first": min(values), f"{name}_last": max(values)},
    title="{}",
    key="{}_first",
    show=lambda name, row: f"{row[f'{name}_first']} to {row[f'{name}_last']}",
)
"""The least and the greatest value. It is for times of an event, in the runs where it happened."""

STANDARD = {
    "best": Measure(lambda outcome: outcome.best.max(), (MEDIAN, INTERQUARTILE_MEAN)),
    "final": Measure(lambda outcome: outcome.best[-1], (MEDIAN,)),
}
"""The measures of every study: the highest and the last return of the best member."""


def passes(name: str, levels: Mapping[str, float]) -> dict[str, Measure]:
    """Whether the best return passed a level, and after how many rollouts or steps it first did.

    `levels` has the level of each setting. Other settings do not have these measures.
    """

    def passed(outcome: Outcome) -> bool | None:
        level = levels.get(outcome.setting)
        return None if level is None else bool(outcome.best.max() > level)

    def after(outcome: Outcome) -> int | None:
        return int(outcome.x[np.argmax(outcome.best > levels[outcome.setting])]) if passed(outcome) else None

    return {name: Measure(passed, (SHARE,), marks=levels), f"{name}_after": Measure(after, (FIRST_AND_LAST,))}


def modes_found(levels: Mapping[str, float]) -> dict[str, Measure]:
    """How many of a task's modes the trained population has, whether it has all of them, and how good the worst one is.

    A mode is found if, after training, some member's return in it alone is above the setting's level in `levels`.
    Settings without a level do not have these measures.
    """

    def returns(outcome: Outcome) -> list[float] | None:
        if outcome.setting not in levels:
            return None
        return [max(members) for members in outcome.evaluated["mode_returns"].values()]

    def found(outcome: Outcome) -> int | None:
        of_modes = returns(outcome)
        return None if of_modes is None else sum(each > levels[outcome.setting] for each in of_modes)

    def all_found(outcome: Outcome) -> bool | None:
        of_modes = returns(outcome)
        return None if of_modes is None else found(outcome) == len(of_modes)

    def worst(outcome: Outcome) -> float | None:
        of_modes = returns(outcome)
        return None if of_modes is None else min(of_modes)

    return {
        "modes_found": Measure(found, (MEAN,)),
        "all_modes": Measure(all_found, (SHARE,)),
        "worst_mode": Measure(worst, (MEDIAN,)),
    }


def returns_in_modes(modes: Sequence[str]) -> dict[str, Measure]:
    """The best member's return in each mode after training."""

    def of(mode: str) -> Measure:
        return Measure(lambda outcome: max(outcome.evaluated["mode_returns"][mode]), (MEDIAN,))

    return {mode: of(mode) for mode in modes}


MEMBERS = {"members": Measure(lambda outcome: len(outcome.run.population), (MEDIAN,))}
"""How many members the run ends with."""
EVALUATED = {"evaluated": Measure(lambda outcome: outcome.evaluated["best_return"], (MEDIAN,))}
"""The return of the best member after training, from new starts."""


def solves(levels: Mapping[str, float]) -> dict[str, Measure]:
    """Whether the best member solves its task, and how many of the members do.

    A member solves it if, after training, its mean return from new starts is at least the setting's level in `levels`.
    """

    def members(outcome: Outcome) -> int:
        return sum(each >= levels[outcome.setting] for each in outcome.evaluated["member_returns"])

    return {
        "solved": Measure(lambda outcome: members(outcome) > 0, (SHARE,), marks=levels),
        "members_that_solve": Measure(members, (MEAN,)),
    }


def both_ways(levels: Mapping[str, float]) -> dict[str, Measure]:
    """Whether both modes, forward and backward, are learned, or only one; and measures that help to explain it.

    These are the best member's return in each mode after training, the number of members that run each way in the last
    iteration, and the log determinant there. A mode is learned if its return is above the setting's level in `levels`.
    """

    def modes_learned(outcome: Outcome) -> int:
        returns = outcome.evaluated["mode_returns"]
        return sum(max(returns[mode]) > levels[outcome.setting] for mode in ("forward", "backward"))

    def evaluated(mode: str) -> Measure:
        return Measure(
            lambda outcome: max(outcome.evaluated["mode_returns"][mode]),
            (MEDIAN,),
            curve=lambda line: max(line[f"mode_{mode}"]),
            marks=levels,
        )

    def runners(mode: str, other: str) -> Measure:
        def count(outcome: Outcome) -> int:
            last = outcome.lines[-1]
            ways = zip(last[f"mode_{mode}"], last[f"mode_{other}"], strict=True)
            return sum(there > max(back, 0) for there, back in ways)

        return Measure(count, (MEAN,))

    return {
        "both_modes": Measure(lambda outcome: modes_learned(outcome) == 2, (SHARE,)),
        "one_mode": Measure(lambda outcome: modes_learned(outcome) == 1, (SHARE,)),
        "forward": evaluated("forward"),
        "backward": evaluated("backward"),
        "forward_runners": runners("forward", "backward"),
        "backward_runners": runners("backward", "forward"),
        "log_det": Measure(lambda outcome: outcome.lines[-1]["log_det"], (MEDIAN,)),
    }
