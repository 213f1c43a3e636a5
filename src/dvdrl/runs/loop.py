"""The training loop, the only one: ask, evaluate, tell, write. Several seeds run through it together.

The rollouts of all seeds are one batch; each seed's own `ask` and `tell` are separate calls of the same compiled
functions. An episode does not depend on its batch, so every seed is equal, to the bit, to a run of its own.
"""

import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from gymnasium.vector import VectorEnv

from dvdrl import bandits, es, normalizer
from dvdrl.diversity import KERNELS
from dvdrl.engines import make_vec
from dvdrl.errors import DvdrlError
from dvdrl.interfaces import Executor
from dvdrl.networks import MLP
from dvdrl.rollouts import Local
from dvdrl.runs import checkpoint, config, metrics, policies
from dvdrl.runs.checkpoint import Progress
from dvdrl.runs.policies import Population
from dvdrl.tasks import registry

_BANDITS: dict[str, Callable[..., bandits.Controller]] = {
    "thompson": bandits.thompson,
    "authors-thompson": bandits.authors_thompson,
    "sliding-window": bandits.sliding_window_thompson,
    "discounted": bandits.discounted_thompson,
}
_RUN_OPTIONS = {
    *("task", "task_options", "preset", "seed", "seeds", "iterations", "steps", "out", "keep_checkpoints", "wandb"),
    *("hidden", "executor", "ray_address"),
}
"""What is not the algorithm's: what a run trains, on what, for how long, and where it goes."""


