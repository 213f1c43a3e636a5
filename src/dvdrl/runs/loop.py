"""The training loop, which all algorithms share: it iterates and writes files. Several seeds can train in it together.

A trainer defines what an iteration is (`dvdrl.runs.trainer`). The loop writes run directories: the configuration,
metrics, checkpoints, transitions of replay buffers, and policies. It also starts, stops and resumes runs.
docs/reliability.md lists what can go wrong, and what happens then.
"""

import contextlib
import dataclasses
import reprlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Never

from dvdrl.errors import DvdrlError, expect, printable, quoted
from dvdrl.policies import Population
from dvdrl.process import refuse_unguarded_script
from dvdrl.runs import changes as alter
from dvdrl.runs import checkpoint, ends, file, lock, metrics, policies, recovery, standing, transitions, warm
from dvdrl.runs.begin import describe, make_directory, refuse_existing, writing
from dvdrl.runs.checkpoint import Damaged, Progress
from dvdrl.runs.directory import Run, is_run, of_seeds, planned, seed_of
from dvdrl.runs.display import Display
from dvdrl.runs.hooks import Hook, Iteration, Stop, TensorBoard, WeightsAndBiases
from dvdrl.runs.kept import Keeper
from dvdrl.runs.presets import resolve
from dvdrl.runs.standing import Reached
from dvdrl.runs.trainer import NotFinite, Outcome, Trainer
from dvdrl.runs.training import Training


@dataclass
class Active:
    """A run that is being trained."""

    directory: Path
    config: Training[Never]
    state: Any
    progress: Progress
    metrics: metrics.Metrics
    keeper: Keeper
    course: ends.Course
    reached: Reached | None
    """What the lines so far have reached; None before the first one."""
    last: Mapping[str, Any]
    """The last line; empty before the first one."""
    loggers: Sequence[TensorBoard | WeightsAndBiases]
    population: Population | None = None
    """The members after the last iteration; None before the first one."""
    clock: float = field(default_factory=time.perf_counter)
    """When its last iteration ended; before the first one, when the run was started or resumed."""

    def close(self) -> None:
        """Say to all loggers that training has stopped."""
        for each in self.loggers:
            each.close()


def train(options: Training, *, on_iteration: Hook | None = None) -> Run | list[Run]:
    """Train with these options. With `seeds`, return a list of runs.

    Args:
        options: what to train, such as `dvdrl.NicheES(task="Point-v0")`.
        on_iteration: called after each iteration of each run, when its files are written, with a `dvdrl.Iteration`. To
            stop all runs, it raises `dvdrl.Stop`; any other exception leaves this function. `dvdrl.resume` goes on
            after both.

    Raises:
        DvdrlError: an option has a value that no run can have, a directory is not empty, or a return or parameter was
            not finite. In the first two cases nothing has been written.
    """
    refuse_unguarded_script()  # before its directory is found to exist already
    expect("options", options, Training)
    _refuse_what_cannot_be_called(on_iteration)
    options, over = resolve(options), ends.time_is_over(options.for_)
    if (begun := warm.start(options)) is not None:
        options = dataclasses.replace(options, from_digest=begun.digest)
    plan = planned(options)
    for directory, _ in plan:
        refuse_existing(directory)
    with contextlib.ExitStack() as held:
        trainer = held.enter_context(contextlib.closing(make_trainer(plan[0][1], len(plan))))
        states = [_first_state(each, trainer, begun) for _, each in plan]
        locks = []
        # Make all directories first, then all configurations, then states. So `resume` never misses some of the runs.
        for directory, _ in plan:
            with writing(directory, "--out chooses another directory"):
                make_directory(directory, several=options.seeds is not None)
                locks.append(held.enter_context(lock.locked(directory)))
            refuse_existing(directory)  # again, as no other process can begin a run now
        for directory, each in plan:
            with writing(directory, "--out chooses another directory"):
                describe(directory, each)
        runs = [start(directory, each, state) for (directory, each), state in zip(plan, states, strict=True)]
        _train(runs, trainer, locks, on_iteration, over)
    return [Run(run.directory) for run in runs] if options.seeds is not None else Run(runs[0].directory)


