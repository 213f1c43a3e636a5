"""niche-ES: members occupy different niches, and worse copies begin anew. `dvdrl.niches` decides who and when.

Here is what a member begins anew with, what a run ends with, and what is known about that.
"""

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
    params = jax.vmap(policy.network.init)(jax.random.split(key, M))
    pooled = observation_filter.lightened(observation_filter.pool(moments, axis=0), FILTER_WEIGHT)
    each = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (M, *leaf.shape)), pooled)
    return params, jax.vmap(optimizer.init)(params), each


@jax.jit
def elites(state: niches.State, members: Agents) -> Agents:
    """The best M that are kept; members as they are where nothing is kept yet, before the first iteration."""
    best, _, _ = niches.elites(state)
    exists = best.quality[: len(members.params)] > -jnp.inf
    kept: Agents = jax.tree.map(
        lambda elite, member: jnp.where(exists[:, None], elite[: len(member)], member), best.agents, members
    )
    return kept


class Known(NamedTuple):
    """What is known about elites, in their order, and about the coordinates of their behaviours."""

    quality: Float[Array, "e"]
    """Minus infinity where nothing is kept."""
    behaviours: Float[Array, "e D"]
    distinct: Bool[Array, "e"]
    shares: Float[Array, "e"]
    relevance: Float[Array, "D"]
    units: Float[Array, "D"]


@jax.jit
def known(state: niches.State) -> Known:
    """What is known about the elites; the first M of them are those of `elites`."""
    best, distinct, shares = niches.elites(state)
    coordinates = state.coordinates
    return Known(best.quality, best.behaviours, distinct, shares, coordinates.relevance, units(coordinates))
