"""`dvdrl tasks`."""

import subprocess
import sys

from dvdrl.tasks.registry import TASKS
from stopped_runs import DVDRL

IDS = set(TASKS)  # now: the examples in the documentation register a task when they run


def test_lists_every_task_with_its_sizes():
    command = [*DVDRL, "tasks"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert set(rows) > IDS
    assert rows["Humanoid-v5"] == ["348", "17", "1000", "host"]  # MuJoCo Warp has no PGS solver
    assert rows["Point-v0"] == ["6", "2", "50", "host,", "device"]


def test_importing_the_package_is_light():
    code = "import sys, dvdrl; print(sorted({'jax', 'mujoco', 'gymnasium', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_lists_what_can_be_changed_in_a_task():
    command = [*DVDRL, "tasks", "Hopper-v5", "--perturbations"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = {line.split()[0]: line.split()[1:4] for line in lines[1:]}
    assert rows["motor:thigh_joint"] == ["0", "1", "1"]
    assert rows["slope"] == ["-60", "60", "0"]
    assert [row for row in lines if len(row) > 80] == []


def test_a_task_that_is_not_there_is_named():
    result = subprocess.run([*DVDRL, "tasks", "Hoper-v5"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("dvdrl: no task 'Hoper-v5'; did you mean Hopper-v5")
