"""The transitions that a replay buffer was given, on disk: a file an iteration, so that only what is new is written.

A checkpoint names the files that its replay buffer is made of, with their digests. They are written before it and kept
for as long as a checkpoint names them, so it does not matter when a run is killed.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.numpy import save as to_bytes

from dvdrl.runs.checkpoint import Damaged, Segment, write_atomically


def write(directory: Path, iteration: int, rows: Float[np.ndarray, "n row"]) -> Segment:
    """Write what an iteration has added."""
    directory.mkdir(exist_ok=True)
    rows = np.ascontiguousarray(rows)
    write_atomically(_path(directory, iteration), to_bytes({"rows": rows}))
    return Segment(iteration, len(rows), hashlib.sha256(rows.data).hexdigest())


def latest(segments: Sequence[Segment], capacity: int) -> tuple[Segment, ...]:
    """As many of the last ones as hold a full buffer."""
    stored, first = 0, len(segments)
    while first > 0 and stored < capacity:
        first -= 1
        stored += segments[first].num_rows
    return tuple(segments[first:])


def read(directory: Path, segments: Sequence[Segment]) -> Float[np.ndarray, "n row"]:
    """What was added in all of these, in order.

    Raises:
        Damaged: a file is missing, or not as it was written.
    """
    do_not_fit = Damaged(f"{directory}: the parts of the replay buffer do not make one")
    together, begin = np.empty((0, 0), np.float32), 0
    for segment in segments:
        path = _path(directory, segment.iteration)
        try:
            rows = load_file(path)["rows"]
        except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
            raise Damaged(f"{path}: not a part of a replay buffer that can be read: {error}") from error
        if hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest() != segment.sha256:
            raise Damaged(f"{path}: the file has changed since it was written")
        if begin == 0 and rows.ndim == 2:  # one array for all, filled part by part: there need not be memory for two
            try:
                together = np.empty((sum(each.num_rows for each in segments), rows.shape[1]), rows.dtype)
            except (MemoryError, ValueError) as error:
                raise do_not_fit from error
        if rows.dtype != together.dtype or rows.shape != (segment.num_rows, *together.shape[1:]):
            raise do_not_fit
        together[begin : begin + len(rows)] = rows
        begin += len(rows)
    if not begin:
        raise do_not_fit
    return together


def remove_unused(directory: Path, oldest: Sequence[Segment]) -> None:
    """Remove the files from before those that the oldest checkpoint names."""
    first = oldest[0].iteration if oldest else 0
    for path in directory.glob("[0-9]*.safetensors"):
        if path.stem.isdecimal() and int(path.stem) < first:
            path.unlink()


def _path(directory: Path, iteration: int) -> Path:
    return directory / f"{iteration:08d}.safetensors"
