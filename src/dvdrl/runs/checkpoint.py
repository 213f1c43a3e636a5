"""Checkpoints: everything that changes in a run, in one safetensors file per iteration.

A checkpoint is either complete or absent: the file is written under another name, flushed to disk and then renamed. It
holds arrays and JSON, so loading it runs no code. A digest of both reveals damage, for example by a failing disk.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save as to_bytes

from dvdrl import files
from dvdrl._version import __version__
from dvdrl.errors import DvdrlError
from dvdrl.runs import tensors as arrays
from dvdrl.runs.tensors import digest

Tree = TypeVar("Tree")
_SUFFIX = ".safetensors"
_MOST = 2**53
"""Up to here, a count is exact as a floating-point number too."""


class Damaged(DvdrlError):  # noqa: N818 - the name describes a file
    """A file is missing or has changed since it was written. An older checkpoint may be intact."""


class Segment(NamedTuple):
    """A file of transitions that were added to a replay buffer; see `dvdrl.runs.transitions`."""

    iteration: int
    num_rows: int
    sha256: str


class Progress(NamedTuple):
    """How far a run has come, stored beside the state of its algorithm."""

    iteration: int
    """Iterations completed."""
    env_steps: int
    seconds: float
    """Wall-clock time of training so far, resumed parts included."""
    replay: tuple[Segment, ...] = ()
    """The files that hold the contents of its replay buffer."""


def save(directory: Path, state: Any, progress: Progress) -> None:
    """Write a checkpoint of the state after an iteration."""
    files.make_folder(directory)
    tensors = {name: np.asarray(_data(leaf)) for name, leaf in _named(state)}
    about = json.dumps(progress._asdict())
    metadata = {"progress": about, "sha256": digest(tensors, about), "dvdrl": __version__}
    content = to_bytes(tensors, metadata=metadata)
    files.write_atomically(_path(directory, progress.iteration), content, within=directory.parent)


def keep_latest(directory: Path, number: int) -> None:
    """Remove all checkpoints except the latest `number`."""
    for path in _paths(directory)[:-number]:
        files.remove(path, within=directory.parent)


def iterations(directory: Path) -> list[int]:
    """The iterations that have a checkpoint, in ascending order."""
    return [int(path.stem) for path in _paths(directory)]


def load(directory: Path, like: Tree, iteration: int) -> tuple[Tree, Progress]:
    """The state after an iteration, with the structure of `like` (arrays or their shapes), and the progress.

    Raises:
        Damaged: the file has changed since it was written.
        DvdrlError: the file holds a state of another structure.
    """
    path = _path(directory, iteration)
    tensors, progress, made_by = _read(path)
    expected = dict(_named(like))
    forms = {name: (np.shape(_data(leaf)), np.dtype(_data(leaf).dtype)) for name, leaf in expected.items()}
    if forms != {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}:
        raise DvdrlError(
            f"{path}: not a state of the algorithm in config.json for dvdrl {__version__}; dvdrl {made_by} wrote the"
            " file and can continue the run, if config.json has not changed since"
        )
    leaves = [_as(leaf, tensors[name]) for name, leaf in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), progress


def load_tensor(directory: Path, iteration: int, name: str) -> np.ndarray:
    """One array of the state after an iteration, by the name of its field."""
    path = _path(directory, iteration)
    tensors = _read(path)[0]
    if f".{name}" not in tensors:
        raise DvdrlError(f"{path}: the state has no {name}")
    return tensors[f".{name}"]


def oldest_progress(directory: Path) -> Progress:
    """The progress in the oldest checkpoint that still exists."""
    path = _paths(directory)[0]
    try:
        return _progress(arrays.about(path).get("progress", ""))
    except (OSError, ValueError, TypeError) as error:
        raise Damaged(f"{path}: not a checkpoint that can be read: {error}") from error


def remove_after(directory: Path, iteration: int) -> None:
    """Remove the checkpoints of later iterations, the latest first, so that none of them is used again."""
    for path in reversed(_paths(directory)):
        if int(path.stem) > iteration:
            files.remove(path, within=directory.parent)


def _read(path: Path) -> tuple[dict[str, np.ndarray], Progress, str]:
    """The arrays, the progress, and the version of dvdrl that wrote them."""
    try:
        tensors, about = arrays.read(path)
    except (OSError, ValueError) as error:
        raise Damaged(f"{path}: not a checkpoint that can be read: {error}") from error
    if about.get("sha256") != digest(tensors, about.get("progress", "")):
        raise Damaged(f"{path}: the file has changed since it was written")
    try:
        return tensors, _progress(about.get("progress", "")), about.get("dvdrl", "of an earlier version")
    except (ValueError, TypeError) as error:
        raise Damaged(f"{path}: not a checkpoint that can be read: {error}") from error


def _progress(text: str) -> Progress:
    """Read a progress from JSON. Raises ValueError or TypeError if the text is not one."""
    try:
        values = dict(json.loads(text))
        replay = tuple(Segment(*each) for each in values.pop("replay", ()))
    except RecursionError as error:
        raise ValueError(str(error)) from error
    progress = Progress(**values, replay=replay)
    counts = [progress.iteration, progress.env_steps, *(n for each in replay for n in (each.iteration, each.num_rows))]
    whole = all(type(count) is int and 0 <= count < _MOST for count in counts)
    times = type(progress.seconds) is float and 0 <= progress.seconds < _MOST
    if not whole or not times or not all(isinstance(each.sha256, str) for each in replay):
        raise ValueError(f"expected counts and seconds, got {text[:200]!r}")
    return progress


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
    """A stored array with the type of the leaf. NumPy arrays stay on the host: JAX would not keep double precision."""
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
