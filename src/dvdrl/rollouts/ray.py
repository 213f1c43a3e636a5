"""Episodes on a Ray cluster: as many tasks as it has CPUs, each with its share of the rollouts.

Off-policy learners step simulations instead (`RayCollector`): as many workers as it has CPUs, each with its share.

Only the states of the algorithm travel, once per iteration. Each task calls `ask` on them itself, so noise travels as
the key in the state. If a worker or node is lost, Ray runs its task again elsewhere, and the episodes are the same. If
a worker does not answer, this module runs its task again. Workers are refused if their versions of dvdrl or of the
libraries that determine the numbers differ.
"""

import contextlib
import functools
import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import jax
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from dvdrl._version import __version__
from dvdrl.errors import DvdrlError
from dvdrl.imports import away_from_a_run
from dvdrl.interfaces import Ask, Episodes
from dvdrl.policies import Head, Policy
from dvdrl.rollouts.collect import Collector, Snapshot, Steps
from dvdrl.rollouts.local import Local, join, split
from dvdrl.rollouts.measures import Measures

try:
    import ray
except ModuleNotFoundError as _error:
    raise DvdrlError("Ray is not installed; pip install 'dvdrl[ray]'") from _error

_REPEATED = ("begin", "restore", "step")
"""Calls that change simulations, so that a new worker has to repeat them."""
MakeEnvs = Callable[..., VectorEnv[Any, Any, Any]]
_NONE = Measures()
_CONNECT_SECONDS = 10.0
_ATTEMPTS = 3
"""How often rollouts are tried in all, if their workers do not answer."""
_LOSSES = 20
"""How many workers may be lost with the same rollouts. After that, the rollouts are taken to be the cause."""


