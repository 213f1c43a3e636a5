"""The notebooks run from the first cell to the last, and the stored ones show what they should."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

pytest.importorskip("nbclient")
ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the executed notebooks. They run in processes of their own."""
    out = tmp_path_factory.mktemp("notebooks")
    command = [sys.executable, ROOT / "tools" / "notebooks.py", "--iterations", "2", "--out", out]
    subprocess.run(command, check=True)
    return out


def printed(notebook: Any) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.get("name") == "stdout")


def kinds(notebook: Any) -> set[str]:
    return {kind for cell in notebook.cells for output in cell.get("outputs", []) for kind in output.get("data", {})}


def test_the_papers_example(executed: Path) -> None:
    done = nbformat.read(executed / "tabular.ipynb", as_version=4)
    assert "81 policies; 5 ways to be paid" in printed(done)  # three actions in each of four states: 3^4
    assert "126 populations" in printed(done)  # multisets of five out of five: 9! / (5! 4!)
    # Section 3.3: only the five optimal policies have a positive determinant; four others are farther apart.
    assert "with a positive determinant: [((-1, -1), (-1, 1), (0, 0), (1, -1), (1, 1))]" in printed(done)
    assert "with a larger mean distance than it: 4" in printed(done)


def test_from_training_to_film(executed: Path) -> None:
    done = nbformat.read(executed / "population.ipynb", as_version=4)
    assert printed(done).count("share") == 5
    assert {"image/png", "text/html"} <= kinds(done)  # the picture, and the film


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebooks_were_executed_to_the_end(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]  # else: python tools/notebooks.py
    assert "image/png" in kinds(notebook)
    assert path.stat().st_size < 1e6
    assert "/tmp" not in path.read_text()
