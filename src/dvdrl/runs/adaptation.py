"""Adaptation: which member of a trained population to use on a robot that has changed, found in a few trials.

The members are the arms of `dvdrl.arms`, and what they return on the unchanged task is the prior. A trial is an episode
of one member: on the perturbed task, or on whatever the user calls, such as a real robot.
"""

import contextlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Never

import numpy as np
from jaxtyping import Float

from dvdrl import arms, files
from dvdrl.errors import DvdrlError, expect
from dvdrl.interfaces import Rollouts
from dvdrl.policies import Agents, Member, Population
from dvdrl.rollouts import Compiled, Local
from dvdrl.rollouts.measures import Measures
from dvdrl.runs.changes import refuse_edited
from dvdrl.runs.directory import Which, existing_run, population_of
from dvdrl.runs.file import refuse_unknown_module
from dvdrl.runs.tensors import digest
from dvdrl.runs.trainer import make_envs, make_local, task_of
from dvdrl.runs.training import Training
from dvdrl.tasks.perturbations import UNPERTURBED, Perturb
from dvdrl.tasks.perturbations import described as perturbed

UNDAMAGED_SEED, TRIAL_SEED, FRESH_SEED = 1_000_000, 2_000_000, 3_000_000
"""The seeds of the first starts: of episodes on the unchanged task, as in `dvdrl evaluate`; of trials; and of fresh
episodes on the perturbed task."""
_MOST_TRIALS = 10_000


class Simulations:
    """Episodes of a run's members on its task, perturbed or not."""

    def __init__(self, options: Training[Never], population: Population):
        self._options, self._population = options, population
        # Tasks of the host engine perturb each simulation in its own way, all others all environments alike.
        self._each_its_own = task_of(options) is not None
        self._kept: dict[str, Local | Compiled] = {}

    def returns(
        self, members: Sequence[int], starts: Sequence[int], perturb: Sequence[Perturb]
    ) -> Float[np.ndarray, " n"]:
        """The return of each episode: a member, the seed of a start, and perturbations.

        Raises:
            DvdrlError: a member puts out what is not finite, or the task cannot be perturbed so.
        """
        rows, seeds = np.asarray(members), np.asarray(starts, np.uint32)
        if self._each_its_own:
            local = make_local(self._options, self._population.policy, Measures(), perturb)
            with contextlib.closing(local):
                return self._run(local, rows, seeds)
        found = np.zeros(len(rows))
        keys = [json.dumps(dict(each)) for each in perturb]
        for key in dict.fromkeys(keys):
            which = np.flatnonzero([each == key for each in keys])
            if key not in self._kept:
                self._kept[key] = make_local(self._options, self._population.policy, Measures(), json.loads(key))
            found[which] = self._run(self._kept[key], rows[which], seeds[which])
        return found

    def close(self) -> None:
        """Free the environments."""
        for local in self._kept.values():
            local.close()

    def undamaged(self, episodes: int) -> Float[np.ndarray, "M episodes"]:
        """The returns of all members on the unchanged task."""
        members = range(len(self._population))
        returns: Float[np.ndarray, "M episodes"] = self.fresh(episodes, members, [UNPERTURBED], UNDAMAGED_SEED)[0]
        return returns

    def fresh(
        self, episodes: int, members: Sequence[int], perturb: Sequence[Perturb], seed: int = FRESH_SEED
    ) -> Float[np.ndarray, "perturb members episodes"]:
        """The returns of some members on perturbed tasks, all from the same new starts."""
        shape = len(perturb), len(members), episodes
        which, place, number = (axis.ravel() for axis in np.indices(shape))
        rows = np.asarray(members)[place]
        return self.returns(rows.tolist(), (seed + number).tolist(), [perturb[i] for i in which]).reshape(shape)

    def trials(self, members: Sequence[int], numbers: Sequence[int], perturb: Sequence[Perturb]) -> list[float]:
        """The returns of trials with these numbers."""
        found: list[float] = self.returns(members, [TRIAL_SEED + number for number in numbers], perturb).tolist()
        return found

    def _run(self, local: Local | Compiled, rows: Any, starts: Any) -> Float[np.ndarray, " n"]:
        agents = Agents(*(array[rows] for array in self._population.agents))
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is looked at below
            episodes = local.run(Rollouts(rows, agents, starts, np.zeros((len(rows), 2), np.uint32)))
        returns = np.asarray(episodes.returns, np.float64)
        if not (finite := np.isfinite(returns)).all():
            raise DvdrlError(f"members {np.unique(rows[~finite]).tolist()} put out numbers that are not finite")
        return returns


