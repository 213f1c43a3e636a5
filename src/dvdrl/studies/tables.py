"""The tables of a study, made from its results: one row per run, one row per cell, and comparisons of variants."""

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from dvdrl import files
from dvdrl.studies.experiment import Experiment
from dvdrl.studies.kept import Result
from dvdrl.studies.measures import STANDARD, Measure, Row, number


def write(directory: Path, results: Sequence[Result], experiment: Experiment) -> list[dict[str, Any]]:
    """Save runs.csv, summary.csv and comparisons.csv; return the rows of the summary."""
    rows = summarize(results, experiment)
    write_csv(directory / "runs.csv", [run_row(result) for result in results])
    write_csv(directory / "summary.csv", rows)
    write_csv(directory / "comparisons.csv", comparisons(results, experiment))
    return rows


def by_cell(results: Sequence[Result]) -> dict[tuple[str, str], list[Result]]:
    """(setting, variant) -> its runs, in the order of the results."""
    cells: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        cells.setdefault((result.setting, result.variant), []).append(result)
    return cells


def summarize(results: Sequence[Result], experiment: Experiment) -> list[dict[str, Any]]:
    """One row per cell, with the summaries of each measure over seeds."""
    rows = []
    for (setting, variant), cell in by_cell(results).items():
        row: dict[str, Any] = {"setting": setting, "variant": variant, "executor": cell[0].executor, "seeds": len(cell)}
        row["env_steps"] = int(np.median([r.env_steps for r in cell]))
        if (setting, variant) in experiment.paper:
            row["paper_best"] = experiment.paper[setting, variant]
        for name, measure in _measures(experiment).items():
            if values := _values(cell, name):
                for summary in measure.summaries:
                    row |= summary.columns(name, values)
        rows.append(row)
    return rows


def comparisons(results: Sequence[Result], experiment: Experiment) -> list[dict[str, Any]]:
    """The experiment's subject compared with each other variant, by each measure that both have."""
    rows = []
    cells = by_cell(results)
    for setting, variant in cells:
        subject = cells.get((setting, experiment.subject))
        if variant == experiment.subject or subject is None:
            continue
        row: dict[str, Any] = {"setting": setting, "variant": experiment.subject, "against": variant}
        for name, measure in _measures(experiment).items():
            first, second = _values(subject, name), _values(cells[setting, variant], name)
            for summary in measure.summaries:
                if summary.compare and first and second:
                    row |= summary.compare(name, first, second)
        rows.append(row)
    return rows


def readable(rows: Sequence[Row], experiment: Experiment) -> dict[str, list[str]]:
    """Column -> its texts, for readers. Empty columns are left out; so is the executor if all rows have the same."""
    mixed = len({row["executor"] for row in rows}) > 1
    columns = {
        "setting": [row["setting"] for row in rows],
        "variant": [row["variant"] for row in rows],
        "executor": [row["executor"] if mixed else "" for row in rows],
        "seeds": [str(row["seeds"]) for row in rows],
    }
    for name, measure in _measures(experiment).items():
        for summary in filter(lambda summary: summary.title, measure.summaries):
            has, title = summary.key.format(name), summary.title.format(name.replace("_", " "))
            columns[title] = [summary.show(name, row) if row.get(has, "") != "" else "" for row in rows]
    columns["paper"] = [f"{float(row['paper_best']):.0f}" if row.get("paper_best") else "" for row in rows]
    return {name: texts for name, texts in columns.items() if any(texts)}


def print_summary(rows: Sequence[Row], experiment: Experiment) -> None:
    """Print the summary."""
    from rich.console import Console
    from rich.table import Table

    columns = readable(rows, experiment)
    table = Table(*columns)
    for texts in zip(*columns.values(), strict=True):
        table.add_row(*texts)
    Console(width=160).print(table)


def _measures(experiment: Experiment) -> dict[str, Measure]:
    return {**STANDARD, **experiment.measures}


def _values(cell: Sequence[Result], name: str) -> list[float]:
    return [r.measures[name] for r in cell if name in r.measures]


def run_row(r: Result) -> dict[str, Any]:
    """The row of a run in runs.csv."""
    row: dict[str, Any] = {"setting": r.setting, "variant": r.variant, "seed": r.seed}
    row |= {"env_steps": r.env_steps, "seconds": round(r.seconds)}
    return row | {name: number(value) for name, value in r.measures.items()}


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows; where one lacks a column of another, it is empty."""
    text = StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.write_atomically(path, text.getvalue().encode())
