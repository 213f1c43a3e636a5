"""What is learned about the coordinates of behaviours: units, relevance, and coordinates that say nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl.diversity import behaviours as b

ALL = jnp.ones(2, bool)
learn = jax.jit(b.learn)


def perturbed(*coordinates: np.ndarray) -> jnp.ndarray:
    """Two members' behaviours, alike, (2, n, D)."""
    return jnp.asarray(np.broadcast_to(np.stack(coordinates, axis=-1), (2, len(coordinates[0]), len(coordinates))))


def noise(seed: int, n: int = 400) -> np.ndarray:
    """Mean 0 and deviation 1, exactly."""
    x = np.random.default_rng(seed).normal(size=n)
    return ((x - x.mean()) / x.std()).astype(np.float32)


def test_the_unit_is_the_deviation_over_a_members_own_perturbations():
    # Deviations 2 and 4 of the two members: the median is 3. Members are at the same place: nothing lies between them.
    behaviours = jnp.stack([2 * noise(0), 4 * noise(1)])[..., None]
    np.testing.assert_allclose(learn(b.unknown(1), behaviours, behaviours[..., 0], ALL).noise, [3.0], rtol=1e-5)


def test_a_tenth_of_what_ever_lay_between_members_is_the_least_unit():
    # At -50 and 50 the deviation between them is 50, a tenth of it 5; their own noise is 1.
    behaviours = jnp.stack([noise(0) - 50, noise(1) + 50])[..., None]
    known = learn(b.unknown(1), behaviours, behaviours[..., 0], ALL)
    np.testing.assert_allclose(known.noise, [1.0], rtol=1e-5)
    np.testing.assert_allclose(known.spread, [50.0], rtol=1e-5)
    np.testing.assert_allclose(b.weighting(known, relevant=False), [1 / 5], rtol=1e-5)
    # They come together: the unit stays. Their noise grows to more than that: it is the unit.
    together = learn(known, 0.1 * jnp.stack([noise(0), noise(1)])[..., None], behaviours[..., 0], ALL)
    np.testing.assert_allclose(b.weighting(together, relevant=False), [1 / 5], rtol=1e-5)
    noisy = together._replace(noise=jnp.array([8.0]))
    np.testing.assert_allclose(b.weighting(noisy, relevant=False), [1 / 8], rtol=1e-5)


def test_only_settled_members_set_the_unit():
    behaviours = jnp.stack([2 * noise(0), 400 * noise(1)])[..., None]
    known = learn(b.unknown(1), behaviours, behaviours[..., 0], jnp.array([True, False]))
    np.testing.assert_allclose(known.noise, [2.0], rtol=1e-5)
    later = learn(known, 9 * behaviours, behaviours[..., 0], jnp.array([False, False]))
    np.testing.assert_allclose(later.noise, [2.0], rtol=1e-5)  # none has settled: as it was


def test_what_the_return_depends_on_is_relevant():
    returns = noise(0)
    behaviours = perturbed(-3 * returns, noise(1), 0.1 * returns + 100)
    relevance = learn(b.unknown(3), behaviours, jnp.stack([returns, returns]), ALL).relevance
    # Squared correlations 1, about 1 / 400, and 1, whatever the sign and the scale; less 2 / 400 and at least 0.
    np.testing.assert_allclose(relevance, [0.5, 0.0, 0.5], atol=0.02)
    assert float(jnp.sum(relevance)) == pytest.approx(1.0)


def test_half_of_the_variance_explained_counts_half():
    x, y = noise(0), noise(1)
    y = y - x * np.mean(x * y)  # uncorrelated, to the digit
    y = y / y.std()
    behaviours = perturbed(x, y)
    returns = jnp.broadcast_to(2 * x + y, (2, 400))
    # Squared correlations 4/5 and 1/5, each less 2/400 = 0.005: 0.795 and 0.195 of 0.99.
    np.testing.assert_allclose(learn(b.unknown(2), behaviours, returns, ALL).relevance, [0.803, 0.197], atol=1e-3)


