"""What a policy does in exact arithmetic, and how far single precision can be from it.

The bounds are those of running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and
3.3): each operation adds what it may round, and hands on what went before. They hold for any order of a sum, so for
NumPy, JAX and any ONNX runtime alike. Double precision stands for exact arithmetic: it is 2**29 times finer.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from dvdrl.policies import Agents, Policy

UNIT = 2.0**-24
"""The most that single precision rounds a number, relative to it."""
TANH = 2.0**-20
"""The most that implementations of tanh are wrong by, beside their last rounding: some use rational functions."""


def exact_actions(
    policy: Policy, agent: Agents, obs: Float[np.ndarray, "n obs"]
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """The actions of one member, and how far those of single precision may be off, as `Head.differences` measures it.

    The observations are exact as they are.
    """
    params, shift, scale = (np.asarray(array, np.float64) for array in agent)
    with np.errstate(over="ignore", invalid="ignore"):
        x = obs.astype(np.float64) - shift
        error = UNIT * np.abs(x)
        x, error = _rounded(x * scale, error * np.abs(scale))
        layers = policy.network.unravel(params)
        for index, (weights, bias) in enumerate(layers):
            added = np.zeros(weights.shape[1]) if bias is None else bias
            terms = len(weights) + 1
            gamma = terms * UNIT / (1 - terms * UNIT)
            magnitudes = (np.abs(x) + error) @ np.abs(weights) + np.abs(added)
            x, error = x @ weights + added, error @ np.abs(weights) + gamma * magnitudes
            last = index == len(layers) - 1
            activation = policy.network.output_activation if last else policy.network.activation
            if activation == "tanh":
                # Where it is flat, little of an error comes through: its slope is largest at the end nearest to 0.
                slope = 1 - np.square(np.tanh(np.maximum(np.abs(x) - error, 0)))
                x, error = _rounded(np.tanh(x), np.minimum(error * slope, 2) + TANH)
            elif activation == "relu":
                x = np.maximum(x, 0)
        head = policy.head
        actions = np.asarray(head.actions(x))
        # All outputs at one end of what they may be, or one of them at the other end: that may change the largest.
        sides = [
            side * np.where(np.arange(x.shape[-1]) == one, -1, 1) for side in (-1, 1) for one in range(-1, x.shape[-1])
        ]
        moved = np.max([head.differences(head.actions(x + side * error), actions) for side in sides], axis=0)
        if np.issubdtype(actions.dtype, np.floating):
            # A head has two operations: each rounds what it gets, which may be larger than the action.
            largest = np.abs(x).max(axis=-1, keepdims=True)
            moved = moved + head.differences(actions * (1 + 4 * UNIT), actions) + 4 * UNIT * np.maximum(1, largest)
        return actions, moved


def _rounded(
    x: Float[np.ndarray, "n width"], error: Float[np.ndarray, "n width"]
) -> tuple[Float[np.ndarray, "n width"], Float[np.ndarray, "n width"]]:
    """A result, with what is added when it is rounded."""
    return x, error + UNIT * (np.abs(x) + error)
