"""Choosing the states on which behaviours are compared (section 4.1 and the ablation of figure 8).

Every rule is a pure function that draws n indices from a pool of N states. It can be jitted with n static.
"""

import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PRNGKeyArray

from dvdrl.diversity import _checks, _eager
from dvdrl.diversity.kernels import gram, median_length_scale, squared_exponential

StateRule = Literal["uniform", "zero-function", "k-dpp"]
Indices = Int[Array, "n"]
Scalar = Float[Array, ""]
Rule = Callable[[PRNGKeyArray, Float[Array, "N obs"], int], Indices]

_NETWORKS, _HIDDEN = 8, 32
_DESCENT_STEPS, _LEARNING_RATE = 20, 0.1


def select_states(
    key: PRNGKeyArray, pool: ArrayLike, num_states: int, rule: StateRule = "uniform"
) -> Float[Array, "n obs"]:
    """n states of the pool, chosen without replacement by `rule`: (N, obs) -> (n, obs).

    uniform: at random, each subset equally likely; the paper's choice.
    zero-function: the states with the largest error of small networks that are fitted to zero on the whole pool.
    k-dpp: an exact sample of a k-DPP, which favours states that differ.
    """
    states = _checks.as_float_array("pool", pool, ndim=2, shape="(N, obs)")
    if rule not in STATE_RULES:
        raise ValueError(f"rule: expected one of {', '.join(STATE_RULES)}; got {rule!r}")
    if not 1 <= num_states <= states.shape[0]:
        raise ValueError(
            f"num_states: expected 1 to {states.shape[0]}, the number of states in the pool, got {num_states}"
        )
    return states[STATE_RULES[rule](key, states, num_states)]


@functools.partial(_eager.compiled, static="num_states")
def uniform(key: PRNGKeyArray, pool: Float[Array, "N obs"], num_states: int) -> Indices:
    """Indices of n states drawn uniformly without replacement."""
    return jax.random.choice(key, pool.shape[0], (num_states,), replace=False)


