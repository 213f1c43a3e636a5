"""DvD-ES (section 4.3): the i-th perturbations of all members together are given one score, their determinant."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dvdrl.diversity import Kernel, determinant, gram, log_determinant
from dvdrl.es.es import Agents, Diversity, Embed

Objective = Literal["det", "log-det"]


def determinants(kernel: Kernel, objective: Objective = "det") -> Diversity:
    """Div_t(i) = Div(theta^1 + g^1_i, .., theta^M + g^M_i) for each joint perturbation i; the same for every member.

    Members that are not updated stand where they are.
    """
    of_matrix = determinant if objective == "det" else log_determinant

    def score(embed: Embed, members: Agents, perturbed: Agents, indices: Int[Array, "m"]) -> Float[Array, "m n"]:
        def of_one(agents: Agents) -> Float[Array, ""]:
            population = jax.tree.map(lambda leaf, new: leaf.at[indices].set(new), members, agents)
            return of_matrix(gram(kernel, embed(population)))

        joint = jax.vmap(of_one, in_axes=1)(perturbed)
        return jnp.broadcast_to(joint, perturbed.params.shape[:2])

    return score