@dataclass
class Log:
    """The trials on one changed robot."""

    state: arms.State
    tried: list[tuple[int, float]] = field(default_factory=list)
    """The member and the return of each."""

    def add(self, member: int, returned: float) -> None:
        """One more trial."""
        self.state = arms.update(self.state, member, returned)
        self.tried.append((member, returned))

    @property
    def member(self) -> int:
        """The member to use."""
        return arms.chosen(self.state)


def try_members(logs: Sequence[Log], most: int, run: Callable[[Sequence[int], Sequence[int]], Iterable[float]]) -> None:
    """Do trials on several changed robots side by side, until each has its member.

    Args:
        logs: of the robots; the trials are added.
        most: trials of each.
        run: the places of some of the robots, and a member for each -> the return of a trial on each.
    """
    while True:
        selected = [arms.select(log.state, most) for log in logs]
        asked = {place: member for place, member in enumerate(selected) if member is not None}
        if not asked:
            return
        for place, returned in zip(asked, run([*asked], [*asked.values()]), strict=True):
            logs[place].add(asked[place], returned)


def adapt(
    directory: Path | str,
    trial: Callable[[Member], float] | None = None,
    *,
    perturb: Perturb = UNPERTURBED,
    trials: int | None = None,
    episodes: int = 10,
    which: Which = "last",
    state: Path | str | None = None,
) -> dict[str, Any]:
    """Choose the member of a run that is best on a changed robot, in few trials.

    Args:
        directory: the run directory.
        trial: does one episode on the changed robot with the member that it gets, by `member.act(obs)`, and returns the
            episode's return. Default: an episode on the task, with `perturb`.
        perturb: how the task is changed, such as {"motor:hip_1": 0}; see docs/adapt.md. Not together with `trial`.
        trials: the most trials. Default: twice the number of members. Most often fewer are needed.
        episodes: episodes of each member on the unchanged task before the trials; and after them, of the chosen one on
            the perturbed task. With `trial` there are none after them.
        which: which population: "last", "best", "best-each" or an iteration; see docs/runs.md.
        state: a file that keeps the trials. It is written after each. If it exists, they count, and what is in it about
            the unchanged task is not computed again.

    Returns:
        `member`; `trials`, how many were needed; `return`, its mean return in fresh episodes on the perturbed task, or
        with `trial` what the trials say; `undamaged_best`, the member that is best on the unchanged task, and
        `undamaged_best_return`, what it returns in those fresh episodes; `undamaged_returns` of all members on the
        unchanged task; and `tried`, the member and the return of each trial.
    """
    for name, value in (("episodes", episodes), ("trials", 1 if trials is None else trials)):
        expect(name, value, int)
    expect("perturb", perturb, Mapping)
    if trial is not None and not callable(trial):
        raise DvdrlError(f"trial: expected a function of a member, got {trial!r}")
    if episodes < 1:
        raise DvdrlError(f"episodes: expected at least 1, got {episodes}")
    if trial is not None and perturb:
        raise DvdrlError("perturb: is for the simulation; what `trial` does its trials on cannot be changed from here")
    run = existing_run(directory)
    options, (iteration, population) = run.config, population_of(run, which)
    refuse_edited(run)
    refuse_unknown_module(options)
    trials = 2 * len(population) if trials is None else trials
    if not 1 <= trials <= _MOST_TRIALS:
        raise DvdrlError(f"trials: expected 1 to {_MOST_TRIALS}, got {trials}")
    if trial is None:  # what cannot be is refused before anything is computed
        make_envs(options, perturb)(1).close()
    perturb = {name: float(value) for name, value in perturb.items()}  # they may be NumPy's, which JSON does not know
    about = {"digest": digest(population.agents._asdict()), "perturb": perturb}
    with contextlib.closing(Simulations(options, population)) as simulations:
        log = _load(Path(state), about, len(population)) if state is not None else None
        if log is None:
            undamaged = simulations.undamaged(episodes)
            log = Log(arms.init(undamaged.mean(axis=1), undamaged.std(axis=1)))
            if state is not None:  # a file that cannot be written is found before a trial is lost
                _save(Path(state), about, log, [])
        known = log

        def run_one(places: Sequence[int], members: Sequence[int]) -> Iterable[float]:  # noqa: ARG001 - there is one
            number = len(known.tried)
            returned = (
                simulations.trials(members, [number], [perturb])[0]
                if trial is None
                else _returned(trial(population[members[0]]))
            )
            if state is not None:
                _save(Path(state), about, known, [*known.tried, (members[0], returned)])
            return [returned]

        try_members([log], trials, run_one)
        best = int(np.argmax(log.state.prior))
        result = {
            "task": options.task,
            "algorithm": options.algorithm,
            "iteration": iteration,
            "perturb": perturb,
            "member": log.member,
            "trials": len(log.tried),
            "return": float(arms.belief(log.state).means[log.member]),
            "undamaged_best": best,
            "undamaged_returns": log.state.prior.tolist(),
            "tried": [list(each) for each in log.tried],
        }
        if trial is None:
            chosen, without = simulations.fresh(episodes, [log.member, best], [perturb])[0].mean(axis=1).tolist()
            result |= {"episodes": episodes, "return": chosen, "undamaged_best_return": without}
    return result


