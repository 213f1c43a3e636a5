"""Values as distributions over equally spaced atoms (Bellemare, Dabney and Munos 2017), learned by cross-entropy."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

NUM_ATOMS, LARGEST = 101, 5.0
"""The atoms are 101 numbers from -5 to 5, as in XQC. Rewards have to be scaled so that values stay among them."""
_STEP = 2 * LARGEST / (NUM_ATOMS - 1)


def atoms() -> Float[Array, "a"]:
    """The values that can have a probability."""
    return jnp.linspace(-LARGEST, LARGEST, NUM_ATOMS)


def means(logits: Float[Array, "... a"]) -> Float[Array, "..."]:
    """The expected value of each distribution."""
    return jax.nn.softmax(logits) @ atoms()


def moved(
    probabilities: Float[Array, "... a"], factor: Float[Array, "..."], summand: Float[Array, "..."]
) -> Float[Array, "... a"]:
    """The distribution of factor * value + summand: each moved atom is shared out between its two neighbours.

    What leaves the range stays at its end.
    """
    values = atoms().reshape(*(1,) * factor.ndim, NUM_ATOMS)
    places = (jnp.clip(factor[..., None] * values + summand[..., None], -LARGEST, LARGEST) + LARGEST) / _STEP
    return (_scattered if jax.default_backend() == "cpu" else _compared)(places, probabilities)


def _scattered(places: Float[Array, "... a"], probabilities: Float[Array, "... a"]) -> Float[Array, "... a"]:
    """Each atom looks for its neighbours. On a CPU this takes much less time than comparing all pairs.

    Accelerators would add in another order each time, so a resumed run would differ.
    """
    below = jnp.minimum(jnp.floor(places), NUM_ATOMS - 2)
    upper = (places - below) * probabilities
    # All rows behind each other, and both neighbours of an atom at once: half the time of two additions.
    rows = probabilities.size // NUM_ATOMS
    index = below.astype(int).reshape(rows, NUM_ATOMS) + NUM_ATOMS * jnp.arange(rows)[:, None]
    both = jnp.stack([probabilities - upper, upper], axis=-1)
    numbers = jax.lax.ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(), scatter_dims_to_operand_dims=(0,)
    )
    moved: Array = jax.lax.scatter_add(
        jnp.zeros(rows * NUM_ATOMS), index.reshape(-1, 1), both.reshape(-1, 2), numbers, mode="drop"
    )
    return moved.reshape(probabilities.shape)


def _compared(places: Float[Array, "... a"], probabilities: Float[Array, "... a"]) -> Float[Array, "... a"]:
    """All pairs of moved and fixed atoms are compared."""
    fixed = jnp.arange(NUM_ATOMS).reshape(*(1,) * (places.ndim - 1), NUM_ATOMS, 1)
    nearness = jnp.maximum(1.0 - jnp.abs(places[..., None, :] - fixed), 0.0)
    return jnp.sum(nearness * probabilities[..., None, :], axis=-1)


def cross_entropy(logits: Float[Array, "... a"], target: Float[Array, "... a"]) -> Float[Array, "..."]:
    """The loss of predicting `logits` where the distribution is `target`."""
    # On a CPU, a product with ones takes much less time than a sum over the last axis.
    return jnp.matmul(-target * jax.nn.log_softmax(logits), jnp.ones(NUM_ATOMS), precision="highest")
