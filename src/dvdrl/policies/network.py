"""Networks over flat parameter vectors: the paper's tanh policies for ES, and TD3's with ReLU hidden layers.

By default an MLP has the layout of the authors' ES code: hidden layers have biases, the output layer has none, and
every layer, the output layer too, ends in a tanh. The same definition works for NumPy arrays on the host and for JAX
arrays on a device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

Activation = Literal["tanh", "relu"]
OutputActivation = Literal["tanh", "none"]
Layers = Sequence[tuple[Float[Any, "... i o"], Float[Any, "... o"] | None]]
"""Weights and bias of each layer."""


@dataclass(frozen=True)
class MLP:
    """A multilayer perceptron. `sizes` are the sizes of the observation, the hidden layers and the output."""

    sizes: tuple[int, ...]
    activation: Activation = "tanh"
    """The activation of the hidden layers."""
    output_activation: OutputActivation = "tanh"
    output_bias: bool = False

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

    def init_uniform(self, key: PRNGKeyArray) -> Float[Array, "d"]:
        """Weights and biases ~ U(-1, 1) / sqrt(fan_in), as in PyTorch and so in TD3's own code."""
        scales = [jnp.full(i * o + num_bias, i**-0.5) for i, o, num_bias in self._layers()]
        return jnp.concatenate(scales) * jax.random.uniform(key, (self.num_params,), minval=-1.0, maxval=1.0)

    def unravel(self, params: Float[Any, "... d"]) -> list[tuple[Float[Any, "... i o"], Float[Any, "... o"] | None]]:
        """Weights and biases by layer, as views of the flat vectors. A layer without bias has None."""
        lead, start, layers = params.shape[:-1], 0, []
        for num_in, num_out, num_bias in self._layers():
            middle, end = start + num_in * num_out, start + num_in * num_out + num_bias
            weights = params[..., start:middle].reshape(*lead, num_in, num_out)
            layers.append((weights, params[..., middle:end] if num_bias else None))
            start = end
        return layers

    def ravel(self, layers: Layers) -> Float[Any, "... d"]:
        """The inverse of `unravel`."""
        xp = layers[0][0].__array_namespace__()
        parts = []
        for weights, bias in layers:
            parts.append(weights.reshape(*weights.shape[:-2], -1))
            if bias is not None:
                parts.append(bias)
        return xp.concatenate(parts, axis=-1)

    def apply(self, params: Float[Any, "... d"], obs: Float[Any, "... n obs"]) -> Float[Any, "... n act"]:
        """The outputs for n observations. Leading axes of params and obs match one to one."""
        return self.apply_layers(self.unravel(params), obs)

    def apply_layers(self, layers: Layers, obs: Float[Any, "... n obs"]) -> Float[Any, "... n act"]:
        """The same, given the parameters by layer."""
        weights, bias = layers[0]
        x = obs @ weights
        return self.finish(layers, x if bias is None else x + bias[..., None, :])

    def finish(self, layers: Layers, sums: Float[Any, "... n width"]) -> Float[Any, "... n act"]:
        """The outputs, given the first layer's sums before its activation."""
        x = sums
        for weights, bias in layers[1:]:
            x = self._activated(x) @ weights
            if bias is not None:
                x = x + bias[..., None, :]
        return x.__array_namespace__().tanh(x) if self.output_activation == "tanh" else x

    def _activated(self, x: Any) -> Any:
        xp = x.__array_namespace__()
        return xp.tanh(x) if self.activation == "tanh" else xp.maximum(x, 0.0)

    def _layers(self) -> list[tuple[int, int, int]]:
        pairs = list(pairwise(self.sizes))
        last = len(pairs) - 1
        return [(i, o, o if layer < last or self.output_bias else 0) for layer, (i, o) in enumerate(pairs)]