def test_recent_iterations_count_a_fifth():
    x = jnp.stack([noise(0), noise(1)])[..., None]
    known = learn(b.unknown(1), x, x[..., 0], ALL)  # the first counts whole, the second half, ..
    for _ in range(4):
        known = learn(known, x, x[..., 0], ALL)
    np.testing.assert_allclose(known.noise, [1.0], rtol=1e-5)
    np.testing.assert_allclose(learn(known, 2 * x, x[..., 0], ALL).noise, [1.2], rtol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 1.0, 12345.678])
def test_a_coordinate_that_never_varies_says_nothing(offset):
    constant = np.full(400, offset, np.float32)
    known = learn(b.unknown(2), perturbed(constant, noise(0)), jnp.stack([noise(0), noise(0)]), ALL)
    np.testing.assert_allclose(known.noise, [0, 1], atol=1e-5)
    np.testing.assert_allclose(known.relevance, [0, 1], atol=1e-6)
    for relevant in (True, False):
        np.testing.assert_allclose(b.weighting(known, relevant=relevant), [0, 1], rtol=1e-5)


def test_returns_that_are_all_alike_make_all_that_varies_equally_relevant():
    known = learn(b.unknown(3), perturbed(noise(0), noise(1), 0 * noise(2)), jnp.full((2, 400), 7.0), ALL)
    np.testing.assert_allclose(known.relevance, [0.5, 0.5, 0.0])


def test_nothing_that_varies_leaves_distances_zero():
    known = learn(b.unknown(2), jnp.ones((2, 3, 2)), jnp.ones((2, 3)), ALL)
    for relevant in (True, False):
        factors = b.weighting(known, relevant=relevant)
        assert float(b.squared_distances(jnp.ones((1, 2)), jnp.zeros((1, 2)), factors)[0, 0]) == 0.0


def test_distances_are_in_units_of_noise_and_weighted():
    known = b.Coordinates(jnp.array([2.0, 5.0, 0.0]), jnp.zeros(3), jnp.array([0.75, 0.25, 0.0]), jnp.array(3))
    x, y = jnp.array([[4.0, 0.0, 9.0]]), jnp.array([[0.0, 5.0, 0.0], [4.0, 0.0, 1.0]])
    # Differences of 2 and 1 units: 0.75 * 4 + 0.25 * 1, and with equal weights (4 + 1) / 2.
    # The last coordinate never varied, so the second of y is where x is.
    np.testing.assert_allclose(b.squared_distances(x, y, b.weighting(known, relevant=True)), [[3.25, 0]])
    np.testing.assert_allclose(b.squared_distances(x, y, b.weighting(known, relevant=False)), [[2.5, 0]], rtol=1e-6)


def test_visits_are_checked():
    np.testing.assert_array_equal(b.visits(np.ones((2, 3))), np.ones((2, 3)))
    with pytest.raises(ValueError, match="mean: expected finite numbers, got nan"):
        b.visits([[np.nan]])
    with pytest.raises(ValueError, match="num_coordinates: expected at least 1, got 0"):
        b.unknown(0)


def test_where_no_perturbation_changes_anything_relevance_stays_as_it_was() -> None:
    # As among policies that choose, each sure of what it does: the coordinates must not lose their weight.
    returns = noise(0)
    behaviours = perturbed(-3 * returns, noise(1))
    known = learn(b.unknown(2), behaviours, jnp.stack([returns, returns]), ALL)
    for _ in range(30):
        known = learn(known, jnp.full_like(behaviours, 2.0), jnp.full((2, len(returns)), 5.0), ALL)
    np.testing.assert_allclose(known.relevance, [1.0, 0.0], atol=0.02)
    np.testing.assert_allclose(
        known.noise, [0.0, 0.0], atol=0.01
    )  # of which the deviation between members takes the place
