"""Adam (Kingma and Ba 2015), written out, as optax computes the scales of a step within it.

Each of these scales would be a kernel of its own in the loop of updates; here they are computed for many steps at once,
before the loop.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float, Int

from dvdrl.policies import Layers

_DECAYS, _EPSILON = (0.9, 0.999), 1e-8
"""Adam's, as Kingma and Ba have them."""


class Moments(NamedTuple):
    """What Adam knows of gradients: running means of them and of their squares."""

    first: Layers
    second: Layers


def no_moments(params: Layers) -> Moments:
    """Before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Moments(zeros, zeros)


def scales(learning_rate: float, number: Int[Array, "k"]) -> Float[Array, "k 2"]:
    """What the moments are multiplied by in steps number 1, 2, ...: bias correction, and the learning rate."""
    first, second = (-1.0 / jnp.expm1(number * jnp.log(decay)) for decay in _DECAYS)
    return jnp.stack([learning_rate * first, second], axis=-1)


def step(params: Layers, moments: Moments, gradient: Layers, scale: Float[Array, "2"]) -> tuple[Layers, Moments]:
    """The parameters and the moments after a step."""
    # Where a gradient's product leaves it transposed, so would be all that is computed of it, and copied back.
    gradient = jax.tree.map(lambda g: with_layout_constraint(g, Layout(tuple(range(g.ndim)))), gradient)

    def running(decay: float, mean: Layers, new: Layers) -> Layers:
        mixed: Layers = jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, mean, new)
        return mixed

    first = running(_DECAYS[0], moments.first, gradient)
    second = running(_DECAYS[1], moments.second, jax.tree.map(jnp.square, gradient))
    moved: Layers = jax.tree.map(
        lambda x, m, v: x - scale[0] * m / (jnp.sqrt(scale[1] * v) + _EPSILON), params, first, second
    )
    return moved, Moments(first, second)
