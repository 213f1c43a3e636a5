import csv
import json
from pathlib import Path

import pytest

from dvdrl.runs.config import resolve
from dvdrl.studies import td3_choices


def test_a_small_study_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(td3_choices, "CHOICES", {name: td3_choices.CHOICES[name] for name in ("e-td3", "leader")})
    td3_choices.reproduce(tmp_path / "out", scale="smoke", seeds="0..1")
    table = tmp_path / "out" / "summary.csv"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["choice"], row["seeds"], row["env_steps"]) for row in rows] == [
        ("e-td3", "2", "400"),
        ("leader", "2", "400"),
    ]
    assert json.loads((tmp_path / "out" / "record.json").read_text())["scale"] == "smoke"
    td3_choices.reproduce(tmp_path / "out", scale="smoke", seeds="0..1")  # nothing is left to run
    assert list(csv.DictReader(table.read_text().splitlines())) == rows


@pytest.mark.parametrize("name", td3_choices.CHOICES)
def test_every_choice_is_a_config(name: str) -> None:
    resolve(td3_choices.CHOICES[name])
