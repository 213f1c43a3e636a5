"""Episodes on a Ray cluster: as many tasks as it has CPUs, each with its share of the rollouts.

What travels is the states of the algorithm, once an iteration; a task asks them itself, so that noise travels as the
key in the state. A task whose worker or node is lost is run again elsewhere, by Ray, and gives the same episodes.
"""

import functools
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from gymnasium.vector import VectorEnv

from dvdrl.errors import DvdrlError
from dvdrl.interfaces import Ask, Episodes
from dvdrl.rollouts.local import Local, join, split

try:
    import ray
except ModuleNotFoundError as _error:
    raise DvdrlError("Ray is not installed; pip install 'dvdrl[ray]'") from _error

MakeEnvs = Callable[..., VectorEnv[Any, Any, Any]]
_Recipe = tuple[MakeEnvs, Sequence[int], Ask]


class Ray:
    """Evaluates rollouts of policies with the given hidden layers.

    Args:
        make_envs: makes so many environments, with autoreset disabled, on `num_threads` cores.
        hidden: widths of the policy's hidden layers.
        address: of the cluster to join; None starts one on this machine, unless this process has one already.
    """

    def __init__(self, make_envs: MakeEnvs, hidden: Sequence[int], address: str | None = None):
        example = Local(make_envs, hidden)
        self.policy, self.action_low, self.action_high = example.policy, example.action_low, example.action_high
        example.close()
        self.simulation_seconds = 0.0
        self._make_envs, self._hidden = make_envs, hidden
        self._recipes: dict[Ask, Any] = {}
        self._started = not ray.is_initialized()
        if self._started:
            with warnings.catch_warnings():
                # JAX warns of forks; Ray's are followed by exec at once.
                warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
                try:
                    ray.init(address or "local", log_to_driver=False, logging_level=logging.WARNING)
                except ConnectionError as error:
                    raise DvdrlError(f"no Ray cluster at {address}: {error}") from error

    def evaluate(self, ask: Ask, states: Sequence[Any]) -> list[Episodes]:
        """The episodes that each of the states asks for."""
        if ask not in self._recipes:
            self._recipes[ask] = ray.put((self._make_envs, self._hidden, ask))
        sizes = [len(jax.eval_shape(ask, state).member) for state in states]
        shares = np.array_split(np.arange(sum(sizes)), max(1, int(ray.cluster_resources().get("CPU", 1))))
        sent = ray.put(list(states))
        # In a list, a reference is passed as such: a worker that has the recipe already does not fetch it again.
        tasks = [_run.remote([self._recipes[ask]], sent, share[0], share[-1] + 1) for share in shares if len(share)]
        episodes, seconds = zip(*ray.get(tasks), strict=True)
        self.simulation_seconds += max(seconds)
        return split(join(episodes), np.cumsum(sizes))

    def close(self) -> None:
        """Leave the cluster, if this executor joined or started it."""
        if self._started:
            ray.shutdown()


@ray.remote(num_cpus=1, max_retries=-1)
def _run(recipe: list[Any], states: list[Any], begin: int, end: int) -> tuple[Episodes, float]:
    """The episodes from `begin` to `end` of all that the states ask for, and the time inside the simulator."""
    local, ask = _prepared(recipe[0])
    before = local.simulation_seconds
    rollouts = join([ask(state) for state in states])
    episodes = local.run(jax.tree.map(lambda field: field[begin:end], rollouts))
    return episodes, local.simulation_seconds - before


@functools.lru_cache(maxsize=4)
def _prepared(recipe: Any) -> tuple[Local, Ask]:
    """What a worker keeps from one iteration to the next: environments and compiled functions."""
    jax.config.update("jax_platforms", "cpu")  # a worker on a machine with a GPU must not reserve its memory
    make_envs, hidden, ask = ray.get(recipe)
    return Local(functools.partial(make_envs, num_threads=1), hidden), ask
