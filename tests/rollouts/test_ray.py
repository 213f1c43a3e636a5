"""The Ray executor on a real cluster of two nodes, of which one and a worker of the other are lost on the way.

On the same cluster: workers that always hang, one that fails, one with another version of dvdrl. One that hangs and is
replaced is in tests/soak/test_ray.py: how long its replacement takes to start depends on the machine's load.
"""

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray")

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.rollouts import ray as executors
from probes import policy_of

# In a process of its own: Ray's threads and warnings are not those of this project.
SCRIPT = """
import dataclasses, os, pathlib, signal, sys, tempfile, threading, time
import jax, numpy as np, ray
from ray.cluster_utils import Cluster
import dvdrl
from dvdrl.process import well_behaved
from dvdrl.runs import checkpoint, evolution, trainer
from dvdrl.runs.presets import resolve
from dvdrl.errors import DvdrlError
from dvdrl.rollouts.collect import Collector
from dvdrl.rollouts.ray import Ray, RayCollector

options = resolve(dvdrl.DvDES(task="Walker2d-v5", population=2, sensings=5, hidden=(8,)))
policy = trainer.make_policy(options)
local = evolution.make_executor(options, policy)
algorithm = evolution.make_algorithm(options, policy)
states = [algorithm.init(jax.random.key(seed)) for seed in (0, 1)]
expected = local.evaluate(algorithm.ask, states)


def same(episodes, expected=expected):
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


executor = Ray(trainer.make_envs(options), policy)
same(executor.evaluate(algorithm.ask, states))
print("equal to local", flush=True)

niche = evolution.make_algorithm(resolve(dvdrl.NicheES(task="Walker2d-v5", population=2, hidden=(8,))), policy)
first = niche.init(jax.random.key(0))
second, _ = niche.tell(first, local.evaluate(niche.ask, [first])[0])  # now with elites
same(executor.evaluate(niche.ask, [first, second]), local.evaluate(niche.ask, [first, second]))
print("niches equal to local", flush=True)

names = ("reward_forward", "last:reward_ctrl", "numpy:tanh")
kind = resolve(dvdrl.DvDES(task="Walker2d-v5", population=2, behaviour="measures", measures=names, hidden=(8,)))
measures = evolution.make_measures(kind)
measured = evolution.make_executor(kind, policy, measures).evaluate(algorithm.ask, states)
assert measured[0].measures.shape[1] == 2 + 17
same(Ray(trainer.make_envs(kind), policy, measures=measures).evaluate(algorithm.ask, states), measured)
print("measures equal to local", flush=True)


def collected(collector, disturb=lambda: None):
    rng, seen = np.random.default_rng(0), [collector.begin([1, 2, 3])]
    for step in range(12):
        if step == 5:
            disturb()
        if step == 8:
            kept = collector.snapshot()
        seen += collector.step(rng.uniform(-1, 1, (3, 6)).astype(np.float32))
    seen += [collector.restore(kept), *collector.step(np.zeros((3, 6), np.float32)), *kept.values()]
    collector.close()
    return seen


def kill():
    os.kill(ray.get(far._workers[0].__ray_call__.remote(lambda self: os.getpid())), signal.SIGKILL)


far = RayCollector(trainer.make_envs(options), 3, policy.head)
assert len(far._workers) == 2
same(collected(far, kill), collected(Collector(trainer.make_envs(options), 3, policy.head)))
print("steps equal to local after a loss", flush=True)

lines = []
for where in ("local", "ray"):
    sizes = {"population": 2, "hidden": (2,), "batch_size": 4, "steps": 40, "iteration_steps": 20, "random_steps": 20}
    out = pathlib.Path(tempfile.mkdtemp()) / "run"
    small = dvdrl.ETD3(task="Point-v0", evaluation_episodes=1, executor=where, out=out, **sizes)
    lines.append([(line["member_returns"], line.get("value")) for line in dvdrl.train(small).metrics])
assert lines[0] == lines[1], lines
print("runs equal to local", flush=True)

folder = pathlib.Path(tempfile.mkdtemp())
executor = Ray(slowly(trainer.make_envs(options), folder), policy)
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
while ray.cluster_resources()["CPU"] > 1:  # until the cluster has noticed, or there would be two workers to hang
    time.sleep(0.1)


def hanging(make_envs):
    "Environments that workers take forever to make."
    def make(*args, num_threads=None, **kwargs):
        if num_threads:
            time.sleep(1000)
        return make_envs(*args, **kwargs)
    return make


def failing(make_envs, error):
    def make(*args, num_threads=None, **kwargs):
        if num_threads:
            raise error
        return make_envs(*args, num_threads=num_threads, **kwargs)
    return make


def said(make_envs, **limit):
    try:
        return same(Ray(make_envs, policy, **limit).evaluate(algorithm.ask, states))
    except DvdrlError as error:
        return str(error)


print("HANGS", said(hanging(trainer.make_envs(options)), time_limit=1.0), flush=True)
print("FAILS", said(failing(trainer.make_envs(options), RuntimeError("out of\\nluck"))), flush=True)
print("SAYS", said(failing(trainer.make_envs(options), DvdrlError("what to do"))), flush=True)
ray.shutdown()
ray.init(cluster.address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": sys.argv[1]}})
print("OTHER", said(trainer.make_envs(options)), flush=True)
ray.shutdown()


def terminated():
    "Train as the command does, until a SIGTERM. Ray has a handler of its own for it, which would end the process."
    options = dvdrl.ES(task="Point-v0", population=1, sensings=1, hidden=(2,), executor="ray", out=folder / "run")
    options = dataclasses.replace(options, ray_address=cluster.address, iterations=3)
    try:
        with well_behaved():
            dvdrl.train(options, on_iteration=lambda done: os.kill(os.getpid(), signal.SIGTERM))
    except SystemExit as end:
        return end.code, checkpoint.iterations(folder / "run" / "checkpoints")


print("TERMINATED", *terminated(), flush=True)
cluster.shutdown()
"""


