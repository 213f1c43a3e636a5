import jax
import jax.numpy as jnp
import numpy as np

from dvdrl.policies import MLP


def test_layout_has_biases_on_hidden_layers_only() -> None:
    # 3 -> 4 with bias: 16; 4 -> 5 with bias: 25; 5 -> 2 without: 10.
    assert MLP((3, 4, 5, 2)).num_params == 16 + 25 + 10


def test_unravel_takes_the_vector_in_order() -> None:
    # Every parameter is its own index, so a misplaced slice shows.
    (w1, b1), (w2, b2) = MLP((2, 3, 1)).unravel(np.arange(12.0))
    assert b1 is not None
    np.testing.assert_array_equal(w1, [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(b1, [6, 7, 8])
    np.testing.assert_array_equal(w2, [[9], [10], [11]])
    assert b2 is None


def test_apply_by_hand() -> None:
    policy = MLP((1, 1, 1))
    params = np.array([2.0, 0.5, -1.0])  # weight and bias of the hidden unit, weight of the output
    expected = np.tanh(-1.0 * np.tanh(2.0 * 0.25 + 0.5))
    np.testing.assert_allclose(policy.apply(params, np.array([[0.25]])), [[expected]], rtol=1e-12)


def test_numpy_and_jax_agree_with_own_parameters_for_each_observation() -> None:
    policy = MLP((3, 8, 2))
    params = np.asarray(jax.vmap(policy.init)(jax.random.split(jax.random.key(0), 5)))
    obs = np.random.default_rng(0).standard_normal((5, 1, 3)).astype(np.float32)
    on_host = policy.apply(params, obs)
    on_device = jax.vmap(policy.apply)(jnp.asarray(params), jnp.asarray(obs))
    np.testing.assert_allclose(on_host, on_device, rtol=1e-5, atol=1e-6)  # two ways to round a dot product of 8 terms


def test_init_has_the_authors_scales() -> None:
    policy = MLP((50, 200, 10))
    params = policy.init(jax.random.key(0))
    (w1, b1), (w2, _) = policy.unravel(params)
    assert b1 is not None
    # 10,000, 2,000 and 200 draws: deviations are within 3 / sqrt(2 n) of 1 relative, at most 15 % for the biases.
    np.testing.assert_allclose(np.std(w1) * (50 * 200) ** 0.5, 1.0, rtol=0.03)
    np.testing.assert_allclose(np.std(w2) * (200 * 10) ** 0.5, 1.0, rtol=0.06)
    np.testing.assert_allclose(np.std(b1) * 200**0.5, 1.0, rtol=0.15)
