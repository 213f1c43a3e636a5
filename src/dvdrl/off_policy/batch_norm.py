"""Critics that are easy to train: linear layers of unit norm, each followed by batch normalisation and ReLU.

These are the critics of XQC (Palenicek et al. 2025). Batch normalisation makes the scale of a layer's weights
irrelevant, so each column can be kept at norm 1. Then the learning rate means the same throughout training. The last
layer has one head per member: its own weights on the features that all members share.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

_EPSILON = 1e-3
"""Added to variances, as in XQC."""


class Layer(NamedTuple):
    """A linear layer without bias, and what its normalisation does after it has made mean 0 and variance 1."""

    weights: Float[Array, "i o"]
    scale: Float[Array, "o"]
    shift: Float[Array, "o"]


class Parameters(NamedTuple):
    """All that is learned."""

    inputs: Float[Array, "i"]
    """The scale of the normalised inputs. A shift would have no effect, because the first layer is normalised too."""
    layers: tuple[Layer, ...]
    heads: tuple[Float[Array, "M i o"], Float[Array, "M o"]]
    """Weights and bias of each head."""


class Moments(NamedTuple):
    """Means and variances of the values that one normalisation has seen."""

    mean: Float[Array, "o"]
    variance: Float[Array, "o"]


Statistics = tuple[Moments, ...]
"""The moments for each normalisation, that of the inputs first."""


def init(key: PRNGKeyArray, num_inputs: int, hidden: Sequence[int], num_outputs: int, num_heads: int) -> Parameters:
    """Weights in random directions, with columns of norm 1.

    Orthogonal columns would need QR decompositions, which can block for ever where JAX has only two threads.
    """
    *of_layers, of_heads = jax.random.split(key, len(hidden) + 1)
    layers, width = [], num_inputs
    for of_layer, num in zip(of_layers, hidden, strict=True):
        layers.append(Layer(jax.random.normal(of_layer, (width, num)), jnp.ones(num), jnp.zeros(num)))
        width = num
    heads = jax.random.normal(of_heads, (num_heads, width, num_outputs)), jnp.zeros((num_heads, num_outputs))
    return projected(Parameters(jnp.ones(num_inputs), tuple(layers), heads))


def no_statistics(params: Parameters) -> Statistics:
    """The moments before the first batch."""
    return tuple(
        Moments(jnp.zeros_like(scale), jnp.ones_like(scale))
        for scale in (params.inputs, *(layer.scale for layer in params.layers))
    )


def projected(params: Parameters) -> Parameters:
    """The same directions, with all columns of weights at norm 1."""

    def unit(weights: Float[Array, "... i o"]) -> Float[Array, "... i o"]:
        return weights * jax.lax.rsqrt(jnp.sum(jnp.square(weights), axis=-2, keepdims=True))

    weights, bias = params.heads
    layers = tuple(layer._replace(weights=unit(layer.weights)) for layer in params.layers)
    return Parameters(params.inputs, layers, (unit(weights), bias))


def training_features(params: Parameters, inputs: Float[Array, "n i"]) -> tuple[Float[Array, "n f"], Statistics]:
    """The last hidden layer, normalised with the moments of this batch; and those moments."""
    moments = _moments(inputs)
    seen, x = [moments], _normalized(inputs, moments, jnp.ones_like(params.inputs))
    # The scale of the inputs goes into the first weights. Its derivative then needs no product of its own.
    first, *others = (layer.weights for layer in params.layers)
    for layer, weights in zip(params.layers, (params.inputs[:, None] * first, *others), strict=True):
        x, moments = _activated(x @ weights, layer.scale, layer.shift)
        seen.append(moments)
    return x, tuple(seen)


def features(params: Parameters, statistics: Statistics, inputs: Float[Array, "n i"]) -> Float[Array, "n f"]:
    """The last hidden layer, normalised with moments of earlier batches."""
    x = _normalized(inputs, statistics[0], params.inputs)
    for layer, moments in zip(params.layers, statistics[1:], strict=True):
        x = jnp.maximum(_normalized(x @ layer.weights, moments, layer.scale) + layer.shift[None], 0.0)
    return x


def outputs(params: Parameters, features: Float[Array, "n f"]) -> Float[Array, "M k o"]:
    """What each head makes of its k rows: the first k are those of head 0, and so on."""
    weights, bias = params.heads
    by_head = features.reshape(len(bias), -1, features.shape[-1])
    product = _product if jax.default_backend() == "cpu" else jnp.matmul
    return product(by_head, weights) + bias[:, None]


@jax.custom_vjp
def _activated(
    sums: Float[Array, "n o"], scale: Float[Array, "o"], shift: Float[Array, "o"]
) -> tuple[Float[Array, "n o"], Moments]:
    """Normalised with their own moments, then ReLU; and those moments, through which nothing is differentiated.

    All is written with few passes over the sums, which take long on a CPU. A mean is at most a few times the deviation
    here, since weights have norm 1. So the mean of squares loses no digits that matter.
    """
    mean = jnp.mean(sums, axis=0)
    variance = jnp.maximum(jnp.mean(jnp.square(sums), axis=0) - jnp.square(mean), 0.0)
    factor = jax.lax.rsqrt(variance + _EPSILON) * scale
    return jnp.maximum(sums * factor[None] + (shift - mean * factor)[None], 0.0), Moments(mean, variance)


def _activated_forward(sums: Array, scale: Array, shift: Array) -> tuple[Any, Any]:
    x, moments = _activated(sums, scale, shift)
    return (x, moments), (sums, x, moments, scale)


def _activated_backward(kept: Any, slopes: tuple[Array, Moments]) -> tuple[Array, Array, Array]:
    """The derivative is linear in the slopes and the sums, with three factors for each column."""
    sums, x, moments, scale = kept
    root = jax.lax.rsqrt(moments.variance + _EPSILON)
    slope = jnp.where(x > 0, slopes[0], 0.0)
    of_shift = jnp.sum(slope, axis=0)
    of_scale = root * (jnp.sum(slope * sums, axis=0) - moments.mean * of_shift)
    by_slope = scale * root
    by_sum = -by_slope * root * of_scale / len(sums)
    constant = -by_slope * of_shift / len(sums) - by_sum * moments.mean
    return by_slope[None] * slope + by_sum[None] * sums + constant[None], of_scale, of_shift


_activated.defvjp(_activated_forward, _activated_backward)


@jax.custom_vjp
def _product(x: Float[Array, "M k i"], weights: Float[Array, "M i o"]) -> Float[Array, "M k o"]:
    """The matrix product. For its derivative the slopes are turned first, as XLA's product on CPUs turns slowly."""
    return x @ weights


def _product_backward(kept: tuple[Array, Array], slopes: Array) -> tuple[Array, Array]:
    x, weights = kept
    turned = jax.lax.optimization_barrier(slopes.swapaxes(-1, -2))
    return slopes @ weights.swapaxes(-1, -2), (turned @ x).swapaxes(-1, -2)


_product.defvjp(lambda x, weights: (x @ weights, (x, weights)), _product_backward)


def _moments(values: Float[Array, "n o"]) -> Moments:
    mean = jnp.mean(values, axis=0)
    return Moments(mean, jnp.mean(jnp.square(values - mean[None]), axis=0))


def _normalized(values: Float[Array, "n o"], moments: Moments, scale: Float[Array, "o"]) -> Float[Array, "n o"]:
    factor = jax.lax.rsqrt(moments.variance + _EPSILON) * scale
    return (values - moments.mean[None]) * factor[None]
