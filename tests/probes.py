"""Probe problems with answers known on paper: an episode is one action on one fixed observation."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dvdrl.interfaces import Episodes, Rollouts
from dvdrl.policies import MLP, Bounded, Moments, Policy

OBSERVATION = (0.5, -1.0)


def policy_of(*sizes: int, low: float = -1.0, high: float = 1.0, **network: Any) -> Policy:
    """A policy with these layers, the observation and the actions included, and these bounds of each action."""
    return Policy(MLP(sizes, **network), Bounded((low,) * sizes[-1], (high,) * sizes[-1]))


class Probe:
    """Pays `reward(action)`; everything else that an episode has is filled in, so that all options can be used."""

    def __init__(self, reward: Callable[[Float[Array, "n act"]], Float[Array, "n"]], num_actions: int = 1):
        self.reward = reward
        self.policy = policy_of(len(OBSERVATION), 8, num_actions)
        self.simulation_seconds = 0.0
        self._run = jax.jit(self._episodes)

    def actions(self, rollouts: Rollouts) -> Float[Array, "n act"]:
        obs = jnp.broadcast_to(jnp.asarray(OBSERVATION), rollouts.agents.shift.shape)
        return jax.vmap(self.policy.act)(rollouts.agents, obs[:, None])[:, 0]

    def __call__(self, rollouts: Rollouts) -> Episodes:
        return self._run(rollouts)

    def _episodes(self, rollouts: Rollouts) -> Episodes:
        n = rollouts.start.shape[0]
        # As if more had been seen, around the observation: the filter then leaves it different from 0.
        near = jax.vmap(lambda data: jax.random.normal(jax.random.wrap_key_data(data), (2,)))(rollouts.key)
        moments = Moments(jnp.full(n, 2.0), jnp.zeros((n, 2)), jnp.full((n, 2), 2.0))
        return Episodes(
            self.reward(self.actions(rollouts)), jnp.full(n, 2), moments, jnp.asarray(OBSERVATION)[None] + near
        )
