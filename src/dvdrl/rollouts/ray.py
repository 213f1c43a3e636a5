"""Episodes on a Ray cluster: as many tasks as it has CPUs, each with its share of the rollouts.

What travels is the states of the algorithm, once an iteration; a task asks them itself, so that noise travels as the
key in the state. A task whose worker or node is lost is run again elsewhere, by Ray, and gives the same episodes; so
is, by us, one whose worker does not answer. Workers with other versions of what decides the numbers are refused.
"""

import functools
import logging
import os
import socket
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import jax
import numpy as np
from gymnasium.vector import VectorEnv

from dvdrl._version import __version__
from dvdrl.errors import DvdrlError
from dvdrl.interfaces import Ask, Episodes
from dvdrl.policies import Policy
from dvdrl.rollouts.local import Local, join, split

try:
    import ray
except ModuleNotFoundError as _error:
    raise DvdrlError("Ray is not installed; pip install 'dvdrl[ray]'") from _error

MakeEnvs = Callable[..., VectorEnv[Any, Any, Any]]
_CONNECT_SECONDS = 10.0
_ATTEMPTS = 3
"""How often rollouts are tried whose worker does not answer."""
_LOSSES = 20
"""How many workers may be lost over the same rollouts, before what they die of is taken to be the rollouts."""


class Ray:
    """Evaluates rollouts of a policy.

    Args:
        make_envs: makes so many environments, with autoreset disabled, on `num_threads` cores.
        policy: what acts in them.
        address: of the cluster to join; None takes that of RAY_ADDRESS, or starts one on this machine, unless this
            process has one already.
        time_limit: seconds after which a worker that has not answered is ended, and its rollouts are run elsewhere.
    """

    def __init__(self, make_envs: MakeEnvs, policy: Policy, address: str | None = None, time_limit: float = 1800.0):
        self.simulation_seconds = 0.0
        self._make_envs, self._policy, self._time_limit = make_envs, policy, time_limit
        self._recipes: dict[Ask, Any] = {}
        self._started = not ray.is_initialized()
        if self._started:
            address = address or os.environ.get("RAY_ADDRESS") or "local"
            _check_reachable(address)
            with warnings.catch_warnings():
                # JAX warns of forks; Ray's are followed by exec at once.
                warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
                try:
                    ray.init(address, log_to_driver=False, logging_level=logging.WARNING)
                except (ConnectionError, ValueError, RuntimeError) as error:
                    first_line, _, _ = str(error).partition("\n")
                    raise DvdrlError(f"no Ray cluster at {address}: {first_line}") from error

    def evaluate(self, ask: Ask, states: Sequence[Any]) -> list[Episodes]:
        """The episodes that each of the states asks for."""
        if ask not in self._recipes:
            self._recipes[ask] = ray.put((self._make_envs, self._policy, ask))
        sizes = [len(jax.eval_shape(ask, state).member) for state in states]
        shares = np.array_split(np.arange(sum(sizes)), max(1, int(ray.cluster_resources().get("CPU", 1))))
        sent = ray.put(list(states))
        # In a list, a reference is passed as such: a worker that has the recipe already does not fetch it again, and
        # the states are not made arrays of JAX's before it has been told where those are to be.
        submits = [
            functools.partial(_run.remote, _versions(), [self._recipes[ask]], [sent], share[0], share[-1] + 1)
            for share in shares
            if len(share)
        ]
        episodes, seconds = zip(*self._answers(submits), strict=True)
        self.simulation_seconds += max(seconds)
        return split(join(episodes), np.cumsum(sizes))

    def _answers(self, submits: Sequence[Callable[[], Any]]) -> list[Any]:
        """What the tasks return, those tried again whose workers do not answer in time."""
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
                raise DvdrlError(f"a Ray worker failed: {said}; do all nodes have dvdrl {__version__}?") from error
            except ray.exceptions.RayError as error:
                said = f"{type(error).__name__}: {error}".splitlines()[0]
                raise DvdrlError(f"the Ray cluster cannot run the rollouts: {said}") from error
            if not late:
                return [answers[number] for number in range(len(submits))]
            said = f"{len(late)} of {len(tasks)} Ray workers have not answered in {self._time_limit:g} seconds"
            print(f"dvdrl: {said}; ended, and their rollouts run again", file=sys.stderr)
        raise DvdrlError(f"{said}, {_ATTEMPTS} times in a row; a larger --ray-time-limit waits for slower ones")

    def close(self) -> None:
        """Leave the cluster, if this executor joined or started it."""
        if self._started:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray itself tries for minutes."""
    place = urlsplit(address if "://" in address else f"//{address}")
    try:
        if place.hostname and place.port:
            socket.create_connection((place.hostname, place.port), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise DvdrlError(
            f"no Ray cluster at {address}: {error}; is its head running, and can it be reached from here?"
        ) from error


@functools.cache
def _versions() -> dict[str, str]:
    """Of what decides the numbers."""
    return {"dvdrl": __version__, **{name: version(name) for name in ("jax", "mujoco", "numpy")}}


def _check_versions(expected: dict[str, str]) -> None:
    differ = {name: (there, _versions().get(name)) for name, there in expected.items()}
    said = [f"{name} {here} instead of {there}" for name, (there, here) in differ.items() if here != there]
    if said:
        raise DvdrlError(f"a Ray worker has {', '.join(said)}; install the same on all nodes")


@ray.remote(num_cpus=1, max_retries=_LOSSES)
def _run(
    versions: dict[str, str], recipe: list[Any], states: list[Any], begin: int, end: int
) -> tuple[Episodes, float]:
    """The episodes from `begin` to `end` of all that the states ask for, and the time inside the simulator."""
    _check_versions(versions)
    local, ask = _prepared(recipe[0])
    before = local.simulation_seconds
    rollouts = join([ask(state) for state in ray.get(states[0])])
    episodes = local.run(jax.tree.map(lambda field: field[begin:end], rollouts))
    return episodes, local.simulation_seconds - before


@functools.lru_cache(maxsize=4)
def _prepared(recipe: Any) -> tuple[Local, Ask]:
    """What a worker keeps from one iteration to the next: environments and compiled functions."""
    # A worker on a machine with a GPU must not reserve its memory. With an array of JAX's before this, it would.
    jax.config.update("jax_platforms", "cpu")
    make_envs, policy, ask = ray.get(recipe)
    return Local(functools.partial(make_envs, num_threads=1), policy), ask
