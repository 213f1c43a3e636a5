"""The losses of TD3 (Fujimoto et al. 2018) and of the members of DvD-TD3 (section 4.4 of the paper).

These are plain functions; every input is an argument. Members share one twin critic, so critics have no axis of members
here. Only `mean_values` and `population_loss` see all members: their actions on the same states make one Gram matrix.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dvdrl.off_policy.diversity import Diversity
from dvdrl.policies import MLP, Layers

Scalar = Float[Array, ""]


def smoothed(action: Float[Array, "n act"], noise: Float[Array, "n act"]) -> Float[Array, "n act"]:
    """Target policy smoothing: clip(a + noise, -1, 1), where the noise is already clipped (TD3, equation 14)."""
    return jnp.clip(action + noise, -1.0, 1.0)


def values(critic: MLP, layers: Layers, obs: Float[Array, "n obs"], action: Float[Array, "n act"]) -> Float[Array, "n"]:
    """Q(s, a) of one critic."""
    q: Float[Array, n] = critic.apply_layers(layers, jnp.concatenate([obs, action], axis=-1))[..., 0]
    return q


def bootstrapped(
    reward: Float[Array, "n"],
    terminated: Float[Array, "n"],
    discount: float,
    next_values: Float[Array, "2 n"],
) -> Float[Array, "n"]:
    """Clipped double Q-learning: y = r + discount min(Q'_1, Q'_2), without the second term where the task itself ended.

    A time limit is no such end: the value of the next state then still counts.
    """
    return reward + discount * (1.0 - terminated) * jnp.min(next_values, axis=0)


def critic_loss(
    critic: MLP,
    layers: Layers,
    obs: Float[Array, "n obs"],
    action: Float[Array, "n act"],
    target: Float[Array, "n"],
) -> tuple[Scalar, Float[Array, "n"]]:
    """One critic's mean squared difference from the target, and its values."""
    q = values(critic, layers, obs, action)
    return jnp.mean(jnp.square(q - target)), q


def mean_values(
    critic: MLP, layers: Layers, obs: Float[Array, "n obs"], actions: Float[Array, "M n act"]
) -> Float[Array, "M"]:
    """Mean of Q(s, a) over the states, for each member's actions.

    The states' part of the first layer is the same for all members, so it is computed once.
    """
    num_observed = obs.shape[-1]
    weights, bias = layers[0]
    assert bias is not None
    of_states = obs @ weights[:num_observed] + bias[None]
    q = jax.vmap(critic.finish, in_axes=(None, 0))(layers, of_states[None] + actions @ weights[num_observed:])
    return jnp.mean(q[..., 0], axis=-1)


def population_loss(
    returns: Float[Array, "M"],
    embedded: Float[Array, "M s act"],
    lambda_: Float[Array, "M"],
    diversity: Diversity,
) -> Scalar:
    """The loss of all members together, with one lambda per member.

    With log det K as the diversity, this is the negative of equation "dvd", to which the paper's section on TD3 refers,
    with two changes. The weights are 1 - lambda and lambda, as in the paper's updates of ES, instead of 1 and lambda.
    The diversity is log det instead of det.

    Its gradient with respect to member m's parameters is minus the gradient of (1 - lambda_m) J_m + lambda_m diversity.

    Args:
        returns: J_m, the mean value of each member's actions.
        embedded: the members' actions on the states where they are compared.
        lambda_: the weight of diversity for each member.
        diversity: scores those actions, given as one row per member.
    """
    # The value equals the actions; only the share lambda_m of the gradient passes.
    fixed = jax.lax.stop_gradient(embedded)
    weighted = fixed + lambda_[:, None, None] * (embedded - fixed)
    return -jnp.sum((1.0 - lambda_) * returns) - diversity(weighted.reshape(weighted.shape[0], -1))
