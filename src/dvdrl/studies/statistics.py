"""What a few seeds say, with how much one may trust it: rliable's bootstrap intervals, scipy's tests."""

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from dvdrl.errors import DvdrlError

BOOTSTRAPS = 2000


class Estimate(NamedTuple):
    """A statistic with its 95 % interval."""

    value: float
    low: float
    high: float


class Comparison(NamedTuple):
    """Two samples of returns."""

    improvement: Estimate
    """Probability that a run of the first returns more than one of the second; a tie counts half."""
    t: float
    p: float
    """Of Welch's test, two-sided; not numbers where a sample has one run or both do not vary."""


def check_installed() -> None:
    """Say so before anything is computed if what the statistics need is not there."""
    if find_spec("rliable") is None:
        raise DvdrlError("tables need rliable: pip install 'dvdrl[studies]'")


def quartiles(values: Sequence[float]) -> Estimate:
    """The median, between the first and the third quartile: what the paper draws."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return Estimate(float(middle), float(low), float(high))


def median(values: Sequence[float]) -> Estimate:
    """The median over seeds; rliable's own is that over tasks, of means over seeds."""
    return _bootstrap(np.median, _column(values))


def interquartile_mean(values: Sequence[float]) -> Estimate:
    """The mean of the middle half: as robust as the median, and surer."""
    from rliable import metrics

    return _bootstrap(metrics.aggregate_iqm, _column(values))


def compare(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Is the first better than the second?"""
    from rliable import metrics
    from scipy.stats import ttest_ind

    improvement = _bootstrap(metrics.probability_of_improvement, _column(first), _column(second))
    if min(len(first), len(second)) < 2 or np.ptp(first) == np.ptp(second) == 0:
        return Comparison(improvement, float("nan"), float("nan"))
    test = ttest_ind(first, second, equal_var=False)
    return Comparison(improvement, float(test.statistic), float(test.pvalue))


def share(successes: int, trials: int) -> Estimate:
    """How often something happened, with Wilson's interval."""
    from scipy.stats import binomtest

    interval = binomtest(successes, trials).proportion_ci(method="wilson")
    return Estimate(successes / trials, float(interval.low), float(interval.high))


def _column(values: Sequence[float]) -> np.ndarray:
    return np.asarray(values, float)[:, None]  # rliable: runs by tasks


def _bootstrap(function: Any, *columns: np.ndarray) -> Estimate:
    from rliable import library

    scores = columns[0] if len(columns) == 1 else columns
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # rliable hands its random_state on under an old name
        points, intervals = library.get_interval_estimates(
            {"": scores},
            lambda *data: np.asarray([function(*data)]),
            reps=BOOTSTRAPS,
            random_state=np.random.RandomState(0),  # the same intervals every time
        )
    (low,), (high,) = intervals[""]
    return Estimate(float(points[""][0]), float(low), float(high))
