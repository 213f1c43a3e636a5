"""Writes docs/reproduction.md from results/: for each claim of the paper what came out here, and the verdict.

    python tools/reproduction.py > docs/reproduction.md

The claims are those of `dvdrl.studies.experiments`; numbers, seeds and commands are read from results/; the verdict and
what explains it stand in results/EXPERIMENT/verdict.md, first line and rest.
"""

import csv
import json
from fractions import Fraction
from pathlib import Path

from dvdrl.runs.presets import resolve
from dvdrl.runs.training import Training
from dvdrl.studies.experiments import EXPERIMENTS, Experiment

ROOT = Path(__file__).parents[1]
ENUMERATED = {
    "theory": ("figure 1", "Clustered or coplanar members are far apart on average and have a small determinant."),
    "tabular": ("figure 2", "The determinant singles out the five optimal policies; the mean distance does not."),
}


def page() -> str:
    """The whole document."""
    about = ENUMERATED | {name: (e.figure, e.claim) for name, e in EXPERIMENTS.items()}
    parts = [
        "# The paper's claims, and what came out here",
        "Written by `python tools/reproduction.py` from `results/`. Intervals are of 95 %, over seeds. The size of a"
        " run is its share of the paper's rollouts, or of its environment steps with TD3.",
        "`dvdrl reproduce` keeps what its tables and figure are made of beside them: the files in `cells/` have the"
        " options of a cell and the curves of each seed. A cell that is kept there, and has no runs on the machine, is"
        " not trained again, so that the same command adds a variant, or a cell that is missing, to the others, also"
        " with another executor; `--tables-only` trains nothing at all. Results without `cells/` are older than that.",
        "| experiment | of the paper | verdict |\n| --- | --- | --- |\n"
        + "\n".join(f"| [{name}](#{name}) | {figure} | {verdict(name)[0]} |" for name, (figure, _) in about.items()),
    ]
    for name, (figure, claim) in about.items():
        parts.append(f"## {name}\n\n" + (f"The paper, {figure}: {claim}" if figure else claim))
        parts.append(f"**{verdict(name)[0]}**" + (f" {verdict(name)[1]}" if verdict(name)[1] else ""))
        parts += evidence(name)
    return "\n\n".join(parts) + "\n"


def verdict(name: str) -> tuple[str, str]:
    """In a word, and why."""
    path = ROOT / "results" / name / "verdict.md"
    if not path.exists():
        return "not run yet", ""
    first, _, rest = path.read_text().partition("\n")
    return first.strip(), rest.strip()


def evidence(name: str) -> list[str]:
    """What all of its settings gave, or each by itself."""
    directory = ROOT / "results" / name
    records = [directory / "record.json", *sorted(directory.glob("*/record.json"))]
    return [part for record in records if record.exists() for part in of_one_command(record.parent)]


def of_one_command(directory: Path) -> list[str]:
    """The command, and the table where there is one."""
    record = json.loads((directory / "record.json").read_text())
    facts = [f"`{record['command']}`"]
    if "seeds" in record:
        facts += [f"seeds {record['seeds']}", f"scale {record['scale']}", f"executor {record['executor']}"]
    if record.get("missing"):
        variants = dict.fromkeys(problem.partition(": ")[0].rpartition(", ")[2] for problem in record["missing"])
        facts.append(f"without {', '.join(variants)}, see its record.json")
    parts = [", ".join(facts) + f"; all of it in `{directory.relative_to(ROOT)}/`."]
    if (directory / "summary.csv").exists():
        rows = list(csv.DictReader((directory / "summary.csv").read_text().splitlines()))
        experiment = EXPERIMENTS[directory.relative_to(ROOT / "results").parts[0]]
        parts.append(table([{**row, "size": share(experiment, record["scale"], row)} for row in rows]))
    return parts


def share(experiment: Experiment, scale: str, row: dict[str, str]) -> str:
    """The part of the paper's rollouts, or with TD3 of its steps, that a run had; nothing where the paper has none."""
    setting, variant = row["setting"], row["variant"]
    if not experiment.figure:
        return ""
    task = experiment.settings[setting]["task"]
    of_paper = setting if setting in experiment.scales["paper"].length else task  # the same with the paper's own steps
    ours = work(experiment.config(setting, variant, scale))
    fraction = Fraction(ours, work(experiment.config(of_paper, variant, "paper"))).limit_denominator(100)
    return "all" if fraction == 1 else str(fraction)


def work(options: Training) -> int:
    """Where a run ends on the x-axis of its curves: rollouts for its gradients, or steps."""
    resolved = resolve(options)
    return resolved.x(resolved.iterations, resolved.steps or 0)


def whole(row: dict[str, str], name: str) -> str:
    """A number of the table without its decimals."""
    return f"{float(row[name]):.0f}"


def table(rows: list[dict[str, str]]) -> str:
    """The summary of a study in Markdown, without the columns that none of its rows has."""
    mixed = len({row.get("executor") for row in rows}) > 1
    columns = {
        "setting": lambda row: row["setting"],
        "variant": lambda row: row["variant"],
        "executor": lambda row: row.get("executor", "") if mixed else "",
        "seeds": lambda row: row["seeds"],
        "size": lambda row: row["size"],
        "median best": lambda row: (
            f"{float(row['best']):.0f} [{float(row['best_low']):.0f}, {float(row['best_high']):.0f}]"
        ),
        "median final": lambda row: whole(row, "final"),
        "solved": lambda row: row.get("solved", ""),
        "both modes": lambda row: row.get("all_modes", ""),
        "paper": lambda row: row.get("paper_best", ""),
    }
    filled = {name: [cell(row) for row in rows] for name, cell in columns.items()}
    kept = {name: cells for name, cells in filled.items() if any(cells)}
    lines = [list(kept), ["---"] * len(kept), *map(list, zip(*kept.values(), strict=True))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(page(), end="")