def resume(
    directory: Path | str,
    *,
    on_iteration: Hook | None = None,
    for_: str | None = None,
    ray_address: str | None = None,
    **changes: Any,
) -> Run | list[Run]:
    """Continue a run, or all runs that `--seeds` put into the directory, as if they had never stopped.

    Training continues from the latest checkpoint that is intact and has its metrics and transitions. Damaged files are
    reported on standard error. With `iterations` or `steps`, a finished run goes on to this new end.

    Args:
        directory: the directory of the run or runs.
        on_iteration: as in `train`.
        for_: the option of that name; the time is counted from now.
        ray_address: the option of that name, which config.json does not contain.
        **changes: new values of options that may change (docs/runs.md); record.json keeps them with the iteration.

    Raises:
        DvdrlError: there is no such run, another process is training it, no checkpoint is intact, an option cannot
            change, config.json was edited so that it misdescribes the run, or as in `train`.
    """
    expect("directory", directory, str, Path)
    _refuse_what_cannot_be_called(on_iteration)
    directory = Path(directory)
    several = of_seeds(directory)
    directories = several or [directory]
    for each in directories:
        recovery.refuse_links(each)
    _describe_the_rest(several)
    over = ends.time_is_over(for_)
    configs = [file.from_json(each / "config.json") for each in directories]
    ended = [ends.course(Run(each).metrics, config).by for each, config in zip(directories, configs, strict=True)]
    options = [resolve(alter.applied(each, changes, ended)) for each in configs]
    for each, chosen in zip(directories, options, strict=True):
        alter.refuse_edited(Run(each))
        alter.refuse_less_than_done(Run(each), chosen)
    for chosen in options:
        if differ := alter.differing(options[0], chosen):
            raise DvdrlError(
                f"{directory}: its runs differ in more than their seeds, in {', '.join(differ)}; resume them one by one"
            )
    file.refuse_unknown_module(options[0])
    options = [each.with_cluster(ray_address) for each in options]
    with contextlib.ExitStack() as held:
        locks = []
        for each in directories:
            with writing(each, "copy the run to a place that can be written, and resume it there"):
                locks.append(held.enter_context(lock.locked(each)))
                recovery.remove_partial(each)
        trainer = held.enter_context(contextlib.closing(make_trainer(options[0], len(options))))
        runs = _recover(directories, options, trainer)
        for run in runs:
            with writing(run.directory, "copy the run to a place that can be written, and resume it there"):
                alter.write(Run(run.directory), run.config, run.progress.iteration)
        _train(runs, trainer, locks, on_iteration, over)
    return [Run(run.directory) for run in runs] if several else Run(directory)


def _refuse_what_cannot_be_called(on_iteration: Hook | None) -> None:
    if on_iteration is not None and not callable(on_iteration):
        raise DvdrlError(f"on_iteration: expected a function, got {reprlib.repr(on_iteration)}")


def _describe_the_rest(directories: Sequence[Path]) -> None:
    """Write missing configurations if training was killed before all runs had one; only the seed differs."""
    known = [each for each in directories if is_run(each)]
    if known and not any(recovery.lines(each) for each in directories):
        options = file.from_json(known[0] / "config.json")
        for each in set(directories).difference(known):
            with writing(each, "copy the run to a place that can be written, and resume it there"):
                describe(each, dataclasses.replace(options, seed=seed_of(each)))


