"""Executes the notebooks in docs/notebooks, and stores what they show: `python tools/notebooks.py`."""

import argparse
import re
import tempfile
from pathlib import Path

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[1] / "docs" / "notebooks"


def execute(path: Path, iterations: int | None) -> nbformat.NotebookNode:
    """Execute a notebook in an empty directory, if asked for with another number of iterations."""
    notebook = nbformat.read(path, as_version=4)
    if iterations is not None:
        for cell in notebook.cells:
            cell.source = re.sub(r"^ITERATIONS = \d+", f"ITERATIONS = {iterations}", cell.source, flags=re.MULTILINE)
    with tempfile.TemporaryDirectory(prefix="dvdrl-notebook-") as directory:
        kernel = KernelManager(kernel_name="python3", transport="ipc", ip=f"{directory}/kernel")  # no port is opened
        place = {"metadata": {"path": directory}}
        NotebookClient(notebook, km=kernel, resources=place, timeout=1800).execute(cwd=directory)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which differ each time
    return notebook


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=NOTEBOOKS, help="directory for the executed notebooks")
    parser.add_argument("--iterations", type=int, help="exchange the number of iterations of training")
    options = parser.parse_args()
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        nbformat.write(execute(path, options.iterations), options.out / path.name)


if __name__ == "__main__":
    main()
