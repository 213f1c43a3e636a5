"""The diversity term of an off-policy learner (section 4.4): one score for the behaviours of all members together.

Learners add its gradient, weighted by lambda, to that of the members' returns (`losses.population_loss`).
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from dvdrl.diversity import Kernel, Normalization, gram, log_determinant, normalize

Diversity = Callable[[Float[Array, "M l"]], Float[Array, ""]]
"""The behaviours of M members, one row per member -> their score. The function must be differentiable."""


def no_diversity(behaviours: Float[Array, "M l"]) -> Float[Array, ""]:  # noqa: ARG001
    """Give all populations the same score, so that only reward counts."""
    return jnp.zeros(())


def log_determinants(
    kernel: Kernel, normalization: Normalization = "none", shrinkage: float | None = None
) -> Diversity:
    """DvD-TD3's score: log det K of the members' behaviours.

    Args:
        kernel: similarity of two behaviours.
        normalization: as in `dvdrl.diversity.normalize`.
        shrinkage: as in `dvdrl.diversity.log_determinant`.
    """

    def score(behaviours: Float[Array, "M l"]) -> Float[Array, ""]:
        if behaviours.shape[0] == 1:
            return jnp.zeros(())  # for one member it is always 0, because k(x, x) = 1
        log_det: Float[Array, ""] = log_determinant(
            gram(kernel, normalize(behaviours, normalization)), shrinkage=shrinkage
        )
        return log_det

    return score
