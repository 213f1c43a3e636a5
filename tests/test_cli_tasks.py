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
