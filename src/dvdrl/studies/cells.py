"""The cells of a study. A cell is trained together; this module runs cells, keeps their results and recalls them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dvdrl import files
from dvdrl.errors import DvdrlError
from dvdrl.runs.directory import Run, is_run, planned
from dvdrl.runs.file import from_values, to_json
from dvdrl.runs.loop import resume, train
from dvdrl.runs.presets import resolve
from dvdrl.runs.training import Training
from dvdrl.studies import kept
from dvdrl.studies.experiment import Experiment
from dvdrl.studies.experiments import EXPERIMENTS
from dvdrl.studies.kept import Result
from dvdrl.studies.measures import STANDARD, Outcome, number, rounded

_MOST_OF_LOG = 2**26
_INTERRUPTED = "interrupted before it was finished"


@dataclass(frozen=True)
class Cell:
    """One variant in one setting with all seeds, which are trained together."""

    experiment: str
    setting: str
    variant: str
    scale: str
    seeds: str
    executor: str

    @property
    def directory(self) -> Path:
        """The directory of its runs. Runs of another scale, executor or range of seeds have other directories."""
        study = Path("runs") / self.experiment / f"{self.scale}-{self.seeds}-{self.executor}"
        return study / _as_file_name(self.setting) / _as_file_name(self.variant)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to train. Whether the runs have the study's options is checked by `run`."""
        try:
            return all(is_run(path) and Run(path).finished for path in self.planned())
        except DvdrlError:
            return False

    def run(self) -> None:
        """Train it. Finished runs are kept; unfinished runs are resumed."""
        planned = self.planned()
        for path, single in planned.items():
            if is_run(path):
                _refuse_other(path, _options(Run(path).config), _options(single))
        if not any(is_run(path) for path in planned):
            train(self._config())
        begun = [path for path in planned if path.exists()]
        if not all(is_run(path) and Run(path).finished for path in begun):
            resume(self.directory)
        for path, single in planned.items():
            if not path.exists():  # the study was killed before all seeds had begun
                train(replace(single, out=path))

    def results(self) -> list[Result]:
        """The results of its runs."""
        return [_result(self, Run(path)) for path in self.planned()]

    def keep(self, results: Sequence[Result], out: Path) -> None:
        """Save its results beside the tables, where they stay when the runs are deleted."""
        options = _options(resolve(self._config()))
        del options["seed"]
        kept.write(self._kept_in(out, self.seeds), options, results)

    def recall(self, out: Path, *, of_any_seeds: bool = False) -> list[Result] | None:
        """Its kept results. None if there are none, or if it has runs, which take precedence.

        The results may come from another executor: all executors train alike, so one table can combine the work of
        several machines. With `of_any_seeds`, results of other seeds are used if there are none of these seeds.

        Raises:
            Damaged: the file was changed after it was written.
            DvdrlError: its options are not the study's, for instance after a change of defaults.
        """
        path = self._kept_in(out, self.seeds)
        if of_any_seeds and not path.exists():
            path = min(out.glob(str(self._kept_in(Path(), "*"))), default=path)
        if not path.exists() or any(run.exists() for run in self.planned()):
            return None
        curves = [name for name, each in EXPERIMENTS[self.experiment].measures.items() if each.curve]
        options, results = kept.read(path, self.setting, self.variant, curves)
        wanted = _options(resolve(self._config())) | {"executor": options["executor"]}
        _refuse_other(path, _options(from_values(options, path)), wanted)
        return results

    def _kept_in(self, out: Path, seeds: str) -> Path:
        place = out / "cells" / f"{self.scale}-{seeds}" / _as_file_name(self.setting)
        return place / f"{_as_file_name(self.variant)}.json"

    def _config(self) -> Training:
        config = EXPERIMENTS[self.experiment].config(self.setting, self.variant, self.scale)
        where: dict[str, Any] = {"executor": self.executor, "seeds": self.seeds, "out": self.directory}
        return replace(config, **where)

    def planned(self) -> dict[Path, Training]:
        """Its runs by directory. Raises an error if an option is invalid."""
        return dict(planned(resolve(self._config())))


def _as_file_name(name: str) -> str:
    return name.replace(" ", "-")


def _options(config: Training) -> dict[str, Any]:
    """The options as a config.json has them."""
    return dict(json.loads(to_json(config)))


