"""niche-ES: members occupy different niches, and worse copies begin anew. `dvdrl.niches` decides who and when.

Here is what a member begins anew with.
"""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from dvdrl.policies import Moments, Policy
from dvdrl.policies import filter as observation_filter


def newborns(
    key: PRNGKeyArray, policy: Policy, optimizer: optax.GradientTransformation, moments: Moments
) -> tuple[Float[Array, "M d"], optax.OptState, Moments]:
    """(parameters, optimizer state, filter) with which each of M members would begin anew.

    Its filter is that of the whole population, (M, ...): where members have been, newborns are likely to go.
    """
    M = moments.num.shape[0]
    params = jax.vmap(policy.init)(jax.random.split(key, M))
    pooled = observation_filter.lightened(observation_filter.pool(moments, axis=0), observation_filter.BORROWED)
    each = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (M, *leaf.shape)), pooled)
    return params, jax.vmap(optimizer.init)(params), each
