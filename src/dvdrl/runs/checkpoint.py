"""Checkpoints: everything that changes, in one safetensors file an iteration, whole or not there at all.

A file is written beside its place, flushed to disk and renamed. It holds arrays and JSON, so loading runs no code, and
a digest of them, so one that a failing disk has changed is not taken for a state.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from dvdrl.errors import DvdrlError

Tree = TypeVar("Tree")
_SUFFIX = ".safetensors"


class Segment(NamedTuple):
    """A file of transitions that a replay buffer was given; see `dvdrl.runs.transitions`."""

    iteration: int
    num_rows: int
    sha256: str


class Progress(NamedTuple):
    """What a run counts beside the state of its algorithm."""

    iteration: int
    """Iterations completed."""
    env_steps: int
    seconds: float
    """Wall-clock time since the run began, resumes included."""
    replay: tuple[Segment, ...] = ()
    """What its replay buffer is made of."""


def save(directory: Path, state: Any, progress: Progress, *, keep: int) -> None:
    """Write the checkpoint of an iteration and remove all but the `keep` latest."""
    directory.mkdir(exist_ok=True)
    tensors = {name: np.asarray(_data(leaf)) for name, leaf in _named(state)}
    about = json.dumps(progress._asdict())
    content = to_bytes(tensors, metadata={"progress": about, "sha256": _digest(tensors, about)})
    write_atomically(directory / f"{progress.iteration:08d}{_SUFFIX}", content)
    for path in _paths(directory)[:-keep]:
        path.unlink()


def iterations(directory: Path) -> list[int]:
    """Which iterations there are checkpoints of, in order."""
    return [int(path.stem) for path in _paths(directory)]


def load(directory: Path, like: Tree, iteration: int) -> tuple[Tree, Progress]:
    """The state of an iteration, in the form of `like` (arrays or their shapes), and the progress at it.

    Raises:
        DvdrlError: the file is damaged, or of a state of another form.
    """
    path = directory / f"{iteration:08d}{_SUFFIX}"
    tensors, progress = _read(path)
    expected = dict(_named(like))
    shapes = {name: np.shape(_data(leaf)) for name, leaf in expected.items()}
    if shapes != {name: tensor.shape for name, tensor in tensors.items()}:
        raise DvdrlError(f"{path}: the state of another configuration than config.json has")
    leaves = [_as(leaf, tensors[name]) for name, leaf in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), progress


def load_tensor(directory: Path, iteration: int, name: str) -> np.ndarray:
    """One array of the state of an iteration, by the name of its field."""
    return _read(directory / f"{iteration:08d}{_SUFFIX}")[0][f".{name}"]


def oldest_progress(directory: Path) -> Progress:
    """The progress at the oldest checkpoint that is kept."""
    with safe_open(_paths(directory)[0], framework="numpy") as file:
        return _progress((file.metadata() or {})["progress"])


def _read(path: Path) -> tuple[dict[str, np.ndarray], Progress]:
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (OSError, SafetensorError) as error:
        raise DvdrlError(f"{path}: not a checkpoint that can be read: {error}") from error
    progress = about.get("progress", "")
    if about.get("sha256") != _digest(tensors, progress):
        raise DvdrlError(f"{path}: the file has changed since it was written; remove it to use an earlier one")
    return tensors, _progress(progress)


def _progress(text: str) -> Progress:
    values = json.loads(text)
    return Progress(**values | {"replay": tuple(Segment(*each) for each in values.get("replay", ()))})


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Have the file either as it was or with all of the content, whenever the process is killed.

    durable: also when the machine stops; that waits for the disk.
    """
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(partial, path)
    if not durable:
        return
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _paths(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"[0-9]*{_SUFFIX}"))


def _named(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _as(leaf: Any, tensor: np.ndarray) -> Any:
    """A stored array in the form of the leaf: on the host where that is, as JAX would not keep double precision."""
    if isinstance(leaf, np.ndarray):
        return tensor
    return jax.random.wrap_key_data(jnp.asarray(tensor)) if _is_key(leaf) else jnp.asarray(tensor)


def _data(leaf: Any) -> Any:
    if not _is_key(leaf):
        return leaf
    return (
        jax.eval_shape(jax.random.key_data, leaf)
        if isinstance(leaf, jax.ShapeDtypeStruct)
        else jax.random.key_data(leaf)
    )


def _digest(tensors: dict[str, np.ndarray], about: str) -> str:
    digest = hashlib.sha256(about.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()
