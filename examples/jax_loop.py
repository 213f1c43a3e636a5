"""The diversity term in a plain JAX loop: five policies learn the same task, each in its own way.

An action is a step from the middle of a ring road. All points of the road pay the same. Without the term, members keep
the directions that they start with, and some directions coincide. With the term, the directions spread out.
"""

import jax
import jax.numpy as jnp
import optax

from dvdrl.diversity import KERNELS, embed, gram, log_determinant, vendi_score
from dvdrl.policies import MLP

POLICY = MLP((3, 16, 2))
KERNEL = KERNELS["squared-exponential"](length_scale=0.5)


def reward(actions: jax.Array) -> jax.Array:
    """Minus the squared distance to the road, a circle of radius 0.7."""
    return -jnp.square(jnp.linalg.norm(actions, axis=-1) - 0.7)


def loss(params: jax.Array, states: jax.Array, diversity_weight: float) -> jax.Array:
    """Minus the mean reward of all members, minus the weighted log determinant of their behaviours."""
    actions = jax.vmap(POLICY.apply, in_axes=(0, None))(params, states)
    K = gram(KERNEL, embed(POLICY.apply, params, states))
    return -jnp.mean(reward(actions)) - diversity_weight * log_determinant(K)


def main(members: int = 5, steps: int = 500, diversity_weight: float = 0.02) -> tuple[float, float]:
    """Train, and return the final mean reward and the effective number of different members."""
    key_params, key_states = jax.random.split(jax.random.key(0))
    params = jax.vmap(POLICY.init)(jax.random.split(key_params, members))
    states = jax.random.normal(key_states, (20, 3))
    optimizer = optax.adam(0.01)

    @jax.jit
    def update(params: jax.Array, state: optax.OptState) -> tuple[jax.Array, optax.OptState]:
        updates, state = optimizer.update(jax.grad(loss)(params, states, diversity_weight), state)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for _ in range(steps):
        params, state = update(params, state)
    actions = jax.vmap(POLICY.apply, in_axes=(0, None))(params, states)
    different = vendi_score(gram(KERNEL, embed(POLICY.apply, params, states)))
    return float(jnp.mean(reward(actions))), float(different)


if __name__ == "__main__":
    for weight in (0.0, 0.02):
        paid, different = main(diversity_weight=weight)
        print(f"diversity weight {weight}: mean reward {paid:.4f}, {different:.2f} of 5 members different")
