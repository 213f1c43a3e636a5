"""Runs an experiment and says what came out: a line a run, a line a cell, comparisons, and a figure."""

import csv
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dvdrl.errors import DvdrlError
from dvdrl.record import make_output_directory, write_record
from dvdrl.runs.checkpoint import Damaged
from dvdrl.runs.directory import Run, is_run, planned
from dvdrl.runs.evaluation import evaluate
from dvdrl.runs.evolution import require_executor
from dvdrl.runs.fields import choices
from dvdrl.runs.file import from_values, to_json
from dvdrl.runs.loop import resume, train
from dvdrl.runs.presets import resolve
from dvdrl.runs.training import Training
from dvdrl.studies import figures, kept, statistics
from dvdrl.studies.experiments import EXPERIMENTS, Experiment
from dvdrl.studies.kept import Result

MODE_EPISODES = 5
_INTERRUPTED = "interrupted before it was finished"


@dataclass(frozen=True)
class Cell:
    """What is trained together: one variant in one setting, all seeds."""

    experiment: str
    setting: str
    variant: str
    scale: str
    seeds: str
    executor: str

    @property
    def directory(self) -> Path:
        """Of its runs. Runs of another scale, of other seeds or of another executor are not this study's."""
        study = Path("runs") / self.experiment / f"{self.scale}-{self.seeds}-{self.executor}"
        return study / _as_file_name(self.setting) / _as_file_name(self.variant)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be trained. That it is this study's is for `run` to see."""
        try:
            return all(is_run(path) and Run(path).finished for path in self.planned())
        except DvdrlError:
            return False

    def run(self) -> None:
        """Train it; what is finished is kept, what is not is resumed."""
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
            if not path.exists():  # killed before all seeds had begun
                train(replace(single, out=path))

    def results(self) -> list[Result]:
        """What its runs gave."""
        return [_result(self, Run(path)) for path in self.planned()]

    def keep(self, results: Sequence[Result], out: Path) -> None:
        """Keep its results beside the tables, for when its runs are gone."""
        options = _options(resolve(self._config()))
        del options["seed"]
        kept.write(self._kept_in(out), options, results)

    def recall(self, out: Path) -> list[Result] | None:
        """Its results as they were kept; none if they were not, or if there are runs of it, which count more.

        They may be another executor's: all of them train the same, and one table can have what several machines did.

        Raises:
            Damaged: the file is not as it was written.
            DvdrlError: it is of other options, as after a change of defaults.
        """
        path = self._kept_in(out)
        if not path.exists() or any(run.exists() for run in self.planned()):
            return None
        options, results = kept.read(path, self.setting, self.variant)
        wanted = _options(resolve(self._config())) | {"executor": options["executor"]}
        _refuse_other(path, _options(from_values(options, path)), wanted)
        return results

    def _kept_in(self, out: Path) -> Path:
        place = out / "cells" / f"{self.scale}-{self.seeds}" / _as_file_name(self.setting)
        return place / f"{_as_file_name(self.variant)}.json"

    def _config(self) -> Training:
        config = EXPERIMENTS[self.experiment].config(self.setting, self.variant, self.scale)
        where: dict[str, Any] = {"executor": self.executor, "seeds": self.seeds, "out": self.directory}
        return replace(config, **where)

    def planned(self) -> dict[Path, Training]:
        """Its runs, by their directories; an error if there is an option that no run can have."""
        return dict(planned(resolve(self._config())))


def _as_file_name(name: str) -> str:
    return name.replace(" ", "-")


def _options(config: Training) -> dict[str, Any]:
    """As a file has them."""
    return dict(json.loads(to_json(config)))


