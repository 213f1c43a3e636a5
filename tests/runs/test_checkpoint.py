from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl.errors import DvdrlError
from dvdrl.runs import checkpoint
from dvdrl.runs.checkpoint import Progress

STATE = {
    "key": jax.random.key(7),
    "nested": (jnp.arange(6.0).reshape(2, 3), jnp.asarray(3, jnp.int32)),
    "empty": jnp.zeros((0,)),
}


def like(state: Any) -> Any:
    return jax.eval_shape(lambda: state)


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, STATE, Progress(4, 100, 1.5))
    state, progress = checkpoint.load(tmp_path, like(STATE), 4)
    assert progress == Progress(4, 100, 1.5)
    assert jax.random.key_data(state["key"]).tolist() == jax.random.key_data(STATE["key"]).tolist()
    for left, right in zip(jax.tree.leaves(state["nested"]), jax.tree.leaves(STATE["nested"]), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    assert state["empty"].shape == (0,)


def test_the_latest_are_kept_and_what_was_cut_short_is_not_one(tmp_path: Path) -> None:
    for iteration in range(12):
        checkpoint.save(tmp_path, STATE, Progress(iteration, 0, 0.0))
        checkpoint.keep_latest(tmp_path, 2)
    (tmp_path / ".00000012.safetensors.partial").write_bytes(b"half")
    assert checkpoint.iterations(tmp_path) == [10, 11]


def test_a_changed_bit_is_found(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, STATE, Progress(1, 0, 0.0))
    path = tmp_path / "00000001.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # in the last tensor
    path.write_bytes(content)
    with pytest.raises(DvdrlError, match="has changed since it was written"):
        checkpoint.load(tmp_path, like(STATE), 1)
    path.write_bytes(content[:40])
    with pytest.raises(DvdrlError, match="not a checkpoint that can be read"):
        checkpoint.load(tmp_path, like(STATE), 1)


def test_the_state_of_another_configuration_is_refused(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, STATE, Progress(1, 0, 0.0))
    with pytest.raises(DvdrlError, match="not a state of the algorithm in"):
        checkpoint.load(tmp_path, like({**STATE, "empty": jnp.zeros((1,))}), 1)