def described(result: Mapping[str, Any]) -> list[str]:
    """What `adapt` returned, as lines for readers."""
    task = f"{result['task']}{perturbed(result['perturb'])}"
    lines = [f"{result['algorithm']} on {task}, iteration {result['iteration']}"]
    for number, (member, returned) in enumerate(result["tried"], start=1):
        lines.append(f"  trial {number:<3} member {member}  {returned:10.1f}")
    found = f"{result['return']:.1f} in {result['episodes']} fresh episodes"
    trials = f"{result['trials']} trial{'' if result['trials'] == 1 else 's'}"
    lines.append(f"  member {result['member']} after {trials}: {found}")
    other, returned = result["undamaged_best"], result["undamaged_best_return"]
    lines.append(f"  member {other}, the best of the unchanged task: {returned:.1f} in the same episodes")
    return lines


def _returned(returned: Any) -> float:
    try:
        number = float(returned)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise DvdrlError(f"trial: expected the return of an episode, a finite number; got {returned!r}")
    return number


def _save(path: Path, about: Mapping[str, Any], log: Log, tried: Sequence[tuple[int, float]]) -> None:
    prior = {"returns": log.state.prior.tolist(), "noise": log.state.noise}
    content = json.dumps({**about, "undamaged": prior, "tried": tried}, indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(path, content.encode())
    except OSError as error:
        raise DvdrlError(f"{path}: cannot be written: {error}") from error


def _load(path: Path, about: Mapping[str, Any], members: int) -> Log | None:
    """The trials in a file; None if there is no file."""
    try:
        values = files.read_json(path)
        found = {name: values.pop(name) for name in about}
        returns, noise, tried = values["undamaged"]["returns"], values["undamaged"]["noise"], values["tried"]
        log = Log(arms.init(returns, [noise] * members))
        for member, returned in tried:
            if type(member) is not int or not 0 <= member < members or not math.isfinite(returned):
                raise ValueError(f"expected a member and its return, got {member!r} and {returned!r}")
            log.add(member, returned)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        said = f"{type(error).__name__}: {error}"
        raise DvdrlError(f"{path}: expected the trials of an adaptation, got {said}") from error
    if found != about:
        raise DvdrlError(f"{path}: has trials of another population or perturbation; name another file")
    return log
