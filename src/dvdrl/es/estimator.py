"""The gradient of a smoothed objective, estimated from values at perturbed parameters (appendix C.2, equation "grad").

The functions are for one member; `vmap` maps them over the population.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


def directions(key: PRNGKeyArray, num: int, size: int, *, orthogonal: bool) -> Float[Array, "k d"]:
    """Directions g_1..g_k, each ~ N(0, I_d). The same key gives the same directions.

    orthogonal: directions are mutually orthogonal in blocks of up to d. Each has the length of a Gaussian vector. This
    lowers the variance of the estimate and does not change its mean (Choromanski et al. 2018).
    """
    if not orthogonal:
        return jax.random.normal(key, (num, size))
    rows = min(num, size)
    blocks = jax.random.normal(key, (-(-num // rows), rows, size))
    # QR of Gaussian columns is uniform over rotations only if the diagonal of R is made positive (Mezzadri 2007).
    Q, R = jnp.linalg.qr(jnp.swapaxes(blocks, 1, 2))
    signs = jnp.where(jnp.diagonal(R, axis1=1, axis2=2) < 0, -1.0, 1.0)
    lengths = jnp.linalg.norm(blocks, axis=2)  # independent of the directions, hence of Q
    return jnp.swapaxes(Q * (signs * lengths)[:, None, :], 1, 2).reshape(-1, size)[:num]


def perturb(params: Float[Array, "d"], g: Float[Array, "k d"], sigma: float) -> Float[Array, "2k d"]:
    """Antithetic pairs: theta + sigma g_1, .., theta + sigma g_k, then theta - sigma g_1, .., theta - sigma g_k."""
    return jnp.concatenate([params[None] + sigma * g, params[None] - sigma * g])


def standardize(scores: Float[Array, "n"]) -> Float[Array, "n"]:
    """Scores with mean 0 and standard deviation 1; all 0 if they differ by rounding only.

    These are the paper's normalised rewards and novelties (equation "nsres"). Its DvD-ES normalises determinants
    likewise.
    """
    centred = scores - jnp.mean(scores)
    deviation = jnp.sqrt(jnp.mean(jnp.square(centred)))
    alike = deviation <= 4 * jnp.finfo(scores.dtype).eps * jnp.max(jnp.abs(scores))
    return jnp.where(alike, 0.0, centred / jnp.where(alike, 1.0, deviation))


def gradient(scores: Float[Array, "2k"], g: Float[Array, "k d"], sigma: float) -> Float[Array, "d"]:
    """1 / (2 k sigma) * sum_i (F(theta + sigma g_i) - F(theta - sigma g_i)) g_i.

    Equation "simple-est" over the 2k antithetic perturbations: an unbiased estimate of the smoothed F's gradient.
    """
    k = g.shape[0]
    return ((scores[:k] - scores[k:]) @ g) / (2 * k * sigma)
