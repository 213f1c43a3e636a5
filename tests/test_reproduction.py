"""docs/reproduction.md says what results/ says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_document_is_what_the_results_make_it():
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "reproduction.py"], capture_output=True, text=True, check=True
    ).stdout
    assert (ROOT / "docs" / "reproduction.md").read_text() == made  # else: make reproduction
