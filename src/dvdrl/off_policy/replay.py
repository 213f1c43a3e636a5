"""The replay buffer: a ring on the device, one packed row a transition.

One array makes a batch one gather and a step's transitions one copy. A step's transitions are added together, and in
their order, as many of each of the M members: row i is member i mod M's, and needs no field for it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

Bootstrapping = Literal["collector", "random"]
_RECALLED_AT_ONCE = 50_000
"""Transitions."""


class Transitions(NamedTuple):
    """n steps of simulations; arrays of NumPy or JAX."""

    obs: Float[Any, "n obs"]
    action: Float[Any, "n act"]
    reward: Float[Any, "n"]
    terminated: Float[Any, "n"]
    """1 where the task itself ended here; a time limit is no end."""
    next_obs: Float[Any, "n obs"]
    """The true one: where the episode ended its last, not the first of the next."""


class Replay(NamedTuple):
    """The latest transitions."""

    rows: Float[Array, "capacity row"]
    num_added: Int[Array, ""]
    """Transitions ever added; the next one goes to this place modulo the capacity."""


def row_size(num_observed: int, num_actions: int) -> int:
    """Numbers in a packed transition."""
    return 2 * num_observed + num_actions + 2


def pack(transitions: Transitions) -> Float[Any, "n row"]:
    """Transitions as rows."""
    obs, action, reward, terminated, next_obs = transitions
    xp = obs.__array_namespace__()
    return xp.concatenate([obs, action, reward[..., None], terminated[..., None], next_obs], axis=-1)


def unpack(rows: Float[Any, "n row"], num_observed: int) -> Transitions:
    """What `pack` packed."""
    end = rows.shape[-1] - num_observed
    return Transitions(
        rows[..., :num_observed],
        rows[..., num_observed : end - 2],
        rows[..., end - 2],
        rows[..., end - 1],
        rows[..., end:],
    )


def empty(capacity: int | tuple[int, int], size: int) -> Replay:
    """No transitions yet; (seeds, capacity) for several buffers."""
    return Replay(jnp.zeros((*np.atleast_1d(capacity), size)), jnp.zeros((), jnp.int32))


def add(replay: Replay, rows: Float[Array, "n row"]) -> Replay:
    """Add n transitions over the oldest; n has to divide the capacity, and be the same every time."""
    capacity, num_new = replay.rows.shape[0], rows.shape[0]
    if capacity % num_new:
        raise ValueError(f"rows: expected a number that divides the capacity {capacity}, got {num_new}")
    start = replay.num_added % capacity
    return Replay(jax.lax.dynamic_update_slice(replay.rows, rows, (start, 0)), replay.num_added + num_new)


def sample(
    key: PRNGKeyArray, replay: Replay, shape: tuple[int, int], population: int, bootstrapping: Bootstrapping
) -> Int[Array, "k n"]:
    """Rows of k batches of n transitions; place j of a batch is for the target policy of member j mod M.

    collector: drawn from what that member collected; each has the same share of the batch, but for the remainder of
        n / M, which the first members get.
    random: drawn from everything, so a transition meets the target policy of a random member.
    """
    stored = jnp.minimum(replay.num_added, replay.rows.shape[0])
    if bootstrapping == "random":
        return jax.random.randint(key, shape, 0, stored)
    steps = jax.random.randint(key, shape, 0, stored // population)
    return steps * population + (jnp.arange(shape[1]) % population)[None]


def recall(replay: Replay, num_added: int, stored: Sequence[Float[np.ndarray, "n row"]]) -> Replay:
    """The buffer of several seeds after so many transitions, of which the latest of each seed are stored.

    The buffer that is passed in cannot be used afterwards.

    Raises:
        ValueError: they are not rows of this buffer.
    """
    rows, (_, capacity, size) = replay.rows, replay.rows.shape
    for seed, of_seed in enumerate(stored):
        if of_seed.shape[1] != size:
            raise ValueError(f"expected rows of {size} numbers, got {of_seed.shape[1]}")
        latest = of_seed[-capacity:]
        place, begin = (num_added - len(latest)) % capacity, 0
        while begin < len(latest):  # in parts, each up to the ring's end at most: there need not be memory for two
            end = begin + min(_RECALLED_AT_ONCE, len(latest) - begin, capacity - place)
            rows = _put(rows, latest[None, begin:end], seed, place)
            place, begin = (place + end - begin) % capacity, end
    return Replay(rows, jnp.asarray(num_added, jnp.int32))


@partial(jax.jit, donate_argnums=0)
def _put(rows: Float[Array, "seeds capacity row"], new: Float[Array, "1 n row"], seed: Any, place: Any) -> Array:
    return jax.lax.dynamic_update_slice(rows, new, (seed, place, 0))
