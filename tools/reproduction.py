"""Writes docs/reproduction.md and the tables in results/EXPERIMENT/README.md, from the files in results/.

    python tools/reproduction.py

A page has a title, the verdict in bold, a part between two markers that this program writes, and details. The part
between the markers has the claim from `dvdrl.studies.experiments` and a table for each setting.
"""

import csv
import json
import re
from fractions import Fraction
from pathlib import Path

from dvdrl.runs.presets import resolve
from dvdrl.runs.training import Training
from dvdrl.studies import quality_diversity, tables
from dvdrl.studies.experiment import Experiment
from dvdrl.studies.experiments import EXPERIMENTS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
ENUMERATED = {
    "theory": ("figure 1", "Clustered or coplanar members are far apart on average and have a small determinant."),
    "tabular": ("figure 2", "The determinant singles out the five optimal policies; the mean distance does not."),
}
ABOUT = ENUMERATED | {name: (each.figure, each.claim) for name, each in EXPERIMENTS.items()}
"""Name -> the paper's figure, and its claim."""
BEGIN, END = "<!-- written by tools/reproduction.py -->", "<!-- until here -->"
INTRODUCTION = """\
# The paper's claims, and the results here

Each experiment has a page with its tables, its figure and the details. The size of a run is its share of the paper's
rollouts, or with TD3 of the paper's environment steps. Intervals on the pages are 95 % intervals over seeds.
`python tools/reproduction.py` writes this page from `results/`.
"""
NOTES = """\
`dvdrl reproduce EXPERIMENT` trains the missing cells and makes the tables. A cell is one variant in one setting with
all its seeds. Its file in `cells/`, beside the tables, keeps its options, and the measures and curves of each seed. A
kept cell is not trained again, so the same command can add a variant later, also with another executor.
`--tables-only` trains nothing and makes the tables in `results/` again.
`python -m dvdrl.studies.cells EXPERIMENT SETTING VARIANT SCALE SEEDS EXECUTOR` trains one cell, for instance on another
machine.

## Rebuilt cells

The runs of some cells were deleted before cells were kept. The files of these cells were made from the published table
of runs, as `rebuilt_from` in each of them says. That table has three decimals, and one for the parts of Humanoid's
return. So statistics may differ from those published earlier in the last digit. Rebuilt cells have measures but no
curves, so their figure is the one that was drawn from the runs. Their options are those of the experiment's definition,
because options were not recorded at the time.
"""


def documents() -> dict[Path, str]:
    """File -> the text that this program writes to it."""
    pages = {RESULTS / name / "README.md": page(name) for name in ABOUT}
    return {ROOT / "docs" / "reproduction.md": overview(pages), **pages}


def overview(pages: dict[Path, str]) -> str:
    """The text of docs/reproduction.md."""
    lines = ["| experiment | claim | verdict | size | seeds |", "| --- | --- | --- | --- | --- |"]
    for name, (figure, claim) in ABOUT.items():
        link = f"[{name}](../results/{name}/README.md)" + (f", {figure}" if figure else "")
        shares, seeds = sizes(name)
        verdict = verdict_of(pages[RESULTS / name / "README.md"])
        lines.append(f"| {link} | {claim} | {verdict} | {extent(shares)} | {seeds} |")
    return "\n".join([INTRODUCTION, *lines, "", NOTES])


def verdict_of(text: str) -> str:
    """The first text in bold on a page."""
    found = re.search(r"\*\*(.+?)\*\*", text, re.DOTALL)
    assert found, "a page begins with its verdict, in bold"
    return " ".join(found[1].split())


def page(name: str) -> str:
    """An experiment's page with its tables replaced."""
    text = (RESULTS / name / "README.md").read_text()
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"results/{name}/README.md: expected {BEGIN} and {END}"
    figure, claim = ABOUT[name]
    parts = [f"The paper, {figure}: {claim}" if figure else claim]
    parts += [part for directory in directories(name) for part in of_one_command(name, directory)]
    return before + "\n\n".join([BEGIN, *parts, END]) + after


def directories(name: str) -> list[Path]:
    """The directories with a record: the experiment's own, or one for each setting."""
    return [path.parent for path in sorted((RESULTS / name).glob("**/record.json"))]


def of_one_command(name: str, directory: Path) -> list[str]:
    """The command, and a table for each setting."""
    record = json.loads((directory / "record.json").read_text())
    facts = [f"`{record['command']}`"]
    if "seeds" in record:
        facts += [f"seeds {record['seeds']}", f"scale {record['scale']}", f"executor {record['executor']}"]
    if record.get("missing"):
        facts.append(f"without {', '.join(problem.partition(': ')[0] for problem in record['missing'])}")
    parts = [", ".join(facts) + f"; files in `{directory.relative_to(ROOT)}/`."]
    rows = [*summary(directory), *quality_diversity.summary(directory)]
    for setting in dict.fromkeys(row["setting"] for row in rows):
        parts.append(f"### {setting}")
        parts.append(table([row for row in rows if row["setting"] == setting], EXPERIMENTS[name], record["scale"]))
    return parts


def table(rows: list[dict[str, str]], experiment: Experiment, scale: str) -> str:
    """The summary of one setting in Markdown."""
    columns = tables.readable(rows, experiment)
    del columns["setting"]
    columns |= {"size": [said(share(experiment, scale, row)) for row in rows]}
    shown = {name: texts for name, texts in columns.items() if any(texts)}
    lines = [list(shown), ["---"] * len(shown), *map(list, zip(*shown.values(), strict=True))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary(directory: Path) -> list[dict[str, str]]:
    """The rows of its summary.csv. Empty if nothing was trained."""
    path = directory / "summary.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def sizes(name: str) -> tuple[list[Fraction], str]:
    """The sizes of an experiment's runs, and the number of seeds per cell."""
    shares, seeds = [], []
    for directory in directories(name):
        for row in summary(directory):
            scale = json.loads((directory / "record.json").read_text())["scale"]
            shares += filter(None, [share(EXPERIMENTS[name], scale, row)])
            seeds.append(int(row["seeds"]))
    return shares, " to ".join(map(str, sorted({min(seeds), max(seeds)}))) if seeds else ""


def extent(shares: list[Fraction]) -> str:
    """The least and the greatest size, as text."""
    return " to ".join(dict.fromkeys(map(said, (min(shares), max(shares))))) if shares else ""


def said(fraction: Fraction | None) -> str:
    """The text of a size in a table."""
    return "" if fraction is None else "all" if fraction == 1 else str(fraction)


def share(experiment: Experiment, scale: str, row: dict[str, str]) -> Fraction | None:
    """A run's share of the paper's rollouts, or with TD3 of its steps. None if the paper has no such experiment."""
    setting, variant = row["setting"], row["variant"]
    if not experiment.figure:
        return None
    task = experiment.settings[setting]["task"]
    of_paper = setting if setting in experiment.scales["paper"].length else task  # the same with the paper's own steps
    ours = work(experiment.config(setting, variant, scale))
    return Fraction(ours, work(experiment.config(of_paper, variant, "paper"))).limit_denominator(100)


def work(options: Training) -> int:
    """The end of a run on the x-axis of its curves: rollouts for gradients, or steps."""
    resolved = resolve(options)
    return resolved.x(resolved.iterations, resolved.steps or 0)


if __name__ == "__main__":
    for path, text in documents().items():
        path.write_text(text)