def _refuse_other(path: Path, made: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to take for the study's what was made with other options, as after a change of defaults."""
    other = [f"{name} {made.get(name)}, now {wanted[name]}" for name in wanted if made.get(name) != wanted[name]]
    if other:
        raise DvdrlError(f"{path} was trained with other options: {'; '.join(other)}; move it away to train it anew")


def reproduce(
    name: str,
    directory: Path,
    *,
    scale: str,
    seeds: str | None,
    executor: str,
    setting: str | None = None,
    processes: int = 1,
    tables_only: bool = False,
) -> None:
    """Run what is not yet run, of one setting or of all; print and save the tables and the figure.

    What they are made of is kept beside them, a file a cell: one whose runs are gone need not be run again.

    Raises:
        DvdrlError: cells that could not be run, or were not, for a Ctrl-C or with `tables_only`; the results of all
            others have been saved. Or one that was kept with other options, or an executor that is not installed;
            then nothing has been run.
    """
    experiment = EXPERIMENTS[name]
    for kind, _ in experiment.variants.values():
        if executor not in (known := choices(kind, "executor")):
            raise DvdrlError(f"executor: simulations of {kind.algorithm} run on {', '.join(known)}; got {executor}")
    if scale not in experiment.scales:
        raise DvdrlError(f"scale: {name} has {', '.join(experiment.scales)}; got {scale}")
    settings = list(experiment.scales[scale].length)
    if setting is not None and setting not in settings:
        raise DvdrlError(f"setting: {name} has {', '.join(settings)} at the scale {scale}; got {setting!r}")
    seeds = seeds or experiment.scales[scale].seeds
    cells = [
        Cell(name, each, variant, scale, seeds, executor)
        for each, variant in itertools.product([setting] if setting else settings, experiment.variants)
    ]
    for cell in cells:
        cell.planned()
    found: dict[Cell, list[Result]] = {}
    problems: dict[Cell, str] = {}
    for cell in cells:
        try:
            if (recalled := cell.recall(directory)) is not None:
                found[cell] = recalled
                where = f"{directory}/cells (--executor {recalled[0].executor})"
                print(f"{cell.setting}, {cell.variant}: kept in {where}, not run again", file=sys.stderr)
        except Damaged as error:
            problems[cell] = str(error)
    left = [cell for cell in cells if cell not in found.keys() | problems.keys()]
    if tables_only:
        problems |= {cell: "not finished" for cell in left if not cell.finished}
        left = [cell for cell in left if cell.finished]
    elif not all(cell.finished for cell in left):
        require_executor(executor)
    make_output_directory(directory)
    for cell, problem in _run_all(left, processes):
        if problem is None:
            found[cell] = cell.results()
            cell.keep(found[cell], directory)
        else:
            problems[cell] = problem
    results = [result for cell in cells for result in found.get(cell, ())]
    missing = [f"{cell.setting}, {cell.variant}: {problems[cell]}" for cell in cells if cell in problems]
    if not results:
        raise DvdrlError("no cell has results: " + missing[0])
    rows = summarize(results, experiment)
    _write_csv(directory / "runs.csv", [_run_row(result) for result in results])
    _write_csv(directory / "summary.csv", rows)
    _write_csv(directory / "comparisons.csv", comparisons(results, experiment))
    _save_figure(name, results, experiment, directory / name)
    trained = list({json.dumps(r.versions): r.versions for r in results}.values())
    executors = ", ".join(dict.fromkeys(r.executor for r in results))
    write_record(directory, seeds=seeds, scale=scale, executor=executors, trained_with=trained, missing=missing)
    print_table(rows)
    print(f"Saved {directory}/{name}.png, {name}.svg, summary.csv, comparisons.csv, runs.csv, cells/, record.json")
    if missing:
        raise DvdrlError("not in these results: " + "; ".join(missing))


def summarize(results: Sequence[Result], experiment: Experiment) -> list[dict[str, Any]]:
    """A row for each cell: best and last returns over seeds, and how often it was solved or its modes were learned.

    `first_solved` and `last_solved` are after how many rollouts the fastest and the slowest of those that did were.
    """
    rows = []
    for (setting, variant), cell in _by_cell(results).items():
        row: dict[str, Any] = {"setting": setting, "variant": variant, "executor": cell[0].executor, "seeds": len(cell)}
        row["env_steps"] = int(np.median([r.env_steps for r in cell]))
        best = [float(r.best.max()) for r in cell]
        if (setting, variant) in experiment.paper:
            row["paper_best"] = experiment.paper[setting, variant]
        row |= _columns("best", statistics.median(best)) | _columns("best_iqm", statistics.interquartile_mean(best))
        row |= _columns("final", statistics.median([float(r.best[-1]) for r in cell]))
        if setting in experiment.solved:
            solved = [_solved(r, experiment) for r in cell]
            row |= {"solved": sum(solved)} | _columns("solved_share", statistics.share(sum(solved), len(cell)))
            first = [int(r.x[np.argmax(r.best > experiment.solved[setting])]) for r in itertools.compress(cell, solved)]
            row |= {"first_solved": min(first, default=""), "last_solved": max(first, default="")}
        if setting in experiment.modes:
            learned = [_modes_learned(r, experiment) for r in cell]
            row |= {"all_modes": sum(map(all, learned)), "one_mode": sum(sum(each) == 1 for each in learned)}
            row |= _columns("all_modes_share", statistics.share(row["all_modes"], len(cell)))
            for mode in cell[0].modes:
                row |= _columns(mode, statistics.median([r.modes[mode] for r in cell]))
        rows.append(row)
    return rows


def comparisons(results: Sequence[Result], experiment: Experiment) -> list[dict[str, Any]]:
    """The experiment's subject against each other variant: by the best return of each run, and by the last.

    Where a task counts as solved, or modes as learned, also by how many runs did.
    """
    rows = []
    cells = _by_cell(results)
    for setting, variant in cells:
        subject = cells.get((setting, experiment.subject))
        if variant == experiment.subject or subject is None:
            continue
        both = subject, cells[setting, variant]
        best = statistics.compare(*([float(r.best.max()) for r in cell] for cell in both))
        final = statistics.compare(*([float(r.best[-1]) for r in cell] for cell in both))
        row = (
            {"setting": setting, "variant": experiment.subject, "against": variant}
            | _columns("probability_of_improvement", best.improvement)
            | {"welch_t": _rounded(best.t), "welch_p": _rounded(best.p)}
            | {"final_welch_t": _rounded(final.t), "final_welch_p": _rounded(final.p)}
        )
        if setting in experiment.solved:
            row["solved_fisher_p"] = _rounded(
                statistics.compare_shares(*([_solved(r, experiment) for r in cell] for cell in both))
            )
        if setting in experiment.modes:
            row["all_modes_fisher_p"] = _rounded(
                statistics.compare_shares(*([all(_modes_learned(r, experiment)) for r in cell] for cell in both))
            )
        rows.append(row)
    return rows


def _solved(r: Result, experiment: Experiment) -> bool:
    return bool(r.best.max() > experiment.solved[r.setting])


def _modes_learned(r: Result, experiment: Experiment) -> list[bool]:
    return [value > experiment.modes[r.setting] for value in r.modes.values()]


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the summary."""
    from rich.console import Console
    from rich.table import Table

    mixed = len({row["executor"] for row in rows}) > 1
    columns = {
        "setting": [row["setting"] for row in rows],
        "variant": [row["variant"] for row in rows],
        "executor": [row["executor"] if mixed else "" for row in rows],
        "seeds": [str(row["seeds"]) for row in rows],
        "median best": [f"{row['best']:.0f}" for row in rows],
        "95 %": [f"{row['best_low']:.0f} to {row['best_high']:.0f}" if row["seeds"] > 1 else "" for row in rows],
        "median final": [f"{row['final']:.0f}" for row in rows],
        "solved": [str(row.get("solved", "")) for row in rows],
        "both modes": [str(row.get("all_modes", "")) for row in rows],
        "paper": [f"{row['paper_best']:.0f}" if "paper_best" in row else "" for row in rows],
    }
    shown = {name: values for name, values in columns.items() if any(values)}
    table = Table(*shown)
    for values in zip(*shown.values(), strict=True):
        table.add_row(*values)
    Console(width=120).print(table)


def _run_all(cells: Sequence[Cell], processes: int) -> Iterator[tuple[Cell, str | None]]:
    """Every cell once it has been run, in their order, with what went wrong.

    Ctrl-C ends what is being run and begins nothing more; what is finished still counts.
    """
    interrupted = False
    with ThreadPoolExecutor(processes) as pool:
        apart = {cell: pool.submit(_run_apart, cell) for cell in cells if processes > 1 and not cell.finished}
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
            except DvdrlError as error:
                problem = str(error)
            yield cell, problem


def _run_apart(cell: Cell) -> str | None:
    """Run a cell in a process of its own, with a log beside its runs."""
    log = cell.directory.with_name(f"{cell.directory.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    fields = (cell.experiment, cell.setting, cell.variant, cell.scale, cell.seeds, cell.executor)
    # Processes that share a GPU take of its memory what they need; by default the first one would take most of it.
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
    with log.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "dvdrl.studies.study", *fields],
            stdout=file,
            stderr=file,
            env=environment,
            check=False,
        )
    return None if done.returncode == 0 else (log.read_text().strip().splitlines() or ["it was killed"])[-1]


def _result(cell: Cell, run: Run) -> Result:
    """What a run gave, rounded as it is kept: tables are the same whether they are made from runs or from files."""
    experiment = EXPERIMENTS[cell.experiment]
    lines, config = run.metrics, run.config
    if not lines:
        raise DvdrlError(f"{run.directory}: no metrics")
    # NSR-ES is taken where its iteration with the same rollouts ends. Its M - 1 updates before that one are in the line
    # already, where others' lines show members before any of the iteration: it is ahead, by less than one point.
    every = config.updates_each()
    taken = lines[every - 1 :: every]
    modes: dict[str, float] = {}
    mode_curves = {}
    if cell.setting in experiment.modes:
        evaluated = evaluate(run.directory, MODE_EPISODES)["mode_returns"]
        modes = {mode: _rounded(max(returns)) for mode, returns in evaluated.items()}
        mode_curves = {mode: np.asarray([_rounded(max(line[f"mode_{mode}"])) for line in taken]) for mode in modes}
    return Result(
        cell.setting,
        cell.variant,
        cell.executor,
        config.seed,
        np.asarray([config.x(line["iteration"], line["env_steps"]) for line in taken]),
        np.asarray([_rounded(line["best_return"]) for line in taken]),
        np.asarray([_rounded(line["lambda"]) for line in taken]),
        int(lines[-1]["env_steps"]),
        _rounded(lines[-1]["seconds"]),
        modes,
        mode_curves,
        run.record.get("versions", {}),
    )


def _by_cell(results: Sequence[Result]) -> dict[tuple[str, str], list[Result]]:
    cells: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        cells.setdefault((result.setting, result.variant), []).append(result)
    return cells


def _save_figure(name: str, results: Sequence[Result], experiment: Experiment, path: Path) -> None:
    cells = _by_cell(results)
    panels: dict[str, dict[str, list[tuple[np.ndarray, np.ndarray]]]] = {}
    marks = dict(experiment.solved)
    for (setting, variant), cell in cells.items():
        if setting not in experiment.modes:
            panels.setdefault(setting, {})[variant] = [(r.x, r.best) for r in cell]
        for mode in cell[0].mode_curves:
            panels.setdefault(f"{setting}, {mode}", {})[variant] = [(r.x, r.mode_curves[mode]) for r in cell]
            marks[f"{setting}, {mode}"] = experiment.modes[setting]
    kind, _ = experiment.variants[results[0].variant]
    figures.save(figures.curves(panels, x_label=kind.x_axis, marks=marks), path)
    if kind.x_axis == "rollouts":
        return
    best: dict[str, dict[str, list[float]]] = {}
    minutes: dict[str, dict[str, list[float]]] = {}
    lambdas: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for (setting, variant), cell in cells.items():
        best.setdefault(setting, {})[variant] = [float(r.best.max()) for r in cell]
        minutes.setdefault(setting, {})[variant] = [r.seconds / 60 for r in cell]
        length = min(len(r.lambdas) for r in cell)
        mean = np.mean([r.lambdas[:length] for r in cell], axis=0)
        lambdas.setdefault(setting, {})[variant] = (cell[0].x[:length], mean)
    figures.save(figures.details(best, minutes, lambdas, x_label=kind.x_axis), path.with_name(f"{name}-details"))


def _run_row(r: Result) -> dict[str, Any]:
    row: dict[str, Any] = {"setting": r.setting, "variant": r.variant, "seed": r.seed}
    row |= {"best_return": _rounded(r.best.max()), "final_return": _rounded(r.best[-1])}
    row |= {"env_steps": r.env_steps, "seconds": round(r.seconds)}
    return row | {mode: _rounded(value) for mode, value in r.modes.items()}


def _columns(name: str, estimate: statistics.Estimate) -> dict[str, float]:
    return {
        name: _rounded(estimate.value),
        f"{name}_low": _rounded(estimate.low),
        f"{name}_high": _rounded(estimate.high),
    }


def _rounded(value: float) -> float:
    return round(float(value), 3)


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    try:
        Cell(*sys.argv[1:]).run()
    except DvdrlError as problem:
        sys.exit(str(problem))
