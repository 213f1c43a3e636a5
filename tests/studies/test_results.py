"""The tables in results/ are what `dvdrl reproduce --tables-only` makes of the cells that are kept beside them."""

import json
import shutil
from pathlib import Path

import pytest

from dvdrl.errors import DvdrlError
from dvdrl.studies import figures, study
from dvdrl.studies.experiments import EXPERIMENTS

RESULTS = Path(__file__).parents[2] / "results"
TABLES = [path.parent for path in sorted(RESULTS.glob("**/summary.csv"))]


@pytest.mark.parametrize("committed", TABLES, ids=lambda path: str(path.relative_to(RESULTS)))
def test_the_committed_tables_are_made_of_the_committed_cells(committed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where there are no runs
    monkeypatch.setattr(figures, "save_study", lambda *_: None)
    shutil.copytree(committed / "cells", tmp_path / "cells")
    name = committed.relative_to(RESULTS).parts[0]
    record = json.loads((committed / "record.json").read_text())
    named = {setting.replace(" ", "-"): setting for setting in EXPERIMENTS[name].settings}
    options = {"scale": record["scale"], "seeds": record["seeds"], "setting": named.get(committed.name)}
    if record["missing"]:
        with pytest.raises(DvdrlError, match="not in these results"):
            study.reproduce(name, tmp_path, **options, executor="local", tables_only=True)
    else:
        study.reproduce(name, tmp_path, **options, executor="local", tables_only=True)
    for table in ("runs.csv", "summary.csv", "comparisons.csv"):
        assert (tmp_path / table).read_text() == (committed / table).read_text()
