"""Behavioural embeddings (definition 3.1): the actions that each member of a population takes on the same states."""

from collections.abc import Callable
from typing import Literal, TypeVar, get_args

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dvdrl.diversity import _checks, _eager

Params = TypeVar("Params")
Normalization = Literal["none", "across-members"]

_CLIP = 2.0


def embed(
    policy: Callable[[Params, Float[Array, "n obs"]], Float[Array, "n act"]],
    params: Params,
    states: ArrayLike,
    normalization: Normalization = "none",
) -> Float[Array, "M l"]:
    """Actions of M members on n states, flattened: (M, n * |a|).

    Args:
        policy: `policy(params, states) -> actions` for one member: (n, obs) -> (n, |a|).
        params: the parameters of the population: any pytree whose leaves have a leading axis M. It must include
            everything that differs between members, such as a state normaliser.
        states: the states on which behaviours are compared.
        normalization: see `normalize`.
    """
    s = _checks.as_float_array("states", states, ndim=2, shape="(n, obs)")
    sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(params)}
    if len(sizes) != 1 or () in sizes:
        found = sorted(str(jnp.shape(leaf)) for leaf in jax.tree.leaves(params))
        raise ValueError(f"params: expected leaves with one leading axis M, got shapes {', '.join(found) or 'none'}")
    actions = jax.vmap(policy, in_axes=(0, None))(params, s)
    if actions.ndim != 3 or actions.shape[1] != s.shape[0]:
        raise ValueError(
            f"policy: expected actions of shape ({s.shape[0]}, |a|) for states of shape {s.shape}, "
            f"got {actions.shape[1:]}"
        )
    return normalize(actions.reshape(actions.shape[0], -1), normalization)


def normalize(embeddings: ArrayLike, normalization: Normalization) -> Float[Array, "M l"]:
    """Embeddings on the scale on which they are compared.

    none: the actions as they are. The determinant then measures how far apart members are.
    across-members: each coordinate is z-scored over the members, then clipped to [-2, 2], as in the authors' code.
        The determinant then measures how evenly members are spread, regardless of their distance. A coordinate that
        is equal for all members becomes 0.
    """
    x = _checks.as_float_array("embeddings", embeddings, ndim=2, shape="(M, l)")
    if normalization not in get_args(Normalization):
        expected = ", ".join(get_args(Normalization))
        raise ValueError(f"normalization: expected one of {expected}; got {normalization!r}")
    return x if normalization == "none" else _across_members(x)


@_eager.compiled
def _across_members(x: Float[Array, "M l"]) -> Float[Array, "M l"]:
    # First scale to at most 1: squares of very large or small coordinates leave the range of single precision.
    scale = jax.lax.stop_gradient(jnp.max(jnp.abs(x), axis=0, keepdims=True))
    x = x / jnp.where(scale > 0, scale, 1.0)
    centred = x - jnp.mean(x, axis=0, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=0, keepdims=True)
    # If all members agree, rounding of the mean leaves a spread of about eps. It does not count as a difference.
    agree = variance <= (4 * jnp.finfo(x.dtype).eps) ** 2
    deviation = jnp.sqrt(jnp.where(agree, 1.0, variance))
    return jnp.where(agree, 0.0, jnp.clip(centred / deviation, -_CLIP, _CLIP))
