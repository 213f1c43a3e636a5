"""The training loop, the only one: iterate, write, until done. Several seeds run through it together.

What an iteration is, a trainer says (`dvdrl.runs.trainer`). The loop knows run directories: configuration, metrics,
checkpoints, the transitions that a replay buffer was given, policies; how runs are started, stopped and resumed.
"""

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dvdrl.errors import DvdrlError
from dvdrl.record import record
from dvdrl.runs import checkpoint, config, metrics, policies, transitions
from dvdrl.runs.checkpoint import Progress
from dvdrl.runs.policies import Population
from dvdrl.runs.trainer import NotFinite, Trainer

_PACKAGES = {"local": ("mujoco",), "ray": ("mujoco", "ray"), "device": ("mujoco", "mujoco-warp", "warp-lang")}
"""What the numbers of a run depend on, beside JAX, by executor."""


@dataclass(frozen=True)
class Run:
    """A run directory."""

    directory: Path

    @property
    def config(self) -> config.Training:
        """All of its options, resolved."""
        return config.from_json(self.directory / "config.json")

    @property
    def record(self) -> dict[str, Any]:
        """With which command it was started, when, and the versions of what it ran on."""
        path = self.directory / "record.json"
        made: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return made

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One dict an iteration; see docs/es.md and docs/td3.md for the names."""
        return metrics.read(self.directory / "metrics.jsonl")

    @property
    def finished(self) -> bool:
        """Whether it has had its iterations or its steps."""
        lines = self.metrics
        done = (lines[-1]["iteration"], lines[-1]["env_steps"]) if lines else (0, 0)
        return _finished(self.config, *done)

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
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise DvdrlError(f"{directory} exists; `dvdrl resume {directory}` continues it, --out writes elsewhere")
    trainer = make_trainer(planned[0][1], len(planned))
    runs = []
    for directory, each in planned:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DvdrlError(f"cannot write to {directory}: {error.strerror}; --out chooses another") from error
        runs.append(start(directory, each, trainer.init(each.seed)))
    _train(runs, trainer)
    return [Run(run.directory) for run in runs] if options.seeds is not None else Run(runs[0].directory)


def resume(directory: Path | str) -> Run | list[Run]:
    """Continue a run, or all runs that `--seeds` put into the directory, as if they had never stopped."""
    directory = Path(directory)
    several = sorted(directory.glob("seed-*"), key=lambda path: int(path.name.removeprefix("seed-")))
    directories = several or [directory]
    options = [config.from_json(each / "config.json") for each in directories]
    if any(dataclasses.replace(each, seed=options[0].seed) != options[0] for each in options):
        raise DvdrlError(f"{directory}: its runs differ in more than their seeds; resume them one by one")
    saved = [set(checkpoint.iterations(each / "checkpoints")) for each in directories]
    # Killed between two of them, runs can be an iteration apart; they go on together from where all have been.
    common = set.intersection(*saved)
    if not common:
        raise DvdrlError(f"{directory}: no checkpoint to resume from")
    iteration = max(common)
    trainer = make_trainer(options[0], len(options))
    loaded = [checkpoint.load(path / "checkpoints", trainer.like(), iteration) for path in directories]
    if trainer.replay_capacity and iteration:
        pairs = zip(directories, loaded, strict=True)
        stored = [transitions.read(path / "replay", progress.replay) for path, (_, progress) in pairs]
        trainer.recall([state for state, _ in loaded], stored)
    runs = [
        Active(path, each, *saved, _metrics(path, each, iteration))
        for path, each, saved in zip(directories, options, loaded, strict=True)
    ]
    _train(runs, trainer)
    return [Run(run.directory) for run in runs] if several else Run(directory)


def start(directory: Path, options: config.Training, state: Any) -> Active:
    """A new run in a directory that exists, with its first checkpoint."""
    packages = _PACKAGES[options.executor if isinstance(options, config.ES) else "local"]
    checkpoint.write_atomically(directory / "config.json", config.to_json(options).encode())
    checkpoint.write_atomically(directory / "record.json", record("jax", *packages).encode())
    progress = Progress(0, 0, 0.0)
    checkpoint.save(directory / "checkpoints", state, progress, keep=options.keep_checkpoints)
    return Active(directory, options, state, progress, _metrics(directory, options, 0))


def existing_run(directory: Path | str) -> Run:
    """The run in a directory; an error if there is none."""
    if not (Path(directory) / "config.json").exists():
        raise DvdrlError(f"{directory}: not a run directory, it has no config.json")
    return Run(Path(directory))


def load(directory: Path | str) -> Population:
    """The population of a run: `population.act(obs)` -> (M, action), `population[i].act(obs)` -> (action)."""
    return existing_run(directory).population


def make_trainer(options: config.Training, num_runs: int) -> Trainer:
    """The trainer of a resolved config, for so many runs that differ in their seeds."""
    if isinstance(options, config.TD3):
        from dvdrl.runs.actor_critic import ActorCritic

        return ActorCritic(options, num_runs)
    from dvdrl.runs.evolution import Evolution, make_executor

    assert isinstance(options, config.ES)
    return Evolution(options, make_executor(options))


def _train(runs: Sequence[Active], trainer: Trainer) -> None:
    """Train all runs to their ends, or until interrupted; every iteration leaves a checkpoint."""
    first = runs[0]
    assert first.config.iterations is not None
    names = {run.directory: f"{run.config.algorithm} {run.config.task} seed {run.config.seed}" for run in runs}
    try:
        for run in runs:
            policies.save(run.directory / "policies", trainer.population(run.state))
        with metrics.Display(names, first.config.iterations, first.progress.iteration) as display:
            while active := [run for run in runs if not run.finished]:
                for run, line in zip(active, iterate(active, trainer), strict=True):
                    display.show(run.directory, line)
    except KeyboardInterrupt:
        where = first.directory if len(runs) == 1 else first.directory.parent
        print(f"stopped after iteration {first.progress.iteration}; `dvdrl resume {where}` continues", file=sys.stderr)
        raise
    finally:
        trainer.close()
        for run in runs:
            run.metrics.close()


def iterate(active: Sequence[Active], trainer: Trainer) -> list[dict[str, Any]]:
    """One iteration of each run, and all that is written of it."""
    simulated = trainer.simulation_seconds
    try:
        outcomes = trainer.iterate([run.state for run in active])
    except NotFinite as error:
        run = active[error.run]
        raise DvdrlError(
            f"{error.what} of member {error.member} not finite in iteration {run.progress.iteration + 1}, "
            f"seed {run.config.seed}; "
            f"the last good checkpoint in {run.directory} is that of iteration {run.progress.iteration}"
        ) from error
    simulated = trainer.simulation_seconds - simulated
    lines = []
    for run, outcome in zip(active, outcomes, strict=True):
        # From one line to the next: writing the last one and its checkpoint is part of an iteration.
        now = time.perf_counter()
        seconds, run.clock = now - run.clock, now
        before = run.progress
        run.state = outcome.state
        progress = Progress(before.iteration + 1, before.env_steps + outcome.env_steps, before.seconds + seconds)
        line = {
            "iteration": progress.iteration,
            "env_steps": progress.env_steps,
            **outcome.line,
            "steps_per_second": outcome.env_steps / seconds,
            "outside_simulation": 1.0 - simulated / seconds,
            "seconds": progress.seconds,
        }
        # The line first: a checkpoint without its line could not be made good, a line without its checkpoint is.
        run.metrics.write(line)
        if outcome.transitions is not None:
            new = transitions.write(run.directory / "replay", progress.iteration, outcome.transitions)
            progress = progress._replace(replay=transitions.latest([*before.replay, new], trainer.replay_capacity))
        run.progress = progress
        checkpoint.save(run.directory / "checkpoints", run.state, progress, keep=run.config.keep_checkpoints)
        if progress.replay:
            oldest = checkpoint.oldest_progress(run.directory / "checkpoints")
            transitions.remove_unused(run.directory / "replay", oldest.replay)
        policies.save(run.directory / "policies", trainer.population(run.state))
        lines.append(line)
    return lines


def _metrics(directory: Path, options: config.Training, iteration: int) -> metrics.Metrics:
    return metrics.Metrics(directory, iteration, wandb=dataclasses.asdict(options) if options.wandb else None)