@functools.partial(_eager.compiled, static="num_states")
def zero_function(key: PRNGKeyArray, pool: Float[Array, "N obs"], num_states: int) -> Indices:
    """Indices of the n states with the largest error of small networks fitted to zero, largest first.

    This estimates novelty without a model of the states. The networks start at random, and gradient descent lowers
    their mean error over the pool. Where states are dense, outputs reach zero first. Descent stops early, so the
    outputs still vary between networks where states are rare.
    """
    inputs = _with_one(_standardize(pool))
    width = inputs.shape[1]

    def output(weights: tuple[Array, Array]) -> Float[Array, "N"]:
        hidden, last = weights
        return (_with_one(jnp.tanh(inputs @ hidden)) @ last)[:, 0]

    def descend(weights: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        gradient = jax.grad(lambda w: jnp.mean(jnp.square(output(w))) / 2)(weights)
        return jax.tree.map(lambda w, g: w - _LEARNING_RATE * g, weights, gradient), None

    def fitted_output(key: PRNGKeyArray) -> Float[Array, "N"]:
        key_hidden, key_last = jax.random.split(key)
        hidden = jax.random.normal(key_hidden, (width, _HIDDEN), inputs.dtype) / jnp.sqrt(width)
        last = jax.random.normal(key_last, (_HIDDEN + 1, 1), inputs.dtype) / jnp.sqrt(_HIDDEN + 1)
        weights, _ = jax.lax.scan(descend, (hidden, last), length=_DESCENT_STEPS)
        return output(weights)

    outputs = jax.vmap(fitted_output)(jax.random.split(key, _NETWORKS))
    return jax.lax.top_k(jnp.mean(jnp.square(outputs), axis=0), num_states)[1]


def k_dpp_states(key: PRNGKeyArray, pool: Float[Array, "N obs"], num_states: int) -> Indices:
    """Indices of a k-DPP sample of the pool under a squared exponential kernel with the median length scale."""
    states = _standardize(pool)
    return k_dpp(key, gram(squared_exponential(median_length_scale(states)), states), num_states)


def k_dpp(key: PRNGKeyArray, L: Float[Array, "N N"], k: int) -> Indices:
    """Indices of an exact sample of the k-DPP with kernel L: P(S) = det(L_S) / e_k(eigenvalues of L), |S| = k.

    Kulesza and Taskar (2011): k eigenvectors are chosen by the elementary symmetric polynomials e of the eigenvalues,
    then k items from the projection DPP that these vectors span.
    """
    if L.ndim != 2 or L.shape[0] != L.shape[1]:
        raise ValueError(f"L: expected a square matrix of shape (N, N), got shape {L.shape}")
    if not 1 <= k <= L.shape[0]:
        raise ValueError(f"k: expected from 1 to {L.shape[0]} items, as many as L has, got {k}")
    return _exact_sample(key, L, k)


@functools.partial(_eager.compiled, static="k")
def _exact_sample(key: PRNGKeyArray, L: Float[Array, "N N"], k: int) -> Indices:
    key_vectors, key_items = jax.random.split(key)
    values, vectors = jnp.linalg.eigh(L)
    # Rounding can make zero eigenvalues negative. With a floor, k items can be drawn for any rank. Subsets beyond the
    # rank then have a probability of the order of eps.
    floor = jnp.finfo(values.dtype).eps * values.shape[0] * values[-1]
    log_values = jnp.log(jnp.maximum(values, floor))
    chosen = _chosen_vectors(key_vectors, log_values, k)
    return _items(key_items, vectors * chosen[None, :], k)


def _chosen_vectors(key: PRNGKeyArray, log_values: Float[Array, "N"], k: int) -> Float[Array, "N"]:
    """1 for the k chosen eigenvectors, 0 for the others."""
    N = log_values.shape[0]
    # log e_j of the first i eigenvalues, j = 0..k; e_j(i) = e_j(i-1) + value_i * e_{j-1}(i-1), all terms positive.
    start = jnp.full(k + 1, -jnp.inf, log_values.dtype).at[0].set(0.0)

    def polynomial(log_e: Float[Array, "k_1"], log_value: Scalar) -> tuple[Float[Array, "k_1"], Float[Array, "k_1"]]:
        grown = log_e.at[1:].set(jnp.logaddexp(log_e[1:], log_value + log_e[:-1]))
        return grown, log_e

    _, log_e_before = jax.lax.scan(polynomial, start, log_values)

    def choose(left: Int[Array, ""], step: tuple[Scalar, Float[Array, "k_1"], Scalar]) -> tuple[Int[Array, ""], Array]:
        log_value, log_e, uniform_draw = step
        # P(take i | j left) = value_i e_{j-1}(i-1) / e_j(i); it is 1 if all remaining eigenvectors are needed.
        with_it = log_value + jnp.where(left > 0, log_e[left - 1], -jnp.inf)
        without_it = log_e[left]
        take = (left > 0) & (jnp.log(uniform_draw) < with_it - jnp.logaddexp(with_it, without_it))
        return left - take, take

    draws = jax.random.uniform(key, (N,), log_values.dtype)
    _, taken = jax.lax.scan(choose, jnp.asarray(k), (log_values, log_e_before, draws), reverse=True)
    return taken.astype(log_values.dtype)


def _items(key: PRNGKeyArray, vectors: Float[Array, "N N"], k: int) -> Indices:
    """k items, drawn one at a time from the projection DPP of orthonormal columns; columns not chosen are 0."""
    N = vectors.shape[0]

    def draw(
        carry: tuple[Float[Array, "N"], Float[Array, "N k"]], step: tuple[Int[Array, ""], PRNGKeyArray]
    ) -> tuple[tuple[Float[Array, "N"], Float[Array, "N k"]], Int[Array, ""]]:
        # `left` is each item's squared distance to the span of the items drawn so far; `basis` has their coordinates.
        left, basis = carry
        position, key = step
        item = jax.random.categorical(key, jnp.log(left))
        overlap = vectors @ vectors[item] - basis @ basis[item]
        coordinate = overlap / jnp.sqrt(left[item])
        left = jnp.maximum(left - jnp.square(coordinate), 0.0).at[item].set(0.0)
        return (left, basis.at[:, position].set(coordinate)), item

    start = (jnp.sum(jnp.square(vectors), axis=1), jnp.zeros((N, k), vectors.dtype))
    _, items = jax.lax.scan(draw, start, (jnp.arange(k), jax.random.split(key, k)))
    return items


@_eager.compiled
def _standardize(pool: Float[Array, "N obs"]) -> Float[Array, "N obs"]:
    centred = pool - jnp.mean(pool, axis=0, keepdims=True)
    deviation = jnp.std(pool, axis=0, keepdims=True)
    return centred / jnp.where(deviation > 0, deviation, 1.0)


def _with_one(x: Float[Array, "N d"]) -> Float[Array, "N d_1"]:
    return jnp.concatenate([x, jnp.ones((x.shape[0], 1), x.dtype)], axis=1)


STATE_RULES: dict[StateRule, Rule] = {
    "uniform": uniform,
    "zero-function": zero_function,
    "k-dpp": k_dpp_states,
}
"""The paper's three rules by name."""