def _recover(directories: Sequence[Path], options: Sequence[Training[Never]], trainer: Trainer) -> list[Active]:
    """Load the runs at the latest iteration from which all of them can continue."""
    lines_of = [metrics.read(each / "metrics.jsonl") for each in directories]
    ended = [ends.course(lines, each).by is not None for lines, each in zip(lines_of, options, strict=True)]
    found = recovery.latest(directories, ended, trainer)
    if not found:
        if options[0].from_digest is not None:
            raise DvdrlError(
                f"{directories[0]}: the run was killed before its first checkpoint, which would have the policies that"
                " it began with; remove it and train it anew"
            )
        return [start(path, each, trainer.init(each.seed)) for path, each in zip(directories, options, strict=True)]
    runs = []
    for path, each, (state, progress, _) in zip(directories, options, found, strict=True):
        with writing(path, "copy the run to a place that can be written, and resume it there"):
            checkpoint.remove_after(path / "checkpoints", progress.iteration)
            _remove_old(path, each.keep_checkpoints)
            lines = recovery.lines(path)[: progress.iteration]
            so_far = standing.reached_by(path / "metrics.jsonl", lines)
            writer = metrics.Metrics(path, progress.iteration)
            course = ends.course(lines, each)
            keeper = Keeper(path, progress.iteration)
            keeper.forget(checkpoint.iterations(path / "checkpoints")[0])
            last, loggers = lines[-1] if lines else {}, _loggers(path, each, progress.iteration)
            runs.append(Active(path, each, state, progress, writer, keeper, course, so_far, last, loggers))
    if trainer.replay_capacity and found[0].progress.iteration:
        try:
            trainer.recall([each.state for each in found], [each.transitions for each in found])
        except ValueError as error:
            raise DvdrlError(
                f"{directories[0]}: its replay buffer does not fit the task in config.json: {error}"
            ) from error
    return runs


def _first_state(options: Training[Never], trainer: Trainer, begun: warm.Start | None) -> Any:
    """The state in which a run begins."""
    state = trainer.init(options.seed)
    if begun is None:
        return state
    policy = trainer.population(state).policy
    return trainer.started_from(state, warm.agents_for(begun, policy, options.population, options.seed))


def start(directory: Path, options: Training[Never], state: Any) -> Active:
    """Start a run in an existing directory by writing its first checkpoint."""
    progress = Progress(0, 0, 0.0)
    with writing(directory, f"make it writable again, then `dvdrl resume {quoted(directory)}` begins the run"):
        checkpoint.save(directory / "checkpoints", state, progress)
        writer, keeper, loggers = metrics.Metrics(directory, 0), Keeper(directory, 0), _loggers(directory, options, 0)
        return Active(directory, options, state, progress, writer, keeper, ends.begun(options), None, {}, loggers)


def make_trainer(options: Training[Never], num_runs: int) -> Trainer:
    """The trainer for `num_runs` runs that differ only in their seeds."""
    module, _, name = options.trainer.partition(":")
    trainer: Trainer = getattr(import_module(module), name)(options, num_runs)
    return trainer


def _train(
    runs: Sequence[Active],
    trainer: Trainer,
    locks: Sequence[Callable[[], None]],
    on_iteration: Hook | None,
    over: Callable[[], str | None],
) -> None:
    """Train all runs until they have ended or are stopped. Every iteration leaves a checkpoint."""
    first = runs[0]
    try:
        for run in runs:
            with writing(run.directory, _continues(runs)):
                policies.save(run.directory / "policies", _population(run.state, run.last, trainer))
        with Display(
            f"{first.config.algorithm} {first.config.task}",
            {run.directory: run.config.seed for run in runs},
            iterations=first.config.iterations,
            steps=first.config.steps,
            done=first.progress.iteration,
        ) as display:
            while active := _unfinished(runs, trainer):
                for refuse_lost in locks:
                    refuse_lost()
                for run, line in zip(active, iterate(active, trainer), strict=True):
                    display.show(run.directory, line)
                if on_iteration is not None:
                    for run in active:
                        on_iteration(_shown(run))
                if (said := over()) is not None and _unfinished(runs, trainer):
                    raise Stop(said)
    except (Stop, KeyboardInterrupt) as reason:
        why = f": {reason}" if str(reason) else ""
        print(
            printable(f"stopped after iteration {first.progress.iteration}{why}; {_continues(runs)}"), file=sys.stderr
        )
        if not isinstance(reason, Stop):
            raise
    finally:
        for run in runs:
            run.close()


def _unfinished(runs: Sequence[Active], trainer: Trainer) -> list[Active]:
    """The runs that go on. Those that learn together go on until all have ended."""
    going = [run for run in runs if run.course.by is None]
    return list(runs) if going and trainer.replay_capacity else going


def _shown(run: Active) -> Iteration:
    """The last iteration of a run, for those who are called after it."""
    if run.population is None:
        raise ValueError("no iteration has been done")
    return Iteration(Run(run.directory), run.last, run.population)


