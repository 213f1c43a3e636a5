"""The training loop, the only one: iterate, write, until done. Several seeds run through it together.

What an iteration is, a trainer says (`dvdrl.runs.trainer`). The loop knows run directories: configuration, metrics,
checkpoints, the transitions that a replay buffer was given, policies; how runs are started, stopped and resumed.
What can go wrong on the way, and what happens then, is in docs/reliability.md.
"""

import contextlib
import dataclasses
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dvdrl.errors import DvdrlError
from dvdrl.policies import Population
from dvdrl.record import record
from dvdrl.runs import checkpoint, config, lock, metrics, policies, recovery, transitions
from dvdrl.runs.checkpoint import Damaged, Progress
from dvdrl.runs.trainer import NotFinite, Outcome, Trainer, make_policy

_PACKAGES = {"local": ("mujoco",), "ray": ("mujoco", "ray"), "device": ("mujoco", "mujoco-warp", "warp-lang")}
"""What the numbers of a run depend on, beside JAX, by executor."""


@dataclass(frozen=True, init=False)
class Run:
    """A run directory."""

    directory: Path

    def __init__(self, directory: str | Path):
        object.__setattr__(self, "directory", Path(directory))

    @property
    def config(self) -> config.Training:
        """All of its options, resolved."""
        return config.from_json(self.directory / "config.json")

    @property
    def record(self) -> dict[str, Any]:
        """With which command it was started, when, and the versions of what it ran on."""
        path = self.directory / "record.json"
        try:
            made: dict[str, Any] = dict(json.loads(path.read_text()))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise DvdrlError(f"{path}: expected the record of a run, got {type(error).__name__}: {error}") from error
        return made

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One dict an iteration; see docs/es.md and docs/td3.md for the names."""
        return metrics.read(self.directory / "metrics.jsonl")

    @property
    def finished(self) -> bool:
        """Whether it has had its iterations or its steps."""
        last = lines[-1] if (lines := self.metrics) else {}
        iteration, env_steps = (last.get(name, 0) for name in ("iteration", "env_steps"))
        return _finished(self.config, iteration, env_steps if isinstance(env_steps, int) else 0)

    @property
    def population(self) -> Population:
        """The members as they are now."""
        return policies.load(self.directory / "policies")


@dataclass
class Active:
    """A run that is being trained."""

    directory: Path
    config: config.Training
    state: Any
    progress: Progress
    metrics: metrics.Metrics
    clock: float = field(default_factory=time.perf_counter)
    """When its last iteration ended, or it was started."""

    @property
    def finished(self) -> bool:
        """Whether it has had its iterations or its steps."""
        return _finished(self.config, self.progress.iteration, self.progress.env_steps)


def _finished(options: config.Training, iteration: int, env_steps: int) -> bool:
    assert options.iterations is not None
    return iteration >= options.iterations or (options.steps is not None and env_steps >= options.steps)


def train(options: config.Training) -> Run | list[Run]:
    """Train as configured; with `seeds`, a list of runs.

    Raises:
        DvdrlError: an option that no run can have, a directory that is not empty, or a return or parameter that
            turned out not to be finite. In the first two cases nothing has been written.
    """
    planned = config.runs_of(config.resolve(options))
    for directory, _ in planned:
        _refuse_existing(directory)
    with contextlib.ExitStack() as held:
        trainer = held.enter_context(contextlib.closing(make_trainer(planned[0][1], len(planned))))
        # All directories, all configurations, then the first state: some runs are never taken for all of them.
        for directory, _ in planned:
            with _writing(directory, "--out chooses another"):
                directory.mkdir(parents=True, exist_ok=True)
                held.enter_context(lock.locked(directory))
            _refuse_existing(directory)  # now that nobody else can begin one
        for directory, each in planned:
            with _writing(directory, "--out chooses another"):
                _describe(directory, each)
        runs = [start(directory, each, trainer.init(each.seed)) for directory, each in planned]
        _train(runs, trainer)
    return [Run(run.directory) for run in runs] if options.seeds is not None else Run(runs[0].directory)


def resume(directory: Path | str, *, ray_address: str | None = None) -> Run | list[Run]:
    """Continue a run, or all runs that `--seeds` put into the directory, as if they had never stopped.

    From the latest checkpoint that is intact, with what belongs to it; what is not is named on the way.

    Args:
        directory: of the run or runs.
        ray_address: as in their configuration, of which it is no part on disk.

    Raises:
        DvdrlError: there is no such run, another process is training it, or nothing of it is intact; and as `train`.
    """
    directory = Path(directory)
    several = sorted((path for path in directory.glob("seed-*") if re.fullmatch(r"seed-\d+", path.name)), key=_seed)
    directories = several or [directory]
    _describe_the_rest(several)
    options = [config.resolve(config.from_json(each / "config.json")) for each in directories]
    if any(dataclasses.replace(each, seed=options[0].seed) != options[0] for each in options):
        raise DvdrlError(f"{directory}: its runs differ in more than their seeds; resume them one by one")
    config.refuse_unknown_module(options[0])
    options = [
        dataclasses.replace(each, ray_address=ray_address) if isinstance(each, config.ES) else each for each in options
    ]
    with contextlib.ExitStack() as held:
        for each in directories:
            recovery.refuse_links(each)
            with _writing(each, "resume it where it can be written"):
                held.enter_context(lock.locked(each))
                recovery.remove_partial(each)
        trainer = held.enter_context(contextlib.closing(make_trainer(options[0], len(options))))
        runs = _recover(directories, options, trainer)
        _train(runs, trainer)
    return [Run(run.directory) for run in runs] if several else Run(directory)


def _seed(directory: Path) -> int:
    return int(directory.name.removeprefix("seed-"))


def _describe_the_rest(directories: Sequence[Path]) -> None:
    """Give runs that were killed before all of them had a configuration that of the others, but for the seed."""
    known = [each for each in directories if (each / "config.json").exists()]
    if known and not any(recovery.lines(each) for each in directories):
        options = config.from_json(known[0] / "config.json")
        for each in set(directories).difference(known):
            with _writing(each, "resume it where it can be written"):
                _describe(each, dataclasses.replace(options, seed=_seed(each)))


def _recover(directories: Sequence[Path], options: Sequence[config.Training], trainer: Trainer) -> list[Active]:
    """The runs at the latest iteration from which all of them can go on."""
    found = recovery.latest(directories, [Run(each).finished for each in directories], trainer)
    if not found:
        return [start(path, each, trainer.init(each.seed)) for path, each in zip(directories, options, strict=True)]
    runs = []
    for path, each, (state, progress, _) in zip(directories, options, found, strict=True):
        with _writing(path, "resume it where it can be written"):
            checkpoint.remove_after(path / "checkpoints", progress.iteration)
            _remove_old(path, each.keep_checkpoints)
            runs.append(Active(path, each, state, progress, _metrics(path, each, progress.iteration)))
    if trainer.replay_capacity and found[0].progress.iteration:
        try:
            trainer.recall([each.state for each in found], [each.transitions for each in found])
        except ValueError as error:
            raise DvdrlError(f"{directories[0]}: not a replay buffer of the task in config.json: {error}") from error
    return runs


def _refuse_existing(directory: Path) -> None:
    """Refuse to train in a directory that has more in it than a run leaves that was killed before it began."""
    leftover = (lock.NAME, f".config.json{checkpoint.PARTIAL}", f".record.json{checkpoint.PARTIAL}", "record.json")
    try:
        taken = directory.exists() and any(path.name not in leftover for path in directory.iterdir())
    except OSError:  # not a directory
        taken = True
    if taken and (directory / "config.json").exists():
        raise DvdrlError(f"{directory} exists; `dvdrl resume {directory}` continues it, --out writes elsewhere")
    if taken:
        raise DvdrlError(f"{directory} exists, and is not a run; --out writes elsewhere")


@contextlib.contextmanager
def _writing(directory: Path, advice: str) -> Iterator[None]:
    """What goes wrong while writing into a run directory, as an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise DvdrlError(f"cannot write to {directory}: {error.strerror or error}; {advice}") from error


