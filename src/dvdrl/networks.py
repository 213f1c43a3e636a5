"""The policy: the paper's tanh MLP in the layout of the authors' code, over flat parameter vectors.

Hidden layers have biases, the output layer has none, and every layer, the output included, ends in a tanh. One
definition serves NumPy arrays on the host and JAX arrays on a device.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


@dataclass(frozen=True)
class MLP:
    """A multilayer perceptron; `sizes` are those of the observation, the hidden layers and the action."""

    sizes: tuple[int, ...]

    @property
    def num_params(self) -> int:
        """Length of the flat parameter vector."""
        return sum(num_in * num_out + num_bias for num_in, num_out, num_bias in self._layers())

    def init(self, key: PRNGKeyArray) -> Float[Array, "d"]:
        """Weights ~ N(0, 1) / sqrt(fan_in * fan_out), biases ~ N(0, 1) / sqrt(width), as in the authors' code."""
        scales = [
            jnp.full(count, scale)
            for num_in, num_out, num_bias in self._layers()
            for count, scale in ((num_in * num_out, (num_in * num_out) ** -0.5), (num_bias, num_out**-0.5))
        ]
        return jnp.concatenate(scales) * jax.random.normal(key, (self.num_params,))

    def unravel(self, params: Float[Any, "... d"]) -> list[tuple[Float[Any, "... i o"], Float[Any, "... o"] | None]]:
        """Weights and biases by layer, as views of the flat vectors; the output layer's bias is None."""
        lead, start, layers = params.shape[:-1], 0, []
        for num_in, num_out, num_bias in self._layers():
            middle, end = start + num_in * num_out, start + num_in * num_out + num_bias
            weights = params[..., start:middle].reshape(*lead, num_in, num_out)
            layers.append((weights, params[..., middle:end] if num_bias else None))
            start = end
        return layers

    def apply(self, params: Float[Any, "... d"], obs: Float[Any, "... n obs"]) -> Float[Any, "... n act"]:
        """Actions in [-1, 1] on n observations; leading axes of params and obs are matched one to one."""
        xp = obs.__array_namespace__()
        x = obs
        for weights, bias in self.unravel(params):
            x = x @ weights
            if bias is not None:
                x = x + bias[..., None, :]
            x = xp.tanh(x)
        return x

    def _layers(self) -> list[tuple[int, int, int]]:
        pairs = list(pairwise(self.sizes))
        return [(i, o, o if layer < len(pairs) - 1 else 0) for layer, (i, o) in enumerate(pairs)]
