"""The Ray executor on a real cluster of two nodes, of which one and a worker of the other are lost on the way."""

import subprocess
import sys

import pytest

pytest.importorskip("ray")

# In a process of its own: Ray's threads and warnings are not those of this project.
SCRIPT = """
import os, pathlib, signal, tempfile, threading, time
import jax, numpy as np, ray
from ray.cluster_utils import Cluster
import dvdrl
from dvdrl.runs import config, evolution, trainer
from dvdrl.rollouts.ray import Ray

options = config.resolve(dvdrl.DvDES(task="Walker2d-v5", population=2, sensings=5, hidden=(8,)))
local = evolution.make_executor(options)
algorithm = evolution.make_algorithm(options, local.policy)
states = [algorithm.init(jax.random.key(seed)) for seed in (0, 1)]
expected = local.evaluate(algorithm.ask, states)


def same(episodes):
    for a, b in zip(jax.tree.leaves(episodes), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
lost = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
ray.init(cluster.address, log_to_driver=False)


def slowly(make_envs, folder):
    "Environments that take their time, and leave the number of the process that they are in."
    def make(*args, **kwargs):
        pathlib.Path(folder, str(os.getpid())).touch()
        time.sleep(4)
        return make_envs(*args, **kwargs)
    return make


executor = Ray(trainer.make_envs(options), options.hidden)
same(executor.evaluate(algorithm.ask, states))
print("equal to local", flush=True)

folder = pathlib.Path(tempfile.mkdtemp())
executor = Ray(slowly(trainer.make_envs(options), folder), options.hidden)
known = set(folder.iterdir())  # this process makes one environment too, to see its spaces


def disturb():
    while len(workers := set(folder.iterdir()) - known) < 2:
        time.sleep(0.1)
    cluster.remove_node(lost, allow_graceful=False)
    print("node lost", flush=True)
    for worker in workers:
        try:
            os.kill(int(worker.name), signal.SIGKILL)
            print("worker lost", flush=True)
        except ProcessLookupError:
            pass  # the one on the node


thread = threading.Thread(target=disturb)
thread.start()
same(executor.evaluate(algorithm.ask, states))
thread.join()
print("equal after losses", flush=True)
ray.shutdown()
cluster.shutdown()
"""


def test_the_numbers_survive_the_loss_of_a_worker_and_a_node() -> None:
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stderr[-3000:]
    assert "equal to local" in process.stdout
    assert "node lost" in process.stdout
    assert "worker lost" in process.stdout
    assert "equal after losses" in process.stdout
