"""Checkpoints: everything that changes, in one safetensors file an iteration, whole or not there at all.

A file is written beside its place, flushed to disk and renamed. It holds arrays and JSON, so loading runs no code, and
a digest of them, so one that a failing disk has changed is not taken for a state.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from dvdrl._version import __version__
from dvdrl.errors import DvdrlError

Tree = TypeVar("Tree")
_SUFFIX = ".safetensors"
PARTIAL = ".partial"
"""Ends the names of files that are being written."""


class Damaged(DvdrlError):  # noqa: N818 - what it says of a file
    """A file is not as it was written. There may be an older one that is."""


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


def save(directory: Path, state: Any, progress: Progress) -> None:
    """Write the checkpoint of an iteration."""
    directory.mkdir(exist_ok=True)
    tensors = {name: np.asarray(_data(leaf)) for name, leaf in _named(state)}
    about = json.dumps(progress._asdict())
    metadata = {"progress": about, "sha256": digest(tensors, about), "dvdrl": __version__}
    content = to_bytes(tensors, metadata=metadata)
    write_atomically(_path(directory, progress.iteration), content)


def keep_latest(directory: Path, number: int) -> None:
    """Remove all checkpoints but the latest."""
    for path in _paths(directory)[:-number]:
        path.unlink()


def iterations(directory: Path) -> list[int]:
    """Which iterations there are checkpoints of, in order."""
    return [int(path.stem) for path in _paths(directory)]


def load(directory: Path, like: Tree, iteration: int) -> tuple[Tree, Progress]:
    """The state of an iteration, in the form of `like` (arrays or their shapes), and the progress at it.

    Raises:
        Damaged: the file is not as it was written.
        DvdrlError: it holds a state of another form.
    """
    path = _path(directory, iteration)
    tensors, progress, made_by = _read(path)
    expected = dict(_named(like))
    forms = {name: (np.shape(_data(leaf)), np.dtype(_data(leaf).dtype)) for name, leaf in expected.items()}
    if forms != {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}:
        raise DvdrlError(
            f"{path}: not a state of the algorithm in config.json, as dvdrl {__version__} has it; dvdrl {made_by} wrote"
            " the file and can continue it, if config.json is as it was then"
        )
    leaves = [_as(leaf, tensors[name]) for name, leaf in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), progress


def load_tensor(directory: Path, iteration: int, name: str) -> np.ndarray:
    """One array of the state of an iteration, by the name of its field."""
    path = _path(directory, iteration)
    tensors = _read(path)[0]
    if f".{name}" not in tensors:
        raise DvdrlError(f"{path}: a state without {name}")
    return tensors[f".{name}"]


def oldest_progress(directory: Path) -> Progress:
    """The progress at the oldest checkpoint that is kept."""
    path = _paths(directory)[0]
    try:
        with safe_open(path, framework="numpy") as file:
            return _progress((file.metadata() or {}).get("progress", ""))
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        raise Damaged(f"{path}: not a checkpoint that can be read: {error}") from error


def remove_after(directory: Path, iteration: int) -> None:
    """Remove the checkpoints of later iterations, the latest first, so that none is taken up again."""
    for path in reversed(_paths(directory)):
        if int(path.stem) > iteration:
            path.unlink()


def _read(path: Path) -> tuple[dict[str, np.ndarray], Progress, str]:
    """The arrays, the progress and the version of dvdrl that wrote them."""
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (OSError, SafetensorError, TypeError, AttributeError, ValueError) as error:
        raise Damaged(f"{path}: not a checkpoint that can be read: {error}") from error
    if about.get("sha256") != digest(tensors, about.get("progress", "")):
        raise Damaged(f"{path}: the file has changed since it was written")
    try:
        return tensors, _progress(about.get("progress", "")), about.get("dvdrl", "of an earlier version")
    except (ValueError, TypeError) as error:
        raise Damaged(f"{path}: not a checkpoint that can be read: {error}") from error


def _progress(text: str) -> Progress:
    """What is no progress is a ValueError or a TypeError."""
    try:
        values = dict(json.loads(text))
        replay = tuple(Segment(*each) for each in values.pop("replay", ()))
    except RecursionError as error:
        raise ValueError(str(error)) from error
    progress = Progress(**values, replay=replay)
    counts = [progress.iteration, progress.env_steps, *(n for each in replay for n in (each.iteration, each.num_rows))]
    if not all(type(count) is int and count >= 0 for count in counts) or type(progress.seconds) is not float:
        raise ValueError(f"expected counts and seconds, got {text[:200]!r}")
    return progress


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Have the file either as it was or with all of the content, whenever the process is killed.

    durable: also when the machine stops; that waits for the disk.
    """
    partial = path.with_name(f".{path.name}{PARTIAL}")
    partial.unlink(missing_ok=True)
    try:
        with open(partial, "xb") as file:  # a new file, never where a link in somebody's directory leads
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)  # half a file on a full disk is of no use to anybody
        raise
    if not durable:
        return
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _paths(directory: Path) -> list[Path]:
    found = (path for path in directory.glob(f"*{_SUFFIX}") if re.fullmatch("[0-9]{8,18}", path.stem))
    return sorted(found, key=lambda path: int(path.stem))


def _path(directory: Path, iteration: int) -> Path:
    return directory / f"{iteration:08d}{_SUFFIX}"


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


def digest(tensors: Mapping[str, np.ndarray], about: str = "") -> str:
    """Of arrays with their names, and what is said about them."""
    digest = hashlib.sha256(about.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        digest.update(np.ascontiguousarray(tensor).data)
    return digest.hexdigest()
