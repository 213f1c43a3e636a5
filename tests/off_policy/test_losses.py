import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dvdrl.diversity import KERNELS
from dvdrl.off_policy import log_determinants, losses, make_critic
from td3_reference import log_det_slope


def test_the_future_counts_at_the_smaller_value_and_not_after_an_end() -> None:
    # 1 + 0.9 * min(2, 5) = 2.8; 1 + 0.9 * min(-1, -4) = -2.6; ended: 1.
    target = losses.bootstrapped(
        jnp.ones(3), jnp.asarray([0.0, 0.0, 1.0]), 0.9, jnp.asarray([[2.0, -1.0, 7.0], [5.0, -4.0, 7.0]])
    )
    np.testing.assert_allclose(target, [2.8, -2.6, 1.0], rtol=1e-6)


def test_smoothed_actions_stay_in_their_range() -> None:
    smoothed = losses.smoothed(jnp.asarray([[0.9, -0.2]]), jnp.asarray([[0.5, 0.1]]))
    np.testing.assert_allclose(smoothed, [[1.0, -0.1]], rtol=1e-6)


def test_values_of_all_members_are_those_of_each() -> None:
    # The first layer is shared over members; each value is still that of the whole network.
    critic = make_critic(3, 2, (8, 8))
    layers = critic.unravel(critic.init_uniform(jax.random.key(0)))
    obs = jax.random.normal(jax.random.key(1), (7, 3))
    actions = jax.random.uniform(jax.random.key(2), (4, 7, 2))
    means = jax.jit(losses.mean_values, static_argnums=0)(critic, layers, obs, actions)
    values = jax.jit(losses.values, static_argnums=0)
    expected = [np.mean(values(critic, layers, obs, each)) for each in np.asarray(actions)]
    np.testing.assert_allclose(means, expected, rtol=1e-5, atol=1e-7)


@jax.jit
def slope_of_diversity(actions: jax.Array) -> jax.Array:
    diversity = log_determinants(KERNELS["squared-exponential"](0.5), "none", 0.01)
    return jax.grad(lambda x: diversity(x.reshape(len(x), -1)))(actions)


@given(
    population=st.sampled_from([2, 6]), spread=st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 1.0]), seed=st.integers(0, 999)
)
def test_the_gradient_of_diversity_is_bounded(population: int, spread: float, seed: int) -> None:
    # |d log det / dx_m| <= 2 (M - 1) max|K^-1| max(k(d) d) sqrt(D) / (D l^2), with |K^-1| <= 1 / shrinkage and
    # k(d) d <= l exp(-1/2) at d = l.
    M, n, act, length_scale, shrinkage = population, 5, 2, 0.5, 0.01
    rng = np.random.default_rng(seed)
    actions = np.tanh(rng.normal(size=(1, n, act)) + spread * rng.normal(size=(M, n, act)))
    slope = np.asarray(slope_of_diversity(jnp.asarray(actions, jnp.float32)))
    bound = 2 * (M - 1) / shrinkage * np.exp(-0.5) / (length_scale * (n * act) ** 0.5)
    assert np.linalg.norm(slope.reshape(M, -1), axis=1).max() <= bound
    # At 1e-6 the difference of two embeddings in single precision is their rounding.
    if spread != 1e-6:
        expected = log_det_slope(actions, length_scale, shrinkage)
        np.testing.assert_allclose(slope, expected, atol=2e-3 * max(1.0, np.abs(expected).max()))


def test_lambda_weighs_each_members_gradient() -> None:
    M, n = 3, 4
    actions = jax.random.uniform(jax.random.key(0), (M, n, 2), minval=-1.0)
    lambda_ = jnp.asarray([0.0, 0.5, 1.0])
    diversity = log_determinants(KERNELS["squared-exponential"](0.5))

    def loss(actions: jax.Array) -> jax.Array:
        return losses.population_loss(jnp.sum(jnp.sin(actions), axis=(1, 2)), actions, lambda_, diversity)

    of_returns = np.cos(actions)
    of_diversity = np.asarray(jax.jit(jax.grad(lambda x: diversity(x.reshape(M, -1))))(actions))
    weight = np.asarray(lambda_)[:, None, None]
    expected = -(1 - weight) * of_returns - weight * of_diversity
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(actions), expected, rtol=1e-5, atol=1e-6)
