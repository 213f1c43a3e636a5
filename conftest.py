"""Strict numerics in every test, and the code blocks of the documents run as tests."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import subprocess
import sys
from pathlib import Path

import jax
import pytest
from hypothesis import HealthCheck, settings
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_nans", True)

# Compiling a new shape takes longer than hypothesis' deadline; examples are the same in every run.
settings.register_profile("dvdrl", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dvdrl")


def run_shell_block(example: Example) -> None:
    """Run a ```bash block as a user would, with this environment's programs first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", example.parsed],
        check=True,
        env={**os.environ, "PATH": path},
    )


@pytest.fixture
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Documents run in a directory of their own, so that what they write leaves no trace."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), CodeBlockParser("bash", run_shell_block), SkipParser()],
    patterns=["README.md", "docs/*.md"],
    fixtures=["working_directory"],
).pytest()
