"""Statistics against numbers by hand and against scipy and rliable themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rliable import metrics
from scipy import stats

from dvdrl.studies import statistics

RETURNS = [1.0, 2.0, 3.0, 4.0, 10.0]


def test_median_and_interquartile_mean_by_hand():
    assert statistics.median(RETURNS).value == 3.0  # of seeds; their mean is 4
    assert statistics.interquartile_mean(RETURNS).value == 3.0  # of 2, 3, 4: a quarter of five, rounded down, is cut
    assert statistics.quartiles(RETURNS) == (3.0, 2.0, 4.0)


def test_intervals_hold_the_value_and_are_the_same_every_time():
    for estimate in (statistics.median, statistics.interquartile_mean):
        value, low, high = estimate(RETURNS)
        assert 1.0 <= low <= value <= high <= 10.0
        assert estimate(RETURNS) == (value, low, high)
    assert statistics.median([7.0]) == (7.0, 7.0, 7.0)  # one run says nothing of how runs vary


def test_the_interval_of_a_median_is_that_of_scipys_percentile_bootstrap():
    sample = np.random.default_rng(0).normal(size=50)
    reference = stats.bootstrap((sample,), np.median, method="percentile", rng=np.random.default_rng(1))
    # Two bootstraps of a median with as many samples differ by their noise, a fraction of the interval.
    interval = reference.confidence_interval
    width = interval.high - interval.low
    np.testing.assert_allclose(statistics.median(list(sample))[1:], interval, atol=0.15 * width)


def test_probability_of_improvement_by_hand():
    # Of the nine pairs, (3, 2) is a win and (2, 2), (3, 3) are ties, which count half: 2 of 9.
    compared = statistics.compare([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
    assert compared.improvement.value == pytest.approx(2 / 9)
    # Welch by hand: means differ by -1, both variances are 1: t = -1 / sqrt(1/3 + 1/3), with 4 degrees of freedom.
    assert compared.t == pytest.approx(-1 / np.sqrt(2 / 3))
    assert compared.p == pytest.approx(2 * stats.t.cdf(-1 / np.sqrt(2 / 3), df=4))


@settings(max_examples=10, deadline=None)
@given(
    first=st.lists(st.floats(-100, 100), min_size=2, max_size=6),
    second=st.lists(st.floats(-100, 100), min_size=2, max_size=6),
)
def test_comparisons_agree_with_rliable_and_scipy(first, second):
    statistics_of = statistics.compare(first, second)
    column = [np.asarray(values)[:, None] for values in (first, second)]
    assert statistics_of.improvement.value == pytest.approx(metrics.probability_of_improvement(*column))
    assert 0 <= statistics_of.improvement.low <= statistics_of.improvement.high <= 1
    if np.ptp(first) or np.ptp(second):
        expected = stats.ttest_ind(first, second, equal_var=False)
        assert (statistics_of.t, statistics_of.p) == (float(expected.statistic), float(expected.pvalue))


def test_what_cannot_be_tested_is_no_number():
    assert np.isnan(statistics.compare([1.0], [2.0, 3.0]).p)
    assert np.isnan(statistics.compare([1.0, 1.0], [2.0, 2.0]).t)


def test_wilson_by_hand():
    # n = 4, p = 3/4, z = 1.96: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n).
    n, p, z = 4, 0.75, 1.959964
    middle, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    expected = [p, (middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)]
    np.testing.assert_allclose(statistics.share(3, 4), expected, rtol=1e-6)
