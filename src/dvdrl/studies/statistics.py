"""Statistics over a few seeds, with their uncertainty.

Intervals are percentiles of a bootstrap over seeds, like those of rliable. Returns of different tasks are never pooled,
so stratification is not needed, and scipy's vectorised bootstrap suffices. Tests compare it with rliable.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

BOOTSTRAPS = 2000


class Estimate(NamedTuple):
    """A statistic with its 95 % interval. With a single run the ends of the interval are NaN."""

    value: float
    low: float
    high: float


class Comparison(NamedTuple):
    """The comparison of two samples of returns."""

    improvement: Estimate
    """Probability that a run of the first sample returns more than a run of the second; a tie counts half."""
    t: float
    p: float
    """t and p are those of Welch's two-sided test. Both are NaN if a sample has one run or neither sample varies."""


def quartiles(values: Sequence[float]) -> Estimate:
    """The median with the first and the third quartile, as in the paper's figures."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return Estimate(float(middle), float(low), float(high))


def median(values: Sequence[float]) -> Estimate:
    """The median over seeds."""
    return _bootstrap(np.median, values)


def mean(values: Sequence[float]) -> Estimate:
    """The mean over seeds."""
    return _bootstrap(np.mean, values)


def ratio(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """The mean of the first sample as a multiple of that of the second. It means something if both are positive."""
    return _bootstrap(_ratio, first, second)


def interquartile_mean(values: Sequence[float]) -> Estimate:
    """The mean of the middle half: as robust as the median, and statistically more efficient."""
    from scipy.stats import trim_mean

    return _bootstrap(lambda x, axis: trim_mean(x, 0.25, axis=axis), values)


def compare(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Test whether the first sample is better than the second."""
    from scipy.stats import ttest_ind

    improvement = _bootstrap(_improvement, first, second)
    if min(len(first), len(second)) < 2 or np.ptp(first) == np.ptp(second) == 0:
        return Comparison(improvement, float("nan"), float("nan"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # if a sample is constant, scipy warns of a loss of precision
        test = ttest_ind(first, second, equal_var=False)
    return Comparison(improvement, float(test.statistic), float(test.pvalue))


def share(successes: int, trials: int) -> Estimate:
    """How often something happened, with Wilson's interval."""
    from scipy.stats import binomtest

    interval = binomtest(successes, trials).proportion_ci(method="wilson")
    return Estimate(successes / trials, float(interval.low), float(interval.high))


def compare_shares(first: Sequence[bool], second: Sequence[bool]) -> float:
    """The p of Fisher's two-sided exact test: whether something happened more often in one sample than in the other."""
    from scipy.stats import fisher_exact

    return float(fisher_exact([[sum(each), len(each) - sum(each)] for each in (first, second)]).pvalue)


def _improvement(first: np.ndarray, second: np.ndarray, axis: int) -> np.ndarray:
    first, second = (np.moveaxis(values, axis, -1) for values in (first, second))
    differences = np.sign(first[..., :, None] - second[..., None, :])
    return np.asarray(0.5 + 0.5 * differences.mean(axis=(-2, -1)))


def _ratio(first: np.ndarray, second: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(first.mean(axis=axis) / second.mean(axis=axis))


def _bootstrap(statistic: Callable[..., np.ndarray], *samples: Sequence[float]) -> Estimate:
    from scipy.stats import bootstrap

    value = float(statistic(*map(np.asarray, samples), axis=-1))
    if min(map(len, samples)) < 2:
        return Estimate(value, float("nan"), float("nan"))
    rng = np.random.default_rng(0)  # a fixed seed gives the same interval every time
    interval = bootstrap(
        samples, statistic, n_resamples=BOOTSTRAPS, vectorized=True, method="percentile", rng=rng
    ).confidence_interval
    return Estimate(value, float(interval.low), float(interval.high))
