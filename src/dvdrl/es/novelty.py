"""NSR-ES (Conti et al. 2018; appendix C.2.2 of the paper): novelty is the mean distance to the other members."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dvdrl.diversity import distances
from dvdrl.es.es import Agents, Embed


def novelty(embed: Embed, members: Agents, perturbed: Agents, indices: Int[Array, "m"]) -> Float[Array, "m n"]:
    """The mean distance of each perturbed member to the other, unperturbed members; 0 for a population of one.

    Distances are per dimension (root mean square); the scale is lost when novelties are standardised.
    """
    M = members.params.shape[0]

    def of_one(agent: Agents, index: Int[Array, ""]) -> Float[Array, ""]:
        population = jax.tree.map(lambda leaf, new: leaf.at[index].set(new), members, agent)
        return jnp.sum(distances(embed(population))[index]) / max(M - 1, 1)

    return jax.vmap(jax.vmap(of_one, in_axes=(0, None)))(perturbed, indices)
