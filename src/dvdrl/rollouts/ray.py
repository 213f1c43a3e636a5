"""Episodes on a Ray cluster: as many tasks as it has CPUs, each with its share of the rollouts.

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

from dvdrl._version import __version__
from dvdrl.errors import DvdrlError
from dvdrl.imports import away_from_a_run
from dvdrl.interfaces import Ask, Episodes
from dvdrl.policies import Policy
from dvdrl.rollouts.local import Local, join, split
from dvdrl.rollouts.measures import Measures

try:
    import ray
except ModuleNotFoundError as _error:
    raise DvdrlError("Ray is not installed; pip install 'dvdrl[ray]'") from _error

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
        self._started = not ray.is_initialized()
        if self._started:
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

    def evaluate(self, ask: Ask, states: Sequence[Any]) -> list[Episodes]:
        """Run the episodes that each state asks for."""
        if ask not in self._recipes:
            self._recipes[ask] = ray.put((self._make_envs, self._policy, self._measures, ask))
        sizes = [len(jax.eval_shape(ask, state).member) for state in states]
        shares = np.array_split(np.arange(sum(sizes)), max(1, int(ray.cluster_resources().get("CPU", 1))))
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
                if isinstance(error.cause, DvdrlError):
                    raise DvdrlError(str(error.cause)) from error
                said = f"{type(error.cause).__name__}: {error.cause}".splitlines()[0]
                raise DvdrlError(f"a Ray worker failed: {said}; all nodes must have dvdrl {__version__}") from error
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
