"""docs/reliability.md names the tests that it rests on."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_fault_names_tests_that_exist() -> None:
    rows = [line for line in (ROOT / "docs" / "reliability.md").read_text().splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 25
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", row.rsplit(" | ", 1)[1])
        assert named, row
        for path, name in named:
            assert f"def {name or 'test_'}" in (ROOT / path).read_text(), f"{path}::{name}"