class Ray:
    """Evaluates rollouts of a policy.

    Args:
        make_envs: makes a given number of environments, with autoreset disabled, on `num_threads` cores.
        policy: the policy that acts in them.
        address: the address of the cluster to join. None joins the cluster of RAY_ADDRESS, or else starts one on this
            machine. It is ignored if this process is already connected to a cluster.
        time_limit: seconds to wait for a worker. After that the worker is ended and its rollouts are run elsewhere.
        measures: what to measure of each episode. Workers must be able to import its functions.
    """

    def __init__(
        self,
        make_envs: MakeEnvs,
        policy: Policy,
        address: str | None = None,
        time_limit: float = 1800.0,
        measures: Measures = _NONE,
    ):
        self.simulation_seconds = 0.0
        self._make_envs, self._policy, self._time_limit, self._measures = make_envs, policy, time_limit, measures
        self._recipes: dict[Ask, Any] = {}
        self._started = _connected(address)

    def evaluate(self, ask: Ask, states: Sequence[Any]) -> list[Episodes]:
        """Run the episodes that each state asks for."""
        if ask not in self._recipes:
            self._recipes[ask] = ray.put((self._make_envs, self._policy, self._measures, ask))
        sizes = [len(jax.eval_shape(ask, state).member) for state in states]
        shares = np.array_split(np.arange(sum(sizes)), _num_cpus())
        sent = ray.put(list(states))
        # Ray does not resolve a reference inside a list. So a worker that already has the recipe does not fetch it
        # again, and the states become JAX arrays only after the worker has told JAX which platform to use.
        submits = [
            functools.partial(_run.remote, _versions(), [self._recipes[ask]], [sent], share[0], share[-1] + 1)
            for share in shares
            if len(share)
        ]
        episodes, seconds = zip(*self._answers(submits), strict=True)
        self.simulation_seconds += max(seconds)
        return split(join(episodes), np.cumsum(sizes))

    def _answers(self, submits: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results of the tasks. Tasks whose workers do not answer in time are tried again."""
        answers: dict[int, Any] = {}
        for _ in range(_ATTEMPTS):
            tasks = {submit(): number for number, submit in enumerate(submits) if number not in answers}
            ready, late = ray.wait(list(tasks), num_returns=len(tasks), timeout=self._time_limit)
            for task in late:
                ray.cancel(task, force=True)
            try:
                answers |= {tasks[task]: ray.get(task) for task in ready}
            except ray.exceptions.RayTaskError as error:
                raise _failed(error) from error
            except ray.exceptions.RayError as error:
                said = f"{type(error).__name__}: {error}".splitlines()[0]
                raise DvdrlError(f"the Ray cluster cannot run the rollouts: {said}") from error
            if not late:
                return [answers[number] for number in range(len(submits))]
            said = f"{len(late)} of {len(tasks)} Ray workers have not answered in {self._time_limit:g} seconds"
            print(f"dvdrl: {said}; they are ended and their rollouts are run again", file=sys.stderr)
        raise DvdrlError(f"{said}, {_ATTEMPTS} times in a row; --ray-time-limit sets a longer wait")

    def close(self) -> None:
        """Leave the cluster, if this executor joined or started it."""
        if self._started:
            ray.shutdown()


class RayCollector:
    """Steps simulations on a cluster: the same numbers as `Collector`, which each worker has for its share of them.

    A worker that is lost, or does not answer in time, costs nothing but time. Another one begins where the share was
    begun or restored last, and repeats the steps since.

    Args:
        make_envs, address, time_limit: as of `Ray`.
        num_envs: the number of simulations.
        head: turns outputs into actions.
    """

    def __init__(
        self, make_envs: MakeEnvs, num_envs: int, head: Head, address: str | None = None, time_limit: float = 1800.0
    ):
        self.simulation_seconds = 0.0
        self._time_limit, self._started = time_limit, _connected(address)
        self._recipe = ray.put((make_envs, head))
        self._shares = np.array_split(np.arange(num_envs), min(num_envs, _num_cpus()))
        self._workers = [self._new_worker(share, num_cpus=1) for share in self._shares]
        self._done: list[list[tuple[str, Any]]] = [[] for _ in self._shares]
        """What each share has done since it was begun or restored: the names and arguments of calls."""
        self.continues: bool = all(self._call("continues", [None] * len(self._shares)))

    def begin(self, seeds: Sequence[int]) -> NDArray[Any]:
        """See Collector."""
        return np.concatenate(self._call("begin", [[seeds[i] for i in share] for share in self._shares]))

    def snapshot(self) -> Snapshot:
        """See Collector."""
        parts = self._call("snapshot", [None] * len(self._shares))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def restore(self, snapshot: Snapshot) -> NDArray[Any]:
        """See Collector."""
        parts = [{name: rows[share] for name, rows in snapshot.items()} for share in self._shares]
        return np.concatenate(self._call("restore", parts))

    def step(self, outputs: NDArray[np.float32]) -> Steps:
        """See Collector."""
        parts = self._call("step", [outputs[share] for share in self._shares])
        return Steps(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def close(self) -> None:
        """Free the simulations, and leave the cluster if this joined or started it."""
        for worker in self._workers:
            ray.kill(worker)
        if self._started:
            ray.shutdown()

    def _new_worker(self, share: NDArray[Any], num_cpus: int) -> Any:
        return _SIMULATIONS.options(num_cpus=num_cpus).remote(_versions(), [self._recipe], len(share))

    def _call(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """The results of a call of all workers."""
        for done, argument in zip(self._done, arguments, strict=True):
            if name in ("begin", "restore"):
                done.clear()
            if name in _REPEATED:
                done.append((name, argument))
        tasks = [
            worker.do.remote([(name, argument)]) for worker, argument in zip(self._workers, arguments, strict=True)
        ]
        results, seconds = [], 0.0
        for number, task in enumerate(tasks):
            result, took = self._answer(number, task, (name, arguments[number]))
            results.append(result)
            seconds = max(seconds, took)
        self.simulation_seconds += seconds
        return results

    def _answer(self, number: int, task: Any, call: tuple[str, Any]) -> Any:
        """What a worker answers; if it does not, what another one does after all that this one had done."""
        for attempt in range(_ATTEMPTS):
            try:
                return ray.get(task, timeout=self._time_limit)
            except ray.exceptions.RayTaskError as error:
                raise _failed(error) from error
            except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
                late = isinstance(error, ray.exceptions.GetTimeoutError)
                said = f"has not answered in {self._time_limit:g} seconds" if late else "is lost"
                print(f"dvdrl: a Ray worker {said}; its simulations are repeated by another one", file=sys.stderr)
                ray.kill(self._workers[number])
                if attempt + 1 < _ATTEMPTS:
                    # It shares a CPU with others: if a node was lost, there may be none that is free.
                    self._workers[number] = self._new_worker(self._shares[number], num_cpus=0)
                    calls = self._done[number] if call[0] in _REPEATED else [*self._done[number], call]
                    task = self._workers[number].do.remote(calls)
            except ray.exceptions.RayError as error:
                said = f"{type(error).__name__}: {error}".splitlines()[0]
                raise DvdrlError(f"the Ray cluster cannot run the simulations: {said}") from error
        raise DvdrlError(f"a Ray worker {said}, {_ATTEMPTS} times in a row; --ray-time-limit sets a longer wait")


class _Simulations:
    """A worker's share of the simulations of a `RayCollector`."""

    def __init__(self, versions: dict[str, str], recipe: list[Any], num_envs: int):
        _check_versions(versions)
        jax.config.update("jax_platforms", "cpu")  # before the first JAX array, as in `_prepared`
        make_envs, head = ray.get(recipe[0])
        self._collector = Collector(functools.partial(make_envs, num_threads=1), num_envs, head)

    def do(self, calls: Sequence[tuple[str, Any]]) -> tuple[Any, float]:
        """The result of the last of these calls, and the time inside the simulator."""
        before, result = self._collector.simulation_seconds, None
        for name, argument in calls:
            member = getattr(self._collector, name)
            result = member if name == "continues" else member() if argument is None else member(argument)
        return result, self._collector.simulation_seconds - before


_SIMULATIONS: Any = ray.remote(_Simulations)


def _connected(address: str | None) -> bool:
    """Join a cluster, or start one, unless this process has already. Returns whether it has now.

    Raises:
        DvdrlError: there is no such cluster.
    """
    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    _check_reachable(address)
    with warnings.catch_warnings():
        # JAX warns about forks. Ray's forks are harmless, because exec follows at once.
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        try:
            # Ray's workers import from where it is started.
            with away_from_a_run(), _own_end():
                ray.init(address, log_to_driver=False, logging_level=logging.WARNING)
        except (ConnectionError, ValueError, RuntimeError) as error:
            first_line, _, _ = str(error).partition("\n")
            raise DvdrlError(f"no Ray cluster at {address}: {first_line}") from error
    return True


def _num_cpus() -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _failed(error: ray.exceptions.RayTaskError) -> DvdrlError:
    """What the user sees of an error in a worker."""
    if isinstance(error.cause, DvdrlError):
        return DvdrlError(str(error.cause))
    said = f"{type(error.cause).__name__}: {error.cause}".splitlines()[0]
    return DvdrlError(f"a Ray worker failed: {said}; all nodes must have dvdrl {__version__}")


@contextlib.contextmanager
def _own_end() -> Iterator[None]:
    """Start Ray, which installs a handler of SIGTERM, and keep the one that this process has."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        if callable(before):  # a SIGTERM while Ray is being started
            before(signal.SIGTERM, None)
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _check_reachable(address: str) -> None:
    """Fail at once if the cluster cannot be reached; Ray itself would try for minutes."""
    place = urlsplit(address if "://" in address else f"//{address}")
    try:
        if place.hostname and place.port:
            socket.create_connection((place.hostname, place.port), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise DvdrlError(
            f"no Ray cluster at {address}: {error}; check that its head runs and can be reached from here"
        ) from error


@functools.cache
def _versions() -> dict[str, str]:
    """The versions of dvdrl and of the libraries that determine the numbers."""
    return {"dvdrl": __version__, **{name: version(name) for name in ("jax", "mujoco", "numpy")}}


def _check_versions(expected: dict[str, str]) -> None:
    differ = {name: (there, _versions().get(name)) for name, there in expected.items()}
    said = [f"{name} {here} instead of {there}" for name, (there, here) in differ.items() if here != there]
    if said:
        raise DvdrlError(f"a Ray worker has {', '.join(said)}; install the same versions on all nodes")


@ray.remote(num_cpus=1, max_retries=_LOSSES)
def _run(
    versions: dict[str, str], recipe: list[Any], states: list[Any], begin: int, end: int
) -> tuple[Episodes, float]:
    """Episodes `begin` to `end` of all that the states ask for, and the time inside the simulator."""
    _check_versions(versions)
    local, ask = _prepared(recipe[0])
    before = local.simulation_seconds
    rollouts = join([ask(state) for state in ray.get(states[0])])
    episodes = local.run(jax.tree.map(lambda field: field[begin:end], rollouts))
    return episodes, local.simulation_seconds - before


@functools.lru_cache(maxsize=4)
def _prepared(recipe: Any) -> tuple[Local, Ask]:
    """What a worker keeps from one iteration to the next: environments and compiled functions."""
    # A worker on a machine with a GPU must not reserve GPU memory. This must come before the first JAX array.
    jax.config.update("jax_platforms", "cpu")
    make_envs, policy, measures, ask = ray.get(recipe)
    return Local(functools.partial(make_envs, num_threads=1), policy, measures), ask