def _refuse_other(path: Path, made: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse results that were made with other options than the study's, for instance after a change of defaults."""
    other = [f"{name} {made.get(name)}, now {wanted[name]}" for name in wanted if made.get(name) != wanted[name]]
    if other:
        raise DvdrlError(f"{path} was trained with other options: {'; '.join(other)}; move it away to train again")


def run_all(cells: Sequence[Cell], processes: int) -> Iterator[tuple[Cell, str | None]]:
    """Run the cells, and yield each one in order, with the error message if it failed.

    Ctrl-C stops the running cells and begins no others. Finished cells still count.
    """
    interrupted = False
    started: list[subprocess.Popen[bytes]] = []
    with ThreadPoolExecutor(processes) as pool:
        apart = {cell: pool.submit(_run_apart, cell, started) for cell in cells if processes > 1 and not cell.finished}
        for number, cell in enumerate(cells, start=1):
            name = f"cell {number} of {len(cells)}: {cell.setting}, {cell.variant}"
            problem = None
            try:
                if cell in apart:
                    problem = apart[cell].result()
                    print(f"{name}: {problem or 'done'}", file=sys.stderr)
                elif interrupted and not cell.finished:
                    problem = _INTERRUPTED
                else:
                    print(name, file=sys.stderr)
                    cell.run()
            except (KeyboardInterrupt, CancelledError):
                interrupted, problem = True, _INTERRUPTED
                pool.shutdown(wait=False, cancel_futures=True)
                for process in started:  # a Ctrl-C reaches them by itself, a SIGTERM does not
                    process.terminate()
            except DvdrlError as error:
                problem = str(error)
            yield cell, problem


def _run_apart(cell: Cell, started: list[subprocess.Popen[bytes]]) -> str | None:
    """Run a cell in a process of its own, with a log beside its runs. Returns the error message if it failed."""
    log = cell.directory.with_name(f"{cell.directory.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    fields = (cell.experiment, cell.setting, cell.variant, cell.scale, cell.seeds, cell.executor)
    # Processes that share a GPU must reserve memory as they need it; by default the first one reserves most of it.
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
    files.write_atomically(log, b"", durable=False)
    with files.opened_to_append(log) as file:
        # -P: nothing is imported from the working directory.
        command = [sys.executable, "-P", "-m", "dvdrl.studies.cells", *fields]
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        started.append(process)
        if process.wait() == 0:
            return None
    said = files.read(log, most=_MOST_OF_LOG).decode(errors="replace")
    return (said.strip().splitlines() or ["it was killed"])[-1]


def _result(cell: Cell, run: Run) -> Result:
    """The results of a run."""
    experiment = EXPERIMENTS[cell.experiment]
    try:
        return _measured(cell, run, experiment)
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        said = f"the metrics of {cell.variant}, got {type(error).__name__}: {error}"
        raise DvdrlError(f"{run.directory}: expected {said}") from error


def _measured(cell: Cell, run: Run, experiment: Experiment) -> Result:
    lines, config = run.metrics, run.config
    if not lines:
        raise DvdrlError(f"{run.directory}: no metrics")
    # Every M-th line of NSR-ES counts, where it has made as many rollouts as others in one iteration. That line already
    # includes M - 1 updates, while a line of the others shows members before any update of the iteration. So NSR-ES is
    # ahead, by less than one point of the curve.
    every = config.updates_each()
    taken = lines[every - 1 :: every]
    x = np.asarray([config.x(line["iteration"], line["env_steps"]) for line in taken])
    outcome = Outcome(cell.setting, run, x, taken, experiment.episodes)
    found = {name: measure.of(outcome) for name, measure in {**STANDARD, **experiment.measures}.items()}
    return Result(
        cell.setting,
        cell.variant,
        cell.executor,
        config.seed,
        int(lines[-1]["env_steps"]),
        rounded(lines[-1]["seconds"]),
        {name: number(value) for name, value in found.items() if value is not None},
        _curves(outcome, experiment),
        run.record.get("versions", {}),
    )


def _curves(outcome: Outcome, experiment: Experiment) -> dict[str, np.ndarray]:
    """The curves that figures show."""

    def of(value: Callable[[Mapping[str, Any]], float]) -> np.ndarray:
        return np.asarray([rounded(value(line)) for line in outcome.lines])

    drawn = {name: of(measure.curve) for name, measure in experiment.measures.items() if measure.curve}
    best, lambdas = of(lambda line: line["best_return"]), of(lambda line: line["lambda"])
    return {"x": outcome.x, "best": best, "lambda": lambdas, **drawn}


if __name__ == "__main__":
    try:
        Cell(*sys.argv[1:]).run()
    except DvdrlError as problem:
        sys.exit(str(problem))
