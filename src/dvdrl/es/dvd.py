"""DvD-ES (section 4.3): the i-th perturbations of all members together get one score, their determinant."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dvdrl.diversity import Kernel, Normalization, determinant, gram, log_determinant, normalize
from dvdrl.es.es import Diversity

Objective = Literal["det", "log-det"]


def determinants(kernel: Kernel, objective: Objective = "det", normalization: Normalization = "none") -> Diversity:
    """Div_t(i) = Div(theta^1 + g^1_i, .., theta^M + g^M_i) for each joint perturbation i; the same for every member.

    Members that are not updated count with their unperturbed behaviour.
    """
    of_matrix = determinant if objective == "det" else log_determinant

    def score(
        members: Float[Array, "M l"], perturbed: Float[Array, "m n l"], indices: Int[Array, "m"]
    ) -> Float[Array, "m n"]:
        K = gram(kernel, members)

        def of_all(rows: Float[Array, "m l"]) -> Float[Array, ""]:
            return of_matrix(gram(kernel, normalize(members.at[indices].set(rows), normalization)))

        def of_one(rows: Float[Array, "1 l"]) -> Float[Array, ""]:
            similar = gram(kernel, rows, members.at[indices].set(rows))[0]
            return of_matrix(K.at[indices[0]].set(similar).at[:, indices[0]].set(similar))

        # One member's perturbation changes one row of the Gram matrix, unless normalization mixes all members.
        alone = perturbed.shape[0] == 1 and normalization == "none"
        joint = jax.vmap(of_one if alone else of_all, in_axes=1)(perturbed)
        return jnp.broadcast_to(joint, perturbed.shape[:2])

    return score
