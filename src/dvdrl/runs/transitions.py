"""The transitions of a replay buffer on disk: one file per iteration, so that only new ones are written.

A checkpoint names the files of its replay buffer, with their digests. They are written before the checkpoint, and kept
as long as any checkpoint names them. A run can therefore be killed at any time.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from safetensors.numpy import save as to_bytes

from dvdrl import files
from dvdrl.runs import tensors
from dvdrl.runs.checkpoint import Damaged, Segment


def write(directory: Path, iteration: int, rows: Float[np.ndarray, "n row"]) -> Segment:
    """Write the transitions that an iteration has added."""
    files.make_folder(directory)
    rows = np.ascontiguousarray(rows)
    files.write_atomically(_path(directory, iteration), to_bytes({"rows": rows}), within=directory.parent)
    return Segment(iteration, len(rows), hashlib.sha256(rows.data).hexdigest())


def latest(segments: Sequence[Segment], capacity: int) -> tuple[Segment, ...]:
    """The last segments, as many as a full buffer needs."""
    stored, first = 0, len(segments)
    while first > 0 and stored < capacity:
        first -= 1
        stored += segments[first].num_rows
    return tuple(segments[first:])


def read(directory: Path, segments: Sequence[Segment]) -> Float[np.ndarray, "n row"]:
    """The transitions in all of these segments, in order.

    Raises:
        Damaged: a file is missing or has changed since it was written.
    """
    do_not_fit = Damaged(f"{directory}: the parts of the replay buffer do not make one")
    together, begin = np.empty((0, 0), np.float32), 0
    for segment in segments:
        path = _path(directory, segment.iteration)
        try:
            rows = tensors.read(path)[0]["rows"]
        except (OSError, KeyError, ValueError) as error:
            raise Damaged(f"{path}: not a part of a replay buffer that can be read: {error}") from error
        if hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest() != segment.sha256:
            raise Damaged(f"{path}: the file has changed since it was written")
        if begin == 0 and rows.ndim == 2:  # fill one array part by part: two might not fit into memory
            try:
                together = np.empty((sum(each.num_rows for each in segments), rows.shape[1]), np.float32)
            except (MemoryError, ValueError) as error:
                raise do_not_fit from error
        if rows.dtype != np.float32 or rows.shape != (segment.num_rows, *together.shape[1:]):
            raise do_not_fit
        together[begin : begin + len(rows)] = rows
        begin += len(rows)
    if not begin:
        raise do_not_fit
    return together


def remove_unused(directory: Path, oldest: Sequence[Segment]) -> None:
    """Remove the files that are older than those named by the oldest checkpoint."""
    first = oldest[0].iteration if oldest else 0
    for path in directory.glob("[0-9]*.safetensors"):
        if path.stem.isdecimal() and int(path.stem) < first:
            files.remove(path, within=directory.parent)


def _path(directory: Path, iteration: int) -> Path:
    return directory / f"{iteration:08d}.safetensors"
