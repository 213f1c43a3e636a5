"""Variants that are the same algorithm train the same numbers, compiled as users have it.

All other tests run with most of the compiler's optimizations off (conftest.py). With them on, each variant may be
rounded in an order of its own. So equality to the bit is shown here with what users have. One process trains all runs,
because importing and compiling take most of the time.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import dvdrl
from dvdrl.runs import checkpoint

ES = "--task Point-v0 --task-options horizon 20 --population 2 --sensings 3 --hidden 4 --num-states 4 --step-rule adam"
NICHES = ES
TD3 = (
    "--task Point-v0 --task-options horizon 10 --hidden 8 8 --random-steps 40 --iteration-steps 60 --steps 240"
    " --batch-size 16 --buffer-size 180 --evaluation-episodes 1"
)
XQC = TD3 + " --critic-hidden 8"
RUNS = {
    "es": f"es {ES} --iterations 4",
    "nsr-es at lambda 0": f"nsr-es {ES} --iterations 4 --novelty-weight 0 --members all",
    "dvd-es at lambda 0": f"dvd-es {ES} --iterations 4 --arms 0",
    "dvd-es": f"dvd-es {ES} --iterations 4 --seed 1",
    "dvd-es, two seeds": f"dvd-es {ES} --iterations 4 --seeds 0..1",
    "dvd-es, resumed": f"dvd-es {ES} --iterations 2 --seed 1",
    "es with one member": f"es {ES.replace('--population 2', '--population 1')} --iterations 4",
    "niche-es with one member": f"niche-es {NICHES.replace('--population 2', '--population 1')} --iterations 4",
    "niche-es": f"niche-es {NICHES} --iterations 4 --seed 1",
    "niche-es, two seeds": f"niche-es {NICHES} --iterations 4 --seeds 0..1",
    "niche-es, resumed": f"niche-es {NICHES} --iterations 2 --seed 1",
    "td3": f"td3 {TD3}",
    "e-td3 with one member": f"e-td3 {TD3} --population 1",
    "e-td3": f"e-td3 {TD3} --population 2",
    "dvd-td3 at lambda 0": f"dvd-td3 {TD3} --population 2 --arms 0",
    "dvd-td3": f"dvd-td3 {TD3} --population 2 --seed 1",
    "dvd-td3, resumed": f"dvd-td3 {TD3} --population 2 --seed 1 --iterations 2",
    "xqc": f"xqc {XQC} --population 2",
    "xqc with one member": f"xqc {XQC}",
    "niche-xqc with one member": f"niche-xqc {XQC} --population 1",
    "niche-xqc without renewal": f"niche-xqc {XQC} --population 2 --without renewal",
    "niche-xqc": f"niche-xqc {XQC} --population 2 --shared-trunk --seed 1",
    "niche-xqc, resumed": f"niche-xqc {XQC} --population 2 --shared-trunk --seed 1 --iterations 2",
    "dvd-xqc at lambda 0": f"dvd-xqc {XQC} --population 2 --arms 0",
    "dvd-xqc": f"dvd-xqc {XQC} --population 2 --seed 1",
    "dvd-xqc, resumed": f"dvd-xqc {XQC} --population 2 --seed 1 --iterations 2",
}
ITERATIONS = 4
PROGRAM = f"""
import json, pathlib, sys
from dvdrl.cli import main
for name, options in json.loads(sys.argv.pop()).items():
    sys.argv[1:] = ["train", *options.split(), "--out", name]
    main()
    if name.endswith("resumed"):
        # As if it had been stopped here: nothing else in the directory says how many iterations were wanted.
        config = pathlib.Path(name, "config.json")
        config.write_text(json.dumps(json.loads(config.read_text()) | {{"iterations": {ITERATIONS}}}))
        sys.argv[1:] = ["resume", name]
        main()
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with all of the runs."""
    directory = tmp_path_factory.mktemp("equalities")
    usual = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": ""}
    program = [sys.executable, "-c", PROGRAM, json.dumps(RUNS)]
    done = subprocess.run(program, cwd=directory, env=usual, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return directory


EQUAL = [
    ("es", "dvd-es at lambda 0"),
    ("es", "nsr-es at lambda 0"),
    ("td3", "e-td3 with one member"),
    ("e-td3", "dvd-td3 at lambda 0"),
    ("dvd-es", "dvd-es, two seeds/seed-1"),
    ("dvd-es", "dvd-es, resumed"),
    ("niche-es", "niche-es, two seeds/seed-1"),
    ("niche-es", "niche-es, resumed"),
    ("dvd-td3", "dvd-td3, resumed"),
    ("xqc", "dvd-xqc at lambda 0"),
    ("niche-xqc", "niche-xqc, resumed"),
    ("dvd-xqc", "dvd-xqc, resumed"),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_to_the_bit(one: str, other: str, trained: Path) -> None:
    runs = [dvdrl.Run(trained / name) for name in (one, other)]
    returns = [[line["member_returns"] for line in run.metrics] for run in runs]
    assert len(returns[0]) == ITERATIONS
    assert returns[0] == returns[1]
    observations = np.random.default_rng(0).normal(size=(100, 6))
    np.testing.assert_array_equal(*(run.population.act(observations) for run in runs))
    if other.startswith(f"{one},"):  # the same run by another way: whatever it shows of itself is equal too
        clock = ("seconds", "steps_per_second", "outside_simulation")
        lines = [[{k: v for k, v in line.items() if k not in clock} for line in run.metrics] for run in runs]
        assert lines[0] == lines[1]


def test_without_renewal_niche_es_is_es_to_the_bit(trained: Path) -> None:
    # One member is nobody's copy. What a run of niche-ES ends with is the best of its life: so parameters are compared.
    runs = [dvdrl.Run(trained / name) for name in ("es with one member", "niche-es with one member")]
    assert not any(renewed for line in runs[1].metrics for renewed in line["renewed"])
    checkpoints = [run.directory / "checkpoints" for run in runs]
    for iteration in checkpoint.iterations(checkpoints[0]):
        tensors = [load_file(path / f"{iteration:08d}.safetensors") for path in checkpoints]
        for name, tensor in tensors[0].items():
            np.testing.assert_array_equal(tensor, tensors[1][name], err_msg=name)


@pytest.mark.parametrize(("one", "other"), [("xqc", "without renewal"), ("xqc with one member", "with one member")])
def test_without_renewal_niche_xqc_is_xqc_to_the_bit(one: str, other: str, trained: Path) -> None:
    # As for niche-ES, parameters are compared: all that XQC has is in niche-XQC's state, which has its niches besides.
    runs = [trained / one / "checkpoints", trained / f"niche-xqc {other}" / "checkpoints"]
    for iteration in checkpoint.iterations(runs[0]):
        tensors = [load_file(path / f"{iteration:08d}.safetensors") for path in runs]
        learned = {name: tensor for name, tensor in tensors[0].items() if name.startswith(".learner")}
        assert len(learned) > 20
        for name, tensor in learned.items():
            np.testing.assert_array_equal(tensor, tensors[1][name], err_msg=name)


@pytest.mark.parametrize(
    ("one", "other"), [("es", "dvd-es"), ("td3", "e-td3"), ("e-td3", "dvd-td3"), ("xqc", "dvd-xqc")]
)
def test_runs_with_other_options_differ(one: str, other: str, trained: Path) -> None:
    # So that the equalities above are not those of runs in which nothing happens.
    left, right = (dvdrl.Run(trained / name).metrics[-1]["member_returns"] for name in (one, other))
    assert left != right
    assert dvdrl.Run(trained / one).metrics[0]["member_returns"] != left
