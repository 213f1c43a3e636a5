"""niche-ES: members occupy different niches, and worse copies begin anew. `dvdrl.niches` decides who and when.

Here is what a member begins anew with, what a run ends with, and what is known about that.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from dvdrl import niches
from dvdrl.diversity.behaviours import units
from dvdrl.policies import Agents, Moments, Policy
from dvdrl.policies import filter as observation_filter

FILTER_WEIGHT = 1000
"""Observations that a newborn's filter counts for: enough to begin with, few enough to be outweighed by its own."""


def newborns(
    key: PRNGKeyArray, policy: Policy, optimizer: optax.GradientTransformation, moments: Moments
) -> tuple[Float[Array, "M d"], optax.OptState, Moments]:
    """(parameters, optimizer state, filter) with which each of M members would begin anew.

    Its filter is that of the whole population, (M, ...): where members have been, newborns are likely to go.
    """
    M = moments.num.shape[0]
    params = jax.vmap(policy.init)(jax.random.split(key, M))
    pooled = observation_filter.lightened(observation_filter.pool(moments, axis=0), FILTER_WEIGHT)
    each = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (M, *leaf.shape)), pooled)
    return params, jax.vmap(optimizer.init)(params), each


class Known(NamedTuple):
    """What is known about elites, in their order, and about the coordinates of their behaviours."""

    agents: Agents
    quality: Float[Array, "e"]
    """Minus infinity where nothing is kept."""
    behaviours: Float[Array, "e D"]
    distinct: Bool[Array, "e"]
    shares: Float[Array, "e"]
    relevance: Float[Array, "D"]
    units: Float[Array, "D"]


@functools.partial(jax.jit, static_argnums=0)
def known(controller: niches.Niches, state: niches.State) -> Known:
    """What a run ends with: the first M of these, or all that are distinct."""
    best, distinct, shares = controller.elites(state)
    coordinates = state.coordinates
    return Known(
        best.agents, best.quality, best.behaviours, distinct, shares, coordinates.relevance, units(coordinates)
    )
