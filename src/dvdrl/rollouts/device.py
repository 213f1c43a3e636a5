"""Episodes on a GPU. Each has its own world; the device engine does physics, one jitted function everything else.

Policies, observations, statistics and returns stay on the GPU from the first step to the last. The host queues work,
and only now and then checks whether any episode is left. A seed determines the initial state, but the host's executors
draw a different state from the same seed.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from dvdrl.engines.device import DeviceEngine, Episode, advance, begin, draw_starts
from dvdrl.interfaces import Ask, Episodes, Rollouts
from dvdrl.policies import Moments, Policy
from dvdrl.rollouts.local import split
from dvdrl.rollouts.measures import Measures
from dvdrl.tasks.task import Data, Task

_NONE = Measures()
_STEPS_BETWEEN_LOOKS = 100


class _Seen(NamedTuple):
    """Statistics of the observations that the policy acted on so far."""

    first: Float[Array, "n obs"]
    sums: Float[Array, "n obs"]
    squares: Float[Array, "n obs"]
    """Sums of squared differences from the first observation. So a constant stays exact, and these sums stay small."""
    state: Float[Array, "n obs"]
    """One of the observations; each is equally likely."""
    measured: Float[Array, "n D"]
    """What the user measures: sums, or latest values."""


class Device:
    """Evaluates rollouts of a policy.

    Args:
        task: the task to run.
        policy: the policy that acts in it.
        make_engine: makes the engine for a given number of worlds.
        measures: what to measure of each episode. JAX must be able to trace its functions.
    """

    def __init__(
        self,
        task: Task,
        policy: Policy,
        make_engine: Callable[[Task, int], DeviceEngine] = DeviceEngine,
        measures: Measures = _NONE,
    ):
        self._task, self._policy, self._measures = task, policy, measures
        if measures.each:  # a function that JAX cannot trace is refused now
            two = {measure.key: jnp.zeros(2) for measure in measures.each}
            obs = jnp.zeros((2, policy.num_observed))
            jax.eval_shape(measures.added, jnp.zeros((2, measures.size)), two, obs, jnp.ones(2, bool))
        self._engine = functools.lru_cache(maxsize=1)(functools.partial(make_engine, task))
        self.simulation_seconds = 0.0
        """Time of whole runs, policies included, because the host cannot time physics on the GPU by itself."""
        self._starts = jax.jit(functools.partial(draw_starts, task))
        self._first = jax.jit(self._begin)
        self._react = jax.jit(self._advance)

    def evaluate(self, ask: Ask, states: Sequence[Any]) -> list[Episodes]:
        """Run the episodes that each state asks for, all as one batch."""
        asked = [ask(state) for state in states]
        ends = np.cumsum([len(rollouts.member) for rollouts in asked])
        return split(self.run(jax.tree.map(lambda *fields: jnp.concatenate(fields), *asked)), ends)

    def run(self, rollouts: Rollouts) -> Episodes:
        """Run every episode to its end."""
        called = time.perf_counter()
        engine = self._engine(rollouts.start.shape[0])
        engine.reset(*self._starts(rollouts.start))
        episode, seen, action = self._first(rollouts, engine.data())
        for step in range(1, self._task.horizon + 1):
            engine.step(action)
            episode, seen, action = self._react(rollouts, episode, seen, action, step, engine.data())
            if step % _STEPS_BETWEEN_LOOKS == 0 and bool(episode.ended.all()):
                break
        lengths = jnp.maximum(episode.length, 1)[:, None]
        mean = seen.sums / lengths
        sum_squares = jnp.maximum(seen.squares - seen.sums * mean, 0.0)
        moments = Moments(episode.length.astype(jnp.float32), seen.first + mean, sum_squares)
        measured = self._measures.of_episodes(seen.measured, episode.length)
        result = Episodes(episode.returned, episode.length, moments, seen.state, episode.modes, measured)
        jax.block_until_ready(result)
        self.simulation_seconds += time.perf_counter() - called
        return result

    def close(self) -> None:
        """Free the simulations."""
        self._engine.cache_clear()

    def _begin(self, rollouts: Rollouts, data: Data) -> tuple[Episode, _Seen, Float[Array, "n act"]]:
        episode = begin(self._task, rollouts.start, data)
        obs = episode.observation
        none, unmeasured = jnp.zeros_like(obs), jnp.zeros((len(obs), self._measures.size))
        return self._act(rollouts, episode, _Seen(obs, none, none, obs, unmeasured), jnp.asarray(0))

    def _advance(
        self,
        rollouts: Rollouts,
        episode: Episode,
        seen: _Seen,
        action: Float[Array, "n act"],
        step: Int[Array, ""],
        data: Data,
    ) -> tuple[Episode, _Seen, Float[Array, "n act"]]:
        stepped = ~episode.ended
        episode, _, parts = advance(self._task, episode, action, data)
        if self._measures.each:
            measured = self._measures.added(seen.measured, parts, episode.observation, stepped)
            seen = seen._replace(measured=measured)
        return self._act(rollouts, episode, seen, step)

    def _act(
        self, rollouts: Rollouts, episode: Episode, seen: _Seen, step: Int[Array, ""]
    ) -> tuple[Episode, _Seen, Float[Array, "n act"]]:
        obs, active = episode.observation, ~episode.ended[:, None]
        difference = jnp.where(active, obs - seen.first, 0.0)
        # Step t replaces the kept state with probability 1 / (t + 1), so in the end each state is equally likely.
        keys = jax.vmap(lambda data: jax.random.fold_in(jax.random.wrap_key_data(data), step))(rollouts.key)
        keep = jax.vmap(jax.random.uniform)(keys) * (step + 1) < 1.0
        seen = seen._replace(
            sums=seen.sums + difference,
            squares=seen.squares + jnp.square(difference),
            state=jnp.where(keep[:, None] & active, obs, seen.state),
        )
        with jax.default_matmul_precision("highest"):  # otherwise a GPU would round policies to ten bits
            outputs: Any = self._policy.outputs(rollouts.agents, obs[:, None])[:, 0]
        # No simulator accepts an action that is not finite: the episode ends here, with a return of NaN.
        lost = ~jnp.isfinite(outputs).all(axis=1) & ~episode.ended
        episode = episode._replace(
            returned=jnp.where(lost, jnp.nan, episode.returned), terminated=episode.terminated | lost
        )
        return episode, seen, self._policy.head.actions(jnp.where(active & ~lost[:, None], outputs, 0.0))
