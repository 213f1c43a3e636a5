"""What the objective and the pool of states are, on numbers known by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl import bandits
from dvdrl.diversity import KERNELS
from dvdrl.es import determinants, evolution_strategy
from probes import Probe

KERNEL = KERNELS["squared-exponential"](0.5**0.5)  # exp(-d^2)


def test_the_objective_log_det_is_the_logarithm_of_the_determinant() -> None:
    # Behaviours in one dimension. Two members at distance 1, then at distance 0.5: det = 1 - exp(-2 d^2).
    perturbed = jnp.asarray([[[0.0], [2.0]], [[1.0], [2.5]]])
    members = jnp.zeros((2, 1))
    det, log_det = (
        determinants(KERNEL, objective)(members, perturbed, jnp.arange(2)) for objective in ("det", "log-det")
    )
    expected = np.asarray([1 - np.exp(-2.0), 1 - np.exp(-0.5)])
    np.testing.assert_allclose(det, [expected, expected], atol=1e-4)
    np.testing.assert_allclose(log_det, np.log([expected, expected]), atol=1e-4)


@pytest.mark.parametrize(("state_pool", "num_from_long_rollouts"), [(5, 5), (1, 5), (1000, None)])
def test_states_are_chosen_from_a_pool_of_that_size(state_pool: int, num_from_long_rollouts: int | None) -> None:
    # A rollout comes into the pool with a chance in proportion to its length. Five are a million times as long as the
    # others: a pool of five is those five, and so is a pool of one, as it must hold the five states that are wanted. A
    # pool of more than all rollouts holds them all, and five of its 23 states are hardly ever those five.
    probe = Probe(lambda actions: actions[:, 0])
    algorithm = evolution_strategy(
        probe.policy,
        population=3,
        sensings=10,
        sigma=0.1,
        learning_rate=0.01,
        kernel=KERNEL,
        controller=bandits.fixed(0.0),
        num_states=5,
        state_pool=state_pool,
        members="one",
    )
    state = algorithm.init(jax.random.key(0))
    episodes = probe(algorithm.ask(state))
    n = len(episodes.returns)
    assert n == 23
    number = jnp.arange(n, dtype=jnp.float32)
    episodes = episodes._replace(
        lengths=jnp.where(number < 5, 1_000_000, 1), states=jnp.stack([number, number], axis=1)
    )
    state, _ = algorithm.tell(state, episodes)
    chosen = np.asarray(state.states)[:, 0]
    assert len(set(chosen)) == 5  # one state of a rollout at most
    if num_from_long_rollouts is None:
        assert (chosen >= 5).any()
    else:
        assert (chosen < 5).sum() == num_from_long_rollouts
