"""The choice of the best arm: on arms whose best is known, and by the numbers of a belief that was computed by hand."""

import numpy as np
import pytest

from dvdrl import arms
from dvdrl.benchmarks import adapt


def tried(returns, *trials, deviations=0.0):
    state = arms.init(returns, np.full(len(returns), deviations))
    for arm, returned in trials:
        state = arms.update(state, arm, returned)
    return state


def test_a_belief_by_hand():
    # Arm 0 is known for 100, arm 1 for 80, each with a deviation of 10, so the noise is 10 until trials say more.
    # Arm 0 returned 30 and 50: mean 40, squares 200; the noise is (10^2 + 200) / (1 + 1) = 150.
    # Damage is expected to change an arm by 2 % of 100. It has changed arm 0 by 60, of which noise explains 150 / 2, so
    # its variance is (2^2 + 3600 - 75) / (1 + 1) = 1764.5.
    state = tried([100.0, 80.0], (0, 30.0), (0, 50.0), deviations=10.0)
    assert (state.counts.tolist(), state.means.tolist(), state.squares) == ([2, 0], [40.0, 0.0], 200.0)
    means, variances = arms.belief(state)
    precision = 1 / 1764.5 + 2 / 150
    np.testing.assert_allclose(means, [(100 / 1764.5 + 2 * 40 / 150) / precision, 80.0])
    np.testing.assert_allclose(variances, [1 / precision, 1764.5])


def test_trials_that_agree_with_what_is_known_let_it_stand():
    state = tried([1000.0, 900.0, 500.0], deviations=5.0)
    assert arms.select(state, 6) == 0  # the best one first
    state = arms.update(state, 0, 998.0)
    assert arms.select(state, 6) is None
    assert arms.chosen(state) == 0


def test_a_surprise_opens_everything():
    # The best arm has lost nearly all. The next best one is tried, and so on. The one that is left is chosen.
    state, order = tried([1000.0, 900.0, 800.0, 700.0], deviations=5.0), []
    while (arm := arms.select(state, 8)) is not None:
        order.append(arm)
        state = arms.update(state, arm, 600.0 if arm == 3 else 50.0)
    assert order == [0, 1, 2, 3]
    assert arms.chosen(state) == 3


def test_there_are_never_more_trials_than_allowed_and_none_without_a_choice():
    state = tried([1.0, 1.0], (0, 5.0), (1, -5.0))
    assert arms.select(state, 2) is None
    assert arms.select(tried([3.0]), 9) is None
    assert arms.chosen(tried([3.0])) == 0


def test_negative_returns_and_returns_of_zero_are_returns():
    state = tried([-800.0, -530.0], deviations=1.0)
    assert arms.select(state, 4) == 1
    assert arms.chosen(arms.update(arms.update(state, 1, -900.0), 0, -790.0)) == 0
    nothing = tried([0.0, 0.0])
    assert arms.select(nothing, 4) == 0
    assert np.isfinite(arms.belief(arms.update(nothing, 0, 0.0)).means).all()


@pytest.mark.parametrize("size", [3, 5, 10])
@pytest.mark.parametrize("damage", adapt.DAMAGES)
def test_the_best_arm_is_found_within_5_percent_in_two_trials_for_each(size, damage):
    found = adapt.measure(adapt.ours, size, damage, problems=60, seed=1)
    assert found["share"] >= 0.95
    assert found["trials"] <= 2 * size
    # With as many trials, trying all alike is no better: 0.02 is what chance may do in 60 problems.
    assert found["share"] > adapt.measure(adapt.uniform, size, damage, problems=60, seed=1)["share"] - 0.02


def test_undamaged_the_best_arm_is_chosen():
    # In most problems exactly the one that is known to be best, in few trials; with little noise always.
    rng = np.random.default_rng(3)
    given = [adapt.problem(rng, 5, "undamaged", 0.02) for _ in range(50)]
    results = [adapt.ours(each, rng, 10) for each in given]
    returned = [each.means[arm] / each.means.max() for each, (arm, _) in zip(given, results, strict=True)]
    assert min(returned) > 0.97
    assert np.mean([trials for _, trials in results]) < 3


@pytest.mark.parametrize(("returns", "deviations"), [([], []), ([1.0, np.nan], [0.0, 0.0]), ([[1.0]], [0.0])])
def test_what_is_known_must_be_numbers(returns, deviations):
    with pytest.raises(ValueError, match="returns: expected finite numbers"):
        arms.init(returns, deviations)
