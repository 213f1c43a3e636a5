"""The ring: every row is its own index, so that a misplaced one shows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dvdrl.off_policy import Transitions, pack, replay, unpack


def numbered(first: int, count: int, width: int = 3) -> jnp.ndarray:
    return jnp.asarray(np.tile(np.arange(first, first + count, dtype=np.float32)[:, None], (1, width)))


# Few sizes, as each is compiled: corners and the middle of one to four members with one to five slots each.
SIZES = [(1, 1), (1, 5), (2, 3), (3, 2), (4, 1), (4, 5)]


@given(sizes=st.sampled_from(SIZES), adds=st.integers(1, 12), seed=st.integers(0, 99))
def test_the_latest_are_kept_and_drawn_for_their_member(sizes: tuple[int, int], adds: int, seed: int) -> None:
    population, slots = sizes
    memory = replay.empty(population * slots, 3)
    for step in range(adds):
        memory = replay.add(memory, numbered(step * population, population))
    total = adds * population
    oldest = max(0, total - population * slots)
    assert int(memory.num_added) == total
    assert sorted(np.asarray(memory.rows)[:, 0].tolist())[-min(total, population * slots) :] == list(
        range(oldest, total)
    )
    for bootstrapping in ("collector", "random"):
        indices = replay.sample(jax.random.key(seed), memory, (4, 7), population, bootstrapping)
        drawn = np.asarray(memory.rows)[np.asarray(indices)]
        assert (drawn == drawn[..., :1]).all()  # whole rows
        assert drawn.min() >= oldest
        assert drawn.max() < total
        if bootstrapping == "collector":  # transition g was collected by member g mod M, and is at a place for it
            np.testing.assert_array_equal(drawn[..., 0] % population, np.tile(np.arange(7) % population, (4, 1)))


def test_who_began_anew_draws_what_came_later() -> None:
    # Two members with five slots each. Seven transitions of each were added, so numbers 2 to 6 are left.
    memory = replay.empty(10, 3)
    for step in range(7):
        memory = replay.add(memory, numbered(2 * step, 2))
    for since, numbers in (((0, 0), (2, 2)), ((0, 5), (2, 5)), ((6, 3), (6, 3))):
        indices = replay.sample_since(jax.random.key(0), memory, (50, 2, 7), jnp.asarray(since))
        drawn = np.asarray(memory.rows)[np.asarray(indices)][..., 0]
        for member, first in enumerate(numbers):  # transition g is number g // 2 of member g mod 2
            assert set(drawn[:, member].ravel()) == {2 * number + member for number in range(first, 7)}


def test_draws_are_uniform_over_what_is_stored() -> None:
    memory = replay.add(replay.empty(40, 1), numbered(0, 10, 1))
    memory = replay.add(memory, numbered(10, 10, 1))
    for bootstrapping in ("collector", "random"):
        counts = np.bincount(
            np.asarray(replay.sample(jax.random.key(0), memory, (1000, 20), 2, bootstrapping)).ravel(), minlength=40
        )
        assert (counts[20:] == 0).all()  # not yet written
        # 20,000 draws over 20 rows: 1000 each with a deviation of 31; within 4.5 of them.
        np.testing.assert_allclose(counts[:20], 1000, atol=140)


def test_rows_hold_transitions() -> None:
    rng = np.random.default_rng(0)
    transitions = Transitions(*(rng.normal(size=shape) for shape in ((5, 3), (5, 2), (5,), (5,), (5, 3))))
    rows = pack(transitions)
    assert rows.shape == (5, replay.row_size(3, 2))
    for left, right in zip(unpack(rows, 3), transitions, strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_number_that_does_not_divide_the_capacity_is_refused() -> None:
    with pytest.raises(ValueError, match="divides the capacity 10, got 3"):
        replay.add(replay.empty(10, 3), numbered(0, 3))