def _describe(directory: Path, options: config.Training) -> None:
    """Write what a run is. The configuration comes last: with it, a directory is a run."""
    assert isinstance(options, config.ES | config.TD3)
    packages = _PACKAGES[options.executor]
    checkpoint.write_atomically(directory / "record.json", record("jax", *packages).encode())
    checkpoint.write_atomically(directory / "config.json", config.to_json(options).encode())


def start(directory: Path, options: config.Training, state: Any) -> Active:
    """A run in a directory that exists, with its first checkpoint."""
    progress = Progress(0, 0, 0.0)
    with _writing(directory, f"then `dvdrl resume {directory}` begins it"):
        checkpoint.save(directory / "checkpoints", state, progress)
        return Active(directory, options, state, progress, _metrics(directory, options, 0))


def existing_run(directory: Path | str) -> Run:
    """The run in a directory; an error if there is none."""
    directory = Path(directory)
    if not (directory / "config.json").exists():
        of_seeds = [path.parent for path in directory.glob("seed-*/config.json")]
        advice = f"; it has runs of several seeds, such as {min(of_seeds)}" if of_seeds else ""
        raise DvdrlError(f"{directory}: not a run directory, it has no config.json{advice}")
    return Run(directory)


def load(directory: Path | str) -> Population:
    """The population of a run: `population.act(obs)` -> (M, action), `population[i].act(obs)` -> (action)."""
    return existing_run(directory).population


