"""Reproduces an experiment: trains its missing cells, and saves the tables and the figure."""

import itertools
import json
import sys
from pathlib import Path

from dvdrl.errors import DvdrlError
from dvdrl.record import make_output_directory, write_record, writing
from dvdrl.runs.checkpoint import Damaged
from dvdrl.runs.evolution import require_executor
from dvdrl.runs.fields import choices
from dvdrl.studies import figures, tables
from dvdrl.studies.cells import Cell, run_all
from dvdrl.studies.experiments import EXPERIMENTS
from dvdrl.studies.kept import Result


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
    """Train the missing cells of one setting or of all; print the table, and save the tables and the figure.

    The results of each cell are kept beside the tables, one file per cell. A kept cell is not trained again, even if
    its runs were deleted.

    Raises:
        DvdrlError: some cells failed, were interrupted by Ctrl-C, or were left out because of `tables_only`; the
            results of all others have been saved. Or a cell was kept with other options, or the executor is not
            installed; then nothing has been trained.
    """
    experiment = EXPERIMENTS[name]
    for kind, _ in experiment.variants.values():
        if executor not in (known := choices(kind, "executor")):
            raise DvdrlError(f"executor: {kind.algorithm} can run on {', '.join(known)}; got {executor}")
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
            if (recalled := cell.recall(directory, of_any_seeds=tables_only)) is not None:
                found[cell] = recalled
                where = f"{directory}/cells (--executor {recalled[0].executor}, {len(recalled)} seeds)"
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
    for cell, problem in run_all(left, processes):
        try:
            results = cell.results() if problem is None else []
        except DvdrlError as error:
            problem = str(error)
        if problem is None:
            found[cell] = results
            with writing(directory):
                cell.keep(results, directory)
        else:
            problems[cell] = problem
    results = [result for cell in cells for result in found.get(cell, ())]
    missing = [f"{cell.setting}, {cell.variant}: {problems[cell]}" for cell in cells if cell in problems]
    if not results:
        raise DvdrlError("no cell has results: " + missing[0])
    without_curves = "; ".join(dict.fromkeys(f"{r.setting}, {r.variant}" for r in results if not r.curves))
    trained = list({json.dumps(r.versions): r.versions for r in results}.values())
    executors = ", ".join(dict.fromkeys(r.executor for r in results))
    with writing(directory):
        rows = tables.write(directory, results, experiment)
        if without_curves:
            print(f"The figure is not drawn again: no curves are kept of {without_curves}", file=sys.stderr)
        else:
            figures.save_study(directory, name, results, experiment)
        if experiment.draw is not None:
            experiment.draw(directory, name, results)
        write_record(directory, seeds=seeds, scale=scale, executor=executors, trained_with=trained, missing=missing)
    tables.print_summary(rows, experiment)
    figure = "" if without_curves else f"{name}.png, "
    print(f"Saved {directory}/{figure}summary.csv, comparisons.csv, runs.csv, cells/, record.json")
    if missing:
        raise DvdrlError("not in these results: " + "; ".join(missing))
