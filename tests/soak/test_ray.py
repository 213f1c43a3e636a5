"""A Ray worker that hangs is ended and its rollouts run again, to the same numbers."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.soak

# In a process of its own: Ray's threads and warnings are not those of this project.
SCRIPT = """
import os, tempfile, time
import jax, numpy as np
import dvdrl
from dvdrl.runs import evolution, trainer
from dvdrl.runs.presets import resolve
from dvdrl.rollouts.ray import Ray

options = resolve(dvdrl.DvDES(task="Point-v0", population=2, sensings=5, hidden=(8,)))
policy = trainer.make_policy(options)
local = evolution.make_executor(options, policy)
algorithm = evolution.make_algorithm(options, policy)
states = [algorithm.init(jax.random.key(0))]
expected = local.evaluate(algorithm.ask, states)
make_envs, flag = trainer.make_envs(options), tempfile.mkdtemp()


def hanging(*args, num_threads=None, **kwargs):
    if num_threads and not os.listdir(flag):  # the first worker that comes here
        tempfile.mkstemp(dir=flag)
        time.sleep(1000)
    return make_envs(*args, num_threads=num_threads, **kwargs)


executor = Ray(hanging, policy, time_limit=60.0)
for a, b in zip(*(jax.tree.leaves(x) for x in (executor.evaluate(algorithm.ask, states), expected)), strict=True):
    np.testing.assert_array_equal(a, b)
executor.close()
print("equal after a hang")
"""


def test_the_numbers_survive_a_worker_that_hangs() -> None:
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stderr[-3000:]
    assert "not answered in 60 seconds; they are ended and their rollouts are run again" in process.stderr
    assert "equal after a hang" in process.stdout