def test_the_numbers_survive_the_loss_of_a_worker_and_a_node_and_nothing_else(tmp_path: Path) -> None:
    package = Path(dvdrl.__file__).parent
    shutil.copytree(package, tmp_path / "dvdrl")
    (tmp_path / "dvdrl" / "_version.py").write_text('__version__ = "0.0.0"\n')
    command = [sys.executable, "-c", SCRIPT, tmp_path]
    process = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert process.returncode == 0, process.stderr[-3000:]
    assert "\nequal to local" in f"\n{process.stdout}"
    assert "niches equal to local" in process.stdout
    assert "measures equal to local" in process.stdout
    assert "steps equal to local after a loss" in process.stdout
    assert "dvdrl: a Ray worker is lost; its simulations are repeated by another one\n" in process.stderr
    assert "runs equal to local" in process.stdout
    assert "node lost" in process.stdout
    assert "worker lost" in process.stdout
    assert "equal after losses" in process.stdout
    hangs = "HANGS 1 of 1 Ray workers have not answered in 1 seconds, 3 times in a row; --ray-time-limit"
    assert hangs in process.stdout, process.stdout
    assert "RuntimeError: out of" in process.stdout
    assert "SAYS what to do\n" in process.stdout
    other = f"OTHER a Ray worker has dvdrl 0.0.0 instead of {dvdrl.__version__}; install the same versions on all"
    assert other in process.stdout
    assert "TERMINATED 143 [0, 1]\n" in process.stdout
    assert "stopped after iteration 1; `dvdrl resume " in process.stderr


def test_a_head_that_cannot_be_reached_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:  # bound but not listening: nobody answers, and nobody else can
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        begin = time.monotonic()
        options = dvdrl.ES(task="Point-v0", executor="ray", ray_address=address)
        with pytest.raises(DvdrlError, match=f"no Ray cluster at {address}: .*refused; check that its head runs"):
            dvdrl.train(options)
        monkeypatch.setenv("RAY_ADDRESS", f"ray://{address}")
        with pytest.raises(DvdrlError, match=f"no Ray cluster at ray://{address}"):
            executors.Ray(lambda n: dvdrl.make_vec("Point-v0", n), policy_of(6, 2))
    assert time.monotonic() - begin < executors._CONNECT_SECONDS
    with pytest.raises(DvdrlError, match="no Ray cluster at nonsense: "):
        executors.Ray(lambda n: dvdrl.make_vec("Point-v0", n), policy_of(6, 2), "nonsense")
    assert not list(tmp_path.iterdir())
