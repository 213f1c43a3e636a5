"""Strict numerics in every test, and the code blocks of the documents run as tests."""

import os
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# What one process of the tests has compiled, the others need not compile again: workers, and programs that tests start.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    compiled = tempfile.TemporaryDirectory(prefix="dvdrl-compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled.name
    # The smallest as well: single operations are most of what is compiled, and reading one takes half the time.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Compiling is most of what the tests, and the programs that they start, do; nothing in them depends on how well it is
# done. Without optimizations, and with the older of XLA's two ways to emit code, in one part, it takes half the time.
# `JAX_DISABLE_MOST_OPTIMIZATIONS=0 XLA_FLAGS= make tests` runs them with what users have.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1")

import functools
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import pytest
from hypothesis import HealthCheck, settings
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

# A shell's background job ignores Ctrl-C, and so would the programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_nans", True)

# Compiling a new shape takes longer than hypothesis' deadline; examples are the same in every run.
settings.register_profile(
    "dvdrl", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("dvdrl")


def run_shell_block(example: Example) -> None:
    """Run a ```bash block as a user would, with this environment's programs first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-euo", "pipefail", "-c", example.parsed], check=True, env={**os.environ, "PATH": path})


@pytest.fixture(scope="session")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """A directory for each document."""
    return functools.cache(lambda document: tmp_path_factory.mktemp(document.stem))


@pytest.fixture
def working_directory(
    request: pytest.FixtureRequest, directories: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents run in a directory of their own, so that what they write leaves no trace."""
    monkeypatch.chdir(directories(request.path))


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), CodeBlockParser("bash", run_shell_block), SkipParser()],
    patterns=["README.md", "docs/*.md"],
    fixtures=["working_directory"],
).pytest()
