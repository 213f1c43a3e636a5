"""Strict numerics in every test. The code blocks of the documents run as tests too."""

import os
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# All processes share one cache of compiled programs: the workers, and the programs that tests start.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    compiled = tempfile.TemporaryDirectory(prefix="dvdrl-compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled.name
    # Small programs are cached too: most of them are single operations, and reading one takes half the time.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# The tests, and the programs that they start, spend most of their time compiling, and do not need fast programs. These
# settings halve that time: no optimizations, and the older of XLA's two code emitters, with the code in one part.
# `JAX_DISABLE_MOST_OPTIMIZATIONS=0 XLA_FLAGS= make tests` runs the tests with the defaults, as users have them.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1")

import functools
import gc
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

# If the tests run as a shell's background job, they ignore Ctrl-C. So would the programs that they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_nans", True)

# No deadline, because compiling a new shape takes longer than the default. Every run uses the same examples.
settings.register_profile(
    "dvdrl", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("dvdrl")


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After each file, have the garbage collector pass over all that is there: by then, thousands of programs."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def run_shell_block(example: Example) -> None:
    """Run a ```bash block as a user would, with this environment's programs first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-euo", "pipefail", "-c", example.parsed], check=True, env={**os.environ, "PATH": path})


@pytest.fixture(scope="session")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """A function that returns the directory of a document."""
    return functools.cache(lambda document: tmp_path_factory.mktemp(document.stem))


@pytest.fixture
def working_directory(
    request: pytest.FixtureRequest, directories: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run each document in its own directory, so that its files leave no trace."""
    monkeypatch.chdir(directories(request.path))


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), CodeBlockParser("bash", run_shell_block), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/*/*.md"],
    excludes=["docs/start.md"],  # tests/test_release.py runs it with the wheel
    fixtures=["working_directory"],
).pytest()