@dataclass(frozen=True)
class Run:
    """A run directory."""

    directory: Path

    @property
    def config(self) -> config.ES:
        """All of its options, resolved."""
        return config.from_json(self.directory / "config.json")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One dict an iteration; see docs/es.md for the names."""
        return metrics.read(self.directory / "metrics.jsonl")

    @property
    def population(self) -> Population:
        """The members as they are now."""
        return policies.load(self.directory / "policies")


@dataclass
class Active:
    """A run that is being trained."""

    directory: Path
    config: config.ES
    state: es.State
    progress: Progress
    metrics: metrics.Metrics
    clock: float = field(default_factory=time.perf_counter)
    """When its last iteration ended, or it was started."""

    @property
    def finished(self) -> bool:
        """Whether it has had its iterations or its steps."""
        assert self.config.iterations is not None
        enough_steps = self.config.steps is not None and self.progress.env_steps >= self.config.steps
        return enough_steps or self.progress.iteration >= self.config.iterations


def train(options: config.ES) -> Run | list[Run]:
    """Train as configured; with `seeds`, a list of runs.

    Raises:
        DvdrlError: an option that no run can have, a directory that is not empty, or a return or parameter that
            turned out not to be finite. In the first two cases nothing has been written.
    """
    planned = config.runs_of(config.resolve(options))
    for directory, _ in planned:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise DvdrlError(f"{directory} exists; `dvdrl resume {directory}` continues it, --out writes elsewhere")
    executor = _executor(planned[0][1])
    algorithm = make_algorithm(planned[0][1], executor.policy)
    runs = []
    for directory, each in planned:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DvdrlError(f"cannot write to {directory}: {error.strerror}; --out chooses another") from error
        runs.append(start(directory, each, algorithm.init(jax.random.key(each.seed))))
    _train(runs, algorithm, executor)
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
    executor = _executor(options[0])
    algorithm = make_algorithm(options[0], executor.policy)
    like = jax.eval_shape(algorithm.init, jax.random.key(0))
    runs = []
    for path, each in zip(directories, options, strict=True):
        state, progress = checkpoint.load(path / "checkpoints", like, iteration)
        runs.append(Active(path, each, state, progress, _metrics(path, each, iteration)))
    _train(runs, algorithm, executor)
    return [Run(run.directory) for run in runs] if several else Run(directory)


def start(directory: Path, options: config.ES, state: es.State) -> Active:
    """A new run in a directory that exists, with its first checkpoint."""
    checkpoint.write_atomically(directory / "config.json", config.to_json(options).encode())
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


def make_algorithm(options: config.ES, policy: MLP) -> es.Algorithm:
    """The algorithm that a resolved config describes; compiled once for all runs that differ in other options."""
    names = {field.name for field in dataclasses.fields(options)} - _RUN_OPTIONS
    return _algorithm(options.algorithm, policy, tuple((name, getattr(options, name)) for name in sorted(names)))


@functools.lru_cache(maxsize=8)
def _algorithm(name: str, policy: MLP, items: tuple[tuple[str, Any], ...]) -> es.Algorithm:
    values = dict(items)
    kernel = KERNELS[values.pop("kernel")](length_scale=values.pop("length_scale"))
    controller = bandits.fixed(0.0)
    diversity: es.Diversity = es.no_diversity
    if name == config.NSRES.algorithm:
        controller, diversity = bandits.fixed(values.pop("novelty_weight")), es.novelty
    elif name == config.DvDES.algorithm:
        chosen, arms, rounds = (values.pop(name) for name in ("controller", "arms", "exploration_rounds"))
        if chosen == "leader":
            controller = bandits.leader(values["population"], arms, rounds)
        else:
            controller = _BANDITS[chosen](arms)
        diversity = es.determinants(kernel, values.pop("objective"))
    return es.evolution_strategy(policy, kernel=kernel, controller=controller, diversity=diversity, **values)


def _train(runs: Sequence[Active], algorithm: es.Algorithm, executor: Executor) -> None:
    """Train all runs to their ends, or until interrupted; every iteration leaves a checkpoint."""
    first = runs[0]
    assert first.config.iterations is not None
    names = {run.directory: f"{run.config.algorithm} {run.config.task} seed {run.config.seed}" for run in runs}
    try:
        for run in runs:
            policies.save(run.directory / "policies", _population(run.config, executor, run.state))
        with metrics.Display(names, first.config.iterations, first.progress.iteration) as display:
            while active := [run for run in runs if not run.finished]:
                for run, line in zip(active, iterate(active, algorithm, executor), strict=True):
                    display.show(run.directory, line)
    except KeyboardInterrupt:
        where = first.directory if len(runs) == 1 else first.directory.parent
        print(f"stopped after iteration {first.progress.iteration}; `dvdrl resume {where}` continues", file=sys.stderr)
        raise
    finally:
        executor.close()
        for run in runs:
            run.metrics.close()


def iterate(active: Sequence[Active], algorithm: es.Algorithm, executor: Executor) -> list[dict[str, Any]]:
    """One iteration of each run: rollouts together, everything else on its own."""
    simulated = executor.simulation_seconds
    episodes = executor.evaluate(algorithm.ask, [run.state for run in active])
    told = []
    for run, results in zip(active, episodes, strict=True):
        if not (finite := np.isfinite(results.returns)).all():
            raise _not_finite("return", run, np.asarray(algorithm.ask(run.state).member)[~finite])
        state, info = algorithm.tell(run.state, results)
        if not (finite := np.isfinite(np.asarray(state.params)).all(axis=1)).all():
            raise _not_finite("parameters", run, np.flatnonzero(~finite))
        told.append((state, info))
    simulated = executor.simulation_seconds - simulated
    lines = []
    for run, (state, info), results in zip(active, told, episodes, strict=True):
        steps = int(results.lengths.sum())
        # From one line to the next: writing the last one and its checkpoint is part of an iteration.
        now = time.perf_counter()
        seconds, run.clock = now - run.clock, now
        before = run.progress
        run.state = state
        run.progress = Progress(before.iteration + 1, before.env_steps + steps, before.seconds + seconds)
        assert run.config.population is not None
        line = _line(run.progress, results.returns[: run.config.population], info)
        line |= {
            "steps_per_second": steps / seconds,
            "outside_simulation": 1.0 - simulated / seconds,
            "seconds": run.progress.seconds,
        }
        # The line first: a checkpoint without its line could not be made good, a line without its checkpoint is.
        run.metrics.write(line)
        checkpoint.save(run.directory / "checkpoints", state, run.progress, keep=run.config.keep_checkpoints)
        policies.save(run.directory / "policies", _population(run.config, executor, state))
        lines.append(line)
    return lines


def _not_finite(what: str, run: Active, members: np.ndarray) -> DvdrlError:
    return DvdrlError(
        f"{what} of member {members[0]} not finite in iteration {run.progress.iteration + 1}, seed {run.config.seed}; "
        f"the last good checkpoint in {run.directory} is that of iteration {run.progress.iteration}"
    )


def _line(progress: Progress, returns: np.ndarray, info: es.Info) -> dict[str, Any]:
    diversity = {name: float(value) for name, value in info.diversity.items()}
    return {
        "iteration": progress.iteration,
        "env_steps": progress.env_steps,
        "best_return": float(returns.max()),
        "mean_return": float(returns.mean()),
        "member_returns": returns.tolist(),
        "lambda": float(info.lambda_),
        "arm_alpha": np.asarray(info.successes).tolist(),
        "arm_beta": np.asarray(info.failures).tolist(),
        "det": float(np.exp(diversity["log_det"])),
        **diversity,
        # The shortest digits of single precision: a run has many of these.
        "similarities": [float(str(value)) for value in np.asarray(info.similarities)],
        "distances": [float(str(value)) for value in np.asarray(info.distances)],
    }


def _population(options: config.ES, executor: Executor, state: es.State) -> Population:
    params, shift, scale = (np.asarray(array) for array in (state.params, *normalizer.affine(state.moments)))
    return Population(options.task, executor.policy, params, shift, scale, executor.action_low, executor.action_high)


def _executor(options: config.ES) -> Executor:
    if options.executor == "ray":
        from dvdrl.rollouts.ray import Ray

        return Ray(make_envs(options), options.hidden or (), options.ray_address)
    if options.executor == "device":
        from dvdrl.rollouts.device import Device

        task_options: dict[str, Any] = options.task_options
        return Device(registry.make(options.task, **task_options), options.hidden or ())
    return Local(make_envs(options), options.hidden or ())


def make_envs(options: config.ES) -> Callable[..., VectorEnv[Any, Any, Any]]:
    """What makes so many environments of a run's task."""
    task_options: dict[str, Any] = options.task_options
    return functools.partial(make_vec, options.task, autoreset_mode="Disabled", **task_options)


def _metrics(directory: Path, options: config.ES, iteration: int) -> metrics.Metrics:
    return metrics.Metrics(directory, iteration, wandb=dataclasses.asdict(options) if options.wandb else None)
