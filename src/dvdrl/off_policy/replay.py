"""The replay buffer: a ring on the device, with one packed row per transition.

Since it is one array, a batch is one gather, and one copy stores a step's transitions. A step's transitions are added
together and in order, equally many of each of the M members. So row i belongs to member i mod M, and needs no field
for it.
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
"""Number of transitions."""


class Transitions(NamedTuple):
    """n steps of simulations, as NumPy or JAX arrays."""

    obs: Float[Any, "n obs"]
    action: Float[Any, "n act"]
    reward: Float[Any, "n"]
    terminated: Float[Any, "n"]
    """1 where the task itself ended; a time limit does not count."""
    next_obs: Float[Any, "n obs"]
    """Where the step led. At the end of an episode, this is its last observation, not the first of the next episode."""


class Replay(NamedTuple):
    """The latest transitions."""

    rows: Float[Array, "capacity row"]
    num_added: Int[Array, ""]
    """Number of transitions ever added; the next one goes to this place modulo the capacity."""


def row_size(num_observed: int, num_actions: int) -> int:
    """Numbers in a packed transition."""
    return 2 * num_observed + num_actions + 2


def pack(transitions: Transitions) -> Float[Any, "n row"]:
    """Transitions as rows."""
    obs, action, reward, terminated, next_obs = transitions
    xp = obs.__array_namespace__()
    return xp.concatenate([obs, action, reward[..., None], terminated[..., None], next_obs], axis=-1)


def unpack(rows: Float[Any, "n row"], num_observed: int) -> Transitions:
    """The inverse of `pack`."""
    end = rows.shape[-1] - num_observed
    return Transitions(
        rows[..., :num_observed],
        rows[..., num_observed : end - 2],
        rows[..., end - 2],
        rows[..., end - 1],
        rows[..., end:],
    )


def empty(capacity: int | tuple[int, int], size: int) -> Replay:
    """A buffer without transitions. A capacity of (seeds, capacity) makes one buffer per seed."""
    return Replay(jnp.zeros((*np.atleast_1d(capacity), size)), jnp.zeros((), jnp.int32))


def add(replay: Replay, rows: Float[Array, "n row"]) -> Replay:
    """Replace the oldest n transitions. n has to divide the capacity, and has to be the same every time."""
    capacity, num_new = replay.rows.shape[0], rows.shape[0]
    if capacity % num_new:
        raise ValueError(f"rows: expected a number that divides the capacity {capacity}, got {num_new}")
    start = replay.num_added % capacity
    return Replay(jax.lax.dynamic_update_slice(replay.rows, rows, (start, 0)), replay.num_added + num_new)


def sample(
    key: PRNGKeyArray, replay: Replay, shape: tuple[int, int], population: int, bootstrapping: Bootstrapping
) -> Int[Array, "k n"]:
    """Row numbers for k batches of n transitions. Place j of a batch uses the target policy of member j mod M.

    collector: place j is drawn from the transitions that member j mod M collected. Members have equal shares of the
        batch, except that the first members also get the remainder of n / M.
    random: every place is drawn from all transitions, so a transition meets the target policy of a random member.
    """
    stored = jnp.minimum(replay.num_added, replay.rows.shape[0])
    if bootstrapping == "random":
        return jax.random.randint(key, shape, 0, stored)
    steps = jax.random.randint(key, shape, 0, stored // population)
    return steps * population + (jnp.arange(shape[1]) % population)[None]


def sample_since(
    key: PRNGKeyArray, replay: Replay, shape: tuple[int, int, int], since: Int[Array, "M"]
) -> Int[Array, "k M n"]:
    """Row numbers for k batches with n transitions of each member, from those of its number `since` on.

    A member's transitions are numbered from 0, in the order in which they were added. At least one has to be there.
    """
    M, capacity = len(since), replay.rows.shape[0] // len(since)
    end = replay.num_added // M
    first = jnp.maximum(since, end - capacity)
    number = jax.random.randint(key, shape, first[None, :, None], end)
    return number % capacity * M + jnp.arange(M)[None, :, None]


def recall(replay: Replay, num_added: int, stored: Sequence[Float[np.ndarray, "n row"]]) -> Replay:
    """Refill the buffer of several seeds as it was after `num_added` transitions.

    `stored` has the latest transitions of each seed. The buffer that is passed in cannot be used afterwards.

    Raises:
        ValueError: the stored rows have another size than those of this buffer.
    """
    rows, (_, capacity, size) = replay.rows, replay.rows.shape
    for seed, of_seed in enumerate(stored):
        if of_seed.shape[1] != size:
            raise ValueError(f"expected rows of {size} numbers, got {of_seed.shape[1]}")
        latest = of_seed[-capacity:]
        place, begin = (num_added - len(latest)) % capacity, 0
        while begin < len(latest):  # in parts, as memory may not hold two copies; no part crosses the ring's end
            end = begin + min(_RECALLED_AT_ONCE, len(latest) - begin, capacity - place)
            rows = _put(rows, latest[None, begin:end], seed, place)
            place, begin = (place + end - begin) % capacity, end
    return Replay(rows, jnp.asarray(num_added, jnp.int32))


@partial(jax.jit, donate_argnums=0)
def _put(rows: Float[Array, "seeds capacity row"], new: Float[Array, "1 n row"], seed: Any, place: Any) -> Array:
    return jax.lax.dynamic_update_slice(rows, new, (seed, place, 0))