def make_trainer(options: config.Training, num_runs: int) -> Trainer:
    """The trainer of a resolved config, for so many runs that differ in their seeds."""
    if isinstance(options, config.TD3):
        from dvdrl.runs import td3

        return td3.make_trainer(options, num_runs)
    from dvdrl.runs.evolution import Evolution, make_executor

    assert isinstance(options, config.ES)
    policy = make_policy(options)
    return Evolution(options, policy, make_executor(options, policy))


def _train(runs: Sequence[Active], trainer: Trainer) -> None:
    """Train all runs to their ends, or until interrupted; every iteration leaves a checkpoint."""
    first = runs[0]
    assert first.config.iterations is not None
    names = {run.directory: f"{run.config.algorithm} {run.config.task} seed {run.config.seed}" for run in runs}
    try:
        for run in runs:
            with _writing(run.directory, _continues(runs)):
                policies.save(run.directory / "policies", trainer.population(run.state))
        with metrics.Display(names, first.config.iterations, first.progress.iteration) as display:
            while active := [run for run in runs if not run.finished]:
                for run, line in zip(active, iterate(active, trainer), strict=True):
                    display.show(run.directory, line)
    except KeyboardInterrupt:
        print(f"stopped after iteration {first.progress.iteration}; {_continues(runs)}", file=sys.stderr)
        raise
    finally:
        for run in runs:
            run.metrics.close()


def _continues(runs: Sequence[Active]) -> str:
    where = runs[0].directory if len(runs) == 1 else runs[0].directory.parent
    return f"`dvdrl resume {where}` continues after iteration {runs[0].progress.iteration}"


def iterate(active: Sequence[Active], trainer: Trainer) -> list[dict[str, Any]]:
    """One iteration of each run, and all that is written of it."""
    simulated = trainer.simulation_seconds
    try:
        outcomes = trainer.iterate([run.state for run in active])
    except NotFinite as error:
        run = active[error.run]
        raise DvdrlError(
            f"{error} not finite in iteration {run.progress.iteration + 1}, "
            f"seed {run.config.seed}; "
            f"the last good checkpoint in {run.directory} is that of iteration {run.progress.iteration}"
        ) from error
    except DvdrlError as error:
        seeds = ", ".join(str(run.config.seed) for run in active)
        raise DvdrlError(f"{error}; training with seed {seeds}; {_continues(active)}") from error
    simulated = trainer.simulation_seconds - simulated

    def finish(run: Active, outcome: Outcome) -> dict[str, Any]:
        # From one line to the next: writing the last one and its checkpoint is part of an iteration.
        now = time.perf_counter()
        seconds, run.clock = now - run.clock, now
        before = run.progress
        progress = Progress(before.iteration + 1, before.env_steps + outcome.env_steps, before.seconds + seconds)
        line = {
            "iteration": progress.iteration,
            "env_steps": progress.env_steps,
            **outcome.line,
            "steps_per_second": outcome.env_steps / seconds,
            "outside_simulation": 1.0 - simulated / seconds,
            "seconds": progress.seconds,
        }
        with _writing(run.directory, f"make it writable again, then {_continues(active)}"):
            _write(run, line, outcome, progress, trainer)
        return line

    if len(active) == 1:
        return [finish(active[0], outcomes[0])]
    with ThreadPoolExecutor(len(active)) as pool:  # the time is the disk's, and that of digests
        return list(pool.map(finish, active, outcomes))


def _write(run: Active, line: dict[str, Any], outcome: Outcome, progress: Progress, trainer: Trainer) -> None:
    """Everything that a run has on disk of an iteration."""
    # The line first: a checkpoint without its line could not be made good, a line without its checkpoint is.
    run.metrics.write(line)
    if outcome.transitions is not None:
        new = transitions.write(run.directory / "replay", progress.iteration, outcome.transitions)
        replay = transitions.latest([*run.progress.replay, new], trainer.replay_capacity)
        progress = progress._replace(replay=replay)
    checkpoint.save(run.directory / "checkpoints", outcome.state, progress)
    run.state, run.progress = outcome.state, progress
    _remove_old(run.directory, run.config.keep_checkpoints)
    policies.save(run.directory / "policies", trainer.population(run.state))


def _remove_old(directory: Path, keep: int) -> None:
    """Remove all checkpoints but the latest, and the transitions that none of them needs."""
    checkpoint.keep_latest(directory / "checkpoints", keep)
    if (directory / "replay").exists():
        with contextlib.suppress(Damaged):  # what the oldest one needs is not known; it is soon gone
            oldest = checkpoint.oldest_progress(directory / "checkpoints")
            transitions.remove_unused(directory / "replay", oldest.replay)


def _metrics(directory: Path, options: config.Training, iteration: int) -> metrics.Metrics:
    return metrics.Metrics(directory, iteration, wandb=dataclasses.asdict(options) if options.wandb else None)
