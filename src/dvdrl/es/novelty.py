"""NSR-ES (Conti et al. 2018; appendix C.2.2 of the paper): novelty is the mean distance to the other members."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dvdrl.diversity import Normalization, distances, normalize
from dvdrl.es.es import Diversity


def novelty(normalization: Normalization = "none") -> Diversity:
    """The mean distance of each perturbed member to the other, unperturbed members; 0 for a population of one.

    Distances are per dimension (root mean square). Their scale does not matter, because novelties are standardised.
    """

    def score(
        members: Float[Array, "M l"], perturbed: Float[Array, "m n l"], indices: Int[Array, "m"]
    ) -> Float[Array, "m n"]:
        M = members.shape[0]

        def of_one(behaviour: Float[Array, "l"], index: Int[Array, ""]) -> Float[Array, ""]:
            population = normalize(members.at[index].set(behaviour), normalization)
            return jnp.sum(distances(population[index][None], population)) / max(M - 1, 1)

        return jax.vmap(jax.vmap(of_one, in_axes=(0, None)))(perturbed, indices)

    return score