def _continues(runs: Sequence[Active]) -> str:
    where = runs[0].directory if len(runs) == 1 else runs[0].directory.parent
    return f"`dvdrl resume {quoted(where)}` continues after iteration {runs[0].progress.iteration}"


def iterate(active: Sequence[Active], trainer: Trainer) -> list[dict[str, Any]]:
    """Do one iteration of each run, and write its results."""
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
        # Measure from one metrics line to the next, so that writing the previous line and checkpoint counts too.
        now = time.perf_counter()
        seconds, run.clock = now - run.clock, now
        before, reached = run.progress, standing.reached(outcome.line, run.reached)
        progress = Progress(before.iteration + 1, before.env_steps + outcome.env_steps, before.seconds + seconds)
        line = {
            "iteration": progress.iteration,
            "env_steps": progress.env_steps,
            **standing.judged(outcome.line, reached),
            "steps_per_second": outcome.env_steps / seconds,
            "outside_simulation": 1.0 - simulated / seconds,
            "seconds": progress.seconds,
        }
        with writing(run.directory, f"make it writable again, then {_continues(active)}"):
            _write(run, line, reached, outcome, progress, trainer)
        return line

    if len(active) == 1:
        return [finish(active[0], outcomes[0])]
    with ThreadPoolExecutor(len(active)) as pool:  # writing mostly waits for the disk and computes digests
        return list(pool.map(finish, active, outcomes))


def _write(
    run: Active, line: dict[str, Any], reached: Reached, outcome: Outcome, progress: Progress, trainer: Trainer
) -> None:
    """Write all files of an iteration."""
    # The line comes first. A line without its checkpoint can be repaired; a checkpoint without its line cannot.
    run.metrics.write(line)
    _keep(run, line, outcome, trainer)
    if outcome.transitions is not None:
        new = transitions.write(run.directory / "replay", progress.iteration, outcome.transitions)
        replay = transitions.latest([*run.progress.replay, new], trainer.replay_capacity)
        progress = progress._replace(replay=replay)
    checkpoint.save(run.directory / "checkpoints", outcome.state, progress)
    run.state, run.progress, run.reached, run.last = outcome.state, progress, reached, line
    run.course = ends.after(line, run.course, run.config)
    _remove_old(run.directory, run.config.keep_checkpoints)
    run.keeper.forget(checkpoint.iterations(run.directory / "checkpoints")[0])
    run.population = _population(run.state, run.last, trainer)
    policies.save(run.directory / "policies", run.population)
    for logger in run.loggers:
        logger(_shown(run))


def _keep(run: Active, line: Mapping[str, Any], outcome: Outcome, trainer: Trainer) -> None:
    """Keep the population beside the latest, if it is due or the best so far."""
    due = run.config.keep_every is not None and line["iteration"] % run.config.keep_every == 0
    if not due and outcome.evaluated is None:
        return
    population = _population(outcome.state, line, trainer)
    if due:
        run.keeper.keep(line["iteration"], population)
    if outcome.evaluated is not None:
        run.keeper.evaluated(line["iteration"], population, outcome.evaluated)


def _population(state: Any, line: Mapping[str, Any], trainer: Trainer) -> Population:
    """What is trained in a state, with how its members compare: as the algorithm knows it, or by the line."""
    population = trainer.population(state)
    if population.standing is not None:
        return population
    return dataclasses.replace(population, standing=standing.in_line(line, len(population)))


def _remove_old(directory: Path, keep: int) -> None:
    """Remove all checkpoints except the latest `keep`, and the transitions that none of these needs."""
    checkpoint.keep_latest(directory / "checkpoints", keep)
    if (directory / "replay").exists():
        with contextlib.suppress(Damaged):  # a damaged one does not tell what it needs; it is removed soon
            oldest = checkpoint.oldest_progress(directory / "checkpoints")
            transitions.remove_unused(directory / "replay", oldest.replay)


def _loggers(directory: Path, options: Training[Never], iteration: int) -> tuple[TensorBoard | WeightsAndBiases, ...]:
    """What logs a run from an iteration on."""
    always = TensorBoard(directory, iteration)
    if not options.wandb:
        return (always,)
    return always, WeightsAndBiases(directory, options.wandb_project, dataclasses.asdict(options))
