"""Embeddings put each member's actions where they belong; normalisation as the authors' code does it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl.diversity import embed, normalize


def tagged_policy(params, states):
    # Every action says who took it where: 100 * member + 10 * state + coordinate.
    member, coordinates = params["member"], jnp.arange(2.0)
    return 100 * member + 10 * states[:, :1] + coordinates[None, :]


def test_each_action_is_in_its_place():
    states = jnp.asarray([[0.0, 7.0], [1.0, 7.0], [2.0, 7.0]])
    x = embed(tagged_policy, {"member": jnp.arange(4.0)}, states)
    assert x.shape == (4, 6)
    np.testing.assert_array_equal(x[3], [300, 301, 310, 311, 320, 321])
    np.testing.assert_array_equal(x[0], [0, 1, 10, 11, 20, 21])


def test_embedding_is_differentiable_member_by_member():
    # The embedding of a member depends on its own parameters alone: the Jacobian is diagonal in members.
    states = jnp.ones((3, 2))
    jacobian = jax.jacobian(lambda p: embed(tagged_policy, {"member": p}, states))(jnp.arange(4.0))  # (4, 6, 4)
    np.testing.assert_array_equal(jacobian, np.broadcast_to(100 * np.eye(4)[:, None, :], (4, 6, 4)))


def test_normalization_none_changes_nothing():
    x = jnp.asarray([[1.0, -5.0], [3.0, 9.0]])
    np.testing.assert_array_equal(normalize(x, "none"), x)


def test_normalization_across_members_by_hand():
    # First coordinate 1, 2, 3: mean 2, deviation sqrt(2 / 3), so +-1.2247. On the second all agree: 0.
    x = jnp.asarray([[1.0, 0.3], [2.0, 0.3], [3.0, 0.3]])
    expected = [[-np.sqrt(1.5), 0], [0, 0], [np.sqrt(1.5), 0]]
    np.testing.assert_allclose(normalize(x, "across-members"), expected, atol=1e-6)


def test_normalization_across_members_clips_outliers():
    # Nine at 0 and one at 1: the one is (1 - 0.1) / 0.3 = 3 deviations away, clipped to 2.
    x = jnp.zeros((10, 1)).at[0].set(1.0)
    normalized = normalize(x, "across-members")
    np.testing.assert_allclose(normalized[:, 0], [2.0] + [-1 / 3] * 9, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e30])
def test_normalization_across_members_is_free_of_scale(scale):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 8)), jnp.float32)
    np.testing.assert_allclose(normalize(scale * x, "across-members"), normalize(x, "across-members"), atol=1e-5)


def test_one_member_is_embedded_at_the_origin_when_compared_across_members():
    np.testing.assert_array_equal(normalize(jnp.asarray([[3.0, 4.0]]), "across-members"), 0.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: embed(tagged_policy, {"member": jnp.arange(4.0)}, jnp.ones(3)),
            r"states: expected.*\(n, obs\).*\(3,\)",
        ),
        (
            lambda: embed(tagged_policy, {"member": jnp.float32(1)}, jnp.ones((3, 2))),
            "params: expected leaves with one",
        ),
        (lambda: embed(tagged_policy, {"a": jnp.ones(2), "b": jnp.ones(3)}, jnp.ones((3, 2))), "params: .*(2,).*(3,)"),
        (
            lambda: embed(lambda p, s: p, jnp.ones(4), jnp.ones((3, 2))),
            r"policy: expected actions of shape \(3, \|a\|\)",
        ),
        (
            lambda: normalize(jnp.ones((2, 2)), "batch"),
            "normalization: expected one of none, across-members; got 'batch'",
        ),
        (lambda: normalize(np.asarray([[np.nan]]), "none"), "embeddings: expected finite numbers, got nan"),
    ],
)
def test_errors_name_the_argument(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_states_that_a_traced_function_closes_over_are_known_and_checked():
    # As in most training loops: the parameters are traced, the states are not.
    states = jnp.asarray([[0.0, 7.0], [1.0, 7.0]])
    x = jax.jit(lambda member: embed(tagged_policy, {"member": member}, states))(jnp.arange(2.0))
    np.testing.assert_array_equal(x[1], [100, 101, 110, 111])
    broken = states.at[1, 0].set(jnp.inf)
    with pytest.raises(ValueError, match=r"states: expected finite numbers, got inf at index \(1, 0\)"):
        jax.jit(lambda member: embed(tagged_policy, {"member": member}, broken))(jnp.arange(2.0))
