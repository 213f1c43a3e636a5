"""Populations that a run keeps beside the latest: the best so far, each member's own best, and every N-th.

Each is one file in `kept/`, which is written before the checkpoint of its iteration. An older file is removed only when
no checkpoint needs it any more. So after any kill, and from any checkpoint, a run goes on to the same files.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from safetensors.numpy import save as to_bytes

from dvdrl import files
from dvdrl.errors import DvdrlError
from dvdrl.policies import Agents, Population
from dvdrl.runs import policies, tensors
from dvdrl.runs.tensors import digest

FOLDER = "kept"
Kind = Literal["best", "best-each", "every"]
_BY_RETURN: tuple[Kind, ...] = ("best", "best-each")


class Kept(NamedTuple):
    """A population that is kept."""

    population: Population
    returns: tuple[float, ...]
    """The mean return of each member from new starts; empty if it was not evaluated."""


class Keeper:
    """Keeps the best populations of one run.

    Args:
        run: the run directory.
        iteration: the iteration from which it is trained. What was kept later is removed, and will be kept again.
    """

    def __init__(self, run: Path, iteration: int):
        self._run = run
        for kind in ("best", "best-each", "every"):
            for later in iterations(run, kind):
                if later > iteration:
                    files.remove(_path(run, kind, later), within=run)
        self._best, self._each = (
            load(run, kind, found[-1]) if (found := iterations(run, kind)) else None for kind in _BY_RETURN
        )

    def evaluated(self, iteration: int, population: Population, returns: Float[np.ndarray, "M"]) -> None:
        """Keep the population if its mean return is the highest so far, and each member if its own is."""
        now = Kept(population, tuple(returns.tolist()))
        if self._best is None or np.mean(now.returns) > np.mean(self._best.returns):
            self._best = now
            _write(self._run, "best", iteration, now)
        own = _own_best(self._each, now)
        if own is not self._each:
            self._each = own
            _write(self._run, "best-each", iteration, own)

    def keep(self, iteration: int, population: Population) -> None:
        """Keep the population of an iteration, whatever its returns."""
        _write(self._run, "every", iteration, Kept(population, ()))

    def forget(self, oldest: int) -> None:
        """Remove what has been surpassed by the oldest checkpoint's iteration, and so is needed by none."""
        for kind in _BY_RETURN:
            surpassed = [iteration for iteration in iterations(self._run, kind) if iteration <= oldest][:-1]
            for iteration in surpassed:
                files.remove(_path(self._run, kind, iteration), within=self._run)


def iterations(run: Path, kind: Kind) -> list[int]:
    """The iterations of which populations of this kind are kept, in ascending order. The last one is the best."""
    named = (re.fullmatch(rf"{kind}-([0-9]{{8,18}})", path.stem) for path in (run / FOLDER).glob("*.safetensors"))
    return sorted(int(match[1]) for match in named if match)


def load(run: Path, kind: Kind, iteration: int) -> Kept:
    """A population that is kept.

    Raises:
        DvdrlError: the file is missing, holds something else, or has changed since it was written.
    """
    path = _path(run, kind, iteration)
    try:
        arrays, metadata = tensors.read(path)
        text = metadata.get("about", "")
        if metadata.get("sha256") != digest(arrays, text):
            raise ValueError("it has changed since it was written")
        about = json.loads(text)
        agents = Agents(*(arrays[name] for name in Agents._fields))
        population = policies.described_by(about, agents)
        returns = about["returns"]
        if not isinstance(returns, list) or len(returns) not in ((0,) if kind == "every" else (len(population),)):
            raise ValueError(f"expected returns of {len(population)} members")
        if not all(type(value) is float and np.isfinite(value) for value in returns):
            raise ValueError("expected returns that are finite")
        return Kept(population, tuple(returns))
    except policies.NOT_THAT as error:
        raise DvdrlError(
            f"{path}: no population to load: {type(error).__name__}: {error}; remove the file, and the run does without"
        ) from error


def _own_best(before: Kept | None, now: Kept) -> Kept:
    """Each member as it was when its return was highest; `before` itself if no member has risen above that."""
    if before is None:
        return Kept(_without_standing(now.population), now.returns)
    rises = np.asarray(now.returns) > np.asarray(before.returns)
    if not rises.any():
        return before
    agents: Agents = jax.tree.map(
        lambda new, old: np.where(rises[:, None], new, old), now.population.agents, before.population.agents
    )
    returns = tuple(np.where(rises, now.returns, before.returns).tolist())
    return Kept(_without_standing(now.population, agents), returns)


def _without_standing(population: Population, agents: Agents | None = None) -> Population:
    """Members of different iterations were never compared with each other."""
    return Population(population.task, population.policy, population.agents if agents is None else agents)


def _write(run: Path, kind: Kind, iteration: int, kept: Kept) -> None:
    files.make_folder(run / FOLDER)
    arrays = {name: np.ascontiguousarray(array) for name, array in kept.population.agents._asdict().items()}
    returns: Sequence[float] = kept.returns
    about: dict[str, Any] = {**policies.described(kept.population), "returns": list(returns)}
    text = json.dumps(about)
    content = to_bytes(arrays, metadata={"about": text, "sha256": digest(arrays, text)})
    files.write_atomically(_path(run, kind, iteration), content, within=run)


def _path(run: Path, kind: Kind, iteration: int) -> Path:
    return run / FOLDER / f"{kind}-{iteration:08d}.safetensors"
