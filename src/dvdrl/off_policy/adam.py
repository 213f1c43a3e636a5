"""Adam (Kingma and Ba 2015), written out because optax computes the scales of a step within the step.

In the loop of updates each of these scales would be a kernel of its own. Here they are computed for many steps at
once, before the loop.
"""

from typing import Generic, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float, Int

from dvdrl.off_policy.parameters import Tree

_DECAYS, _EPSILON = (0.9, 0.999), 1e-8
"""The constants of Kingma and Ba."""


class Moments(NamedTuple, Generic[Tree]):
    """Running means of gradients and of their squares."""

    first: Tree
    second: Tree


def no_moments(params: Tree) -> Moments[Tree]:
    """The moments before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Moments(zeros, zeros)


def scales(learning_rate: float, number: Int[Array, "k"]) -> Float[Array, "k 2"]:
    """The factors of the moments in steps number 1, 2, ...: bias corrections, and the learning rate."""
    first, second = (-1.0 / jnp.expm1(number * jnp.log(decay)) for decay in _DECAYS)
    return jnp.stack([learning_rate * first, second], axis=-1)


def step(params: Tree, moments: Moments[Tree], gradient: Tree, scale: Float[Array, "2"]) -> tuple[Tree, Moments[Tree]]:
    """The parameters and the moments after a step."""
    # A matrix product may leave the gradient transposed. All that follows would be transposed too, and copied back.
    gradient = jax.tree.map(lambda g: with_layout_constraint(g, Layout(tuple(range(g.ndim)))), gradient)

    def running(decay: float, mean: Tree, new: Tree) -> Tree:
        mixed: Tree = jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, mean, new)
        return mixed

    first = running(_DECAYS[0], moments.first, gradient)
    second = running(_DECAYS[1], moments.second, jax.tree.map(jnp.square, gradient))
    moved: Tree = jax.tree.map(
        lambda x, m, v: x - scale[0] * m / (jnp.sqrt(scale[1] * v) + _EPSILON), params, first, second
    )
    return moved, Moments(first, second)
