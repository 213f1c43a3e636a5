"""From where stopped runs go on: the latest checkpoints that are intact, with the metrics and transitions they need."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dvdrl.errors import DvdrlError
from dvdrl.runs import checkpoint, metrics, transitions
from dvdrl.runs.checkpoint import Damaged, Progress
from dvdrl.runs.trainer import Trainer

_WRITTEN = ("checkpoints", "policies", "replay", "tensorboard")
"""The folders of a run that training writes to."""


class Found(NamedTuple):
    """What a run goes on from."""

    state: Any
    progress: Progress
    transitions: Any
    """Of its replay buffer; None if there is nothing in it."""


def latest(directories: Sequence[Path], finished: Sequence[bool], trainer: Trainer) -> list[Found]:
    """From where runs, some of which may be finished, go on together; nothing if none of them has had an iteration.

    What is damaged is named on standard error and passed over.

    Raises:
        DvdrlError: they have had some, and nothing is left of it that could be used.
    """
    known = [lines(each) for each in directories]
    saved = [set(checkpoint.iterations(each / "checkpoints")) for each in directories]
    if not any(known) and all(each <= {0} for each in saved):
        return []
    # A checkpoint of which the metrics are lost is of no use; nor, where all are lost, is the one before them.
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
    """From which of its checkpoints each run goes on; none if that is impossible.

    Killed between two of them, runs can be an iteration apart: they go on from the latest that all of them have. Those
    of ES, which need not be in the same iteration (`apart`), may have finished at different times: such a run waits at
    its end.
    """
    waiting = [ended and apart for ended in finished]
    going = [each for each, waits in zip(saved, waiting, strict=True) if not waits]
    common = set.intersection(*going) if going else set()
    if not all(saved) or (going and not common):
        return []
    return [max(each) if waits else max(common) for each, waits in zip(saved, waiting, strict=True)]


def lines(directory: Path) -> list[dict[str, Any]]:
    """The metrics of a run that is to be continued: a line for each iteration, from the first on."""
    path = directory / "metrics.jsonl"
    found = metrics.read(path)
    for number, line in enumerate(found, 1):
        if line["iteration"] != number:
            raise DvdrlError(f"{path}, line {number}: expected iteration {number}, got {line['iteration']}")
    return found


def refuse_links(directory: Path) -> None:
    """Refuse to write where links in a run directory, which somebody else may have made, lead."""
    folders = [directory, *(directory / name for name in _WRITTEN)]
    for path in (path for folder in folders if folder.is_dir() for path in folder.iterdir()):
        if path.is_symlink():
            raise DvdrlError(f"{path} is a link, and training would write where it leads; put a copy in its place")


def remove_partial(directory: Path) -> None:
    """Remove the files that were being written when a run was killed; what others write there, as films, is theirs."""
    begun = [directory / f".{name}{checkpoint.PARTIAL}" for name in ("config.json", "record.json")]
    for partial in (
        *begun,
        *(path for name in _WRITTEN for path in (directory / name).glob(f".*{checkpoint.PARTIAL}")),
    ):
        partial.unlink(missing_ok=True)


def _load(directory: Path, iteration: int, trainer: Trainer, saved: set[int]) -> Found:
    """The state, the progress and the transitions of a checkpoint; if damaged, it is no longer one of those saved."""
    try:
        state, progress = checkpoint.load(directory / "checkpoints", trainer.like(), iteration)
        if progress.iteration != iteration:
            raise Damaged(f"{directory}: the checkpoint of iteration {iteration} is that of {progress.iteration}")
        replay = trainer.replay_capacity and iteration
        return Found(state, progress, transitions.read(directory / "replay", progress.replay) if replay else None)
    except Damaged:
        saved.remove(iteration)
        raise
