"""Where stopped runs continue: at the latest intact checkpoints that have their metrics and transitions."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dvdrl import files
from dvdrl.errors import DvdrlError
from dvdrl.runs import checkpoint, kept, metrics, transitions
from dvdrl.runs.checkpoint import Damaged, Progress
from dvdrl.runs.trainer import Trainer

_WRITTEN = ("checkpoints", "policies", "replay", "tensorboard", kept.FOLDER)
"""The folders of a run that training writes to."""


class Found(NamedTuple):
    """What a run continues from."""

    state: Any
    progress: Progress
    transitions: Any
    """The transitions in its replay buffer; None if it is empty."""


def latest(directories: Sequence[Path], finished: Sequence[bool], trainer: Trainer) -> list[Found]:
    """Where runs continue together; an empty list if none of them has completed an iteration.

    Some runs may have ended. Damaged checkpoints are reported on standard error and skipped.

    Raises:
        DvdrlError: runs have completed iterations, but no usable checkpoint is left.
    """
    known = [lines(each) for each in directories]
    saved = [set(checkpoint.iterations(each / "checkpoints")) for each in directories]
    if not any(known) and all(each <= {0} for each in saved):
        return []
    # A checkpoint without its metrics is useless. If all metrics are lost, so is the checkpoint of iteration 0.
    saved = [
        {n for n in each if n <= len(of_run) and (of_run or max(each) <= 1)}
        for each, of_run in zip(saved, known, strict=True)
    ]
    while chosen := together(saved, finished, apart=not trainer.replay_capacity):
        try:
            return [_load(path, n, trainer, each) for path, n, each in zip(directories, chosen, saved, strict=True)]
        except Damaged as error:
            print(f"dvdrl: {error}; looking for an earlier checkpoint", file=sys.stderr)
    where = directories[0] if len(directories) == 1 else directories[0].parent
    raise DvdrlError(f"{where}: no checkpoint that is intact and has its metrics; start the run anew")


def together(saved: Sequence[set[int]], finished: Sequence[bool], *, apart: bool) -> list[int]:
    """The checkpoint from which each run continues; an empty list if there is none.

    If training was killed between the checkpoints of two runs, the runs can be one iteration apart. They continue from
    the latest iteration that all of them have. Runs of ES need not be in the same iteration (`apart`) and may finish at
    different times. A finished one stays at its end. If such runs are to go on after their ends, each continues there.
    """
    waiting = [ended and apart for ended in finished]
    going = [each for each, waits in zip(saved, waiting, strict=True) if not waits]
    common = set.intersection(*going) if going else set()
    if apart and all(saved) and not common:
        return [max(each) for each in saved]
    if not all(saved) or (going and not common):
        return []
    return [max(each) if waits else max(common) for each, waits in zip(saved, waiting, strict=True)]


def lines(directory: Path) -> list[dict[str, Any]]:
    """The metrics of a run that will be continued: one line for each iteration, starting with the first."""
    path = directory / "metrics.jsonl"
    found = metrics.read(path)
    for number, line in enumerate(found, 1):
        if line["iteration"] != number:
            raise DvdrlError(f"{path}, line {number}: expected iteration {number}, got {line['iteration']}")
    return found


def refuse_links(directory: Path) -> None:
    """Refuse links in a run directory: somebody else may have made them, and training would write where they lead."""
    folders = [directory, *(directory / name for name in _WRITTEN)]
    for path in (path for folder in folders if folder.is_dir() for path in folder.iterdir()):
        if path.is_symlink():
            raise DvdrlError(f"{path} is a link, and training would write where it leads; replace it with a copy")


def remove_partial(directory: Path) -> None:
    """Remove files that training was writing when it was killed. Files of other commands, such as videos, stay."""
    begun = [directory / f".{name}{files.PARTIAL}" for name in ("config.json", "record.json")]
    for partial in (
        *begun,
        *(path for name in _WRITTEN for path in (directory / name).glob(f".*{files.PARTIAL}")),
    ):
        files.remove(partial, within=directory)


def _load(directory: Path, iteration: int, trainer: Trainer, saved: set[int]) -> Found:
    """The state, progress and transitions of a checkpoint. If it is damaged, remove it from `saved`."""
    try:
        state, progress = checkpoint.load(directory / "checkpoints", trainer.like(), iteration)
        if progress.iteration != iteration:
            raise Damaged(f"{directory}: the checkpoint of iteration {iteration} is that of {progress.iteration}")
        replay = trainer.replay_capacity and iteration
        return Found(state, progress, transitions.read(directory / "replay", progress.replay) if replay else None)
    except Damaged:
        saved.remove(iteration)
        raise
