"""The command line as a user meets it, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dvdrl
from dvdrl.policies import MLP
from written_runs import write_run

DVDRL = Path(sys.executable).with_name("dvdrl")


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([DVDRL, *arguments], capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize("arguments", [["--help"], ["reproduce", "--help"], ["bench", "--help"]])
def test_help_teaches(arguments):
    result = run(*arguments)
    assert result.returncode == 0
    assert "usage: dvdrl" in result.stdout


def test_help_imports_nothing_heavy():
    # What makes help slow is importing JAX, MuJoCo and their like before they are needed.
    heavy = {"jax", "mujoco", "gymnasium", "matplotlib", "optax", "ray", "numpy"}
    script = (
        "import sys, dvdrl.cli; sys.argv = ['dvdrl', '--help']\n"
        f"dvdrl.cli.main(); print('IMPORTED', sorted({heavy!r} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "IMPORTED []"


def test_version():
    assert run("--version").stdout == f"dvdrl {dvdrl.__version__}\n"
    module = [sys.executable, "-m", "dvdrl", "--version"]
    assert subprocess.run(module, capture_output=True, text=True, check=True).stdout == f"dvdrl {dvdrl.__version__}\n"


def test_unknown_experiment_is_refused_before_anything_is_written(tmp_path):
    result = run("reproduce", "tabula", cwd=tmp_path)
    assert result.returncode == 2
    assert "tabular" in result.stderr  # what would have been right
    assert list(tmp_path.iterdir()) == []


def test_unwritable_output_is_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = run("reproduce", "tabular", "--out", "file/out", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("dvdrl: cannot write to file/out: ")
    assert result.stderr.count("\n") == 1


def test_the_device_engine_says_what_it_needs():
    result = run("bench", "tasks", "--engine", "device", env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("dvdrl: the device engine needs ")


def test_an_option_that_does_not_apply_is_refused():
    result = run("bench", "diversity", "--engine", "device")
    assert result.returncode == 2
    assert result.stderr == "dvdrl: bench diversity: --engine device is for tasks and es\n"


def test_where_one_run_is_asked_for_several_are_named(tmp_path):
    for seed in (3, 2):
        (tmp_path / "several" / f"seed-{seed}").mkdir(parents=True)
        (tmp_path / "several" / f"seed-{seed}" / "config.json").write_text("{}")
    result = run("export", "several", "--format", "onnx", cwd=tmp_path)
    assert result.returncode == 2
    said = "not a run directory, it has no config.json; it has runs of several seeds, such as several/seed-2"
    assert result.stderr == f"dvdrl: several: {said}\n"


def test_a_picture_that_cannot_be_is_refused_before_anything_is_evaluated(tmp_path):
    write_run(tmp_path / "run", MLP((6, 2)))  # it has no checkpoint, so that evaluating it would be refused too
    result = run("evaluate", "run", "--paths", "new/paths.xyz", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr == "dvdrl: paths: expected a file that ends in .png, .svg, .pdf; got new/paths.xyz\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("words", [["train", "niche-es", "--help"], ["tasks"]])
def test_output_that_nobody_reads_ends_quietly(words):
    reader, writer = os.pipe()
    os.close(reader)  # as `head` does when it has seen enough
    ended = subprocess.run([DVDRL, *words], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_a_way_to_draw_that_mujoco_does_not_have_is_one_line():
    # MuJoCo refuses it as soon as it is imported, with a traceback.
    result = run("tasks", env={**os.environ, "MUJOCO_GL": "crayons"})
    assert result.returncode == 2
    assert result.stderr.startswith("dvdrl: nothing to draw with: MUJOCO_GL=crayons does not work here; unset it")
    assert len(result.stderr.splitlines()) == 1
