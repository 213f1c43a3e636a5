"""Episodes of JAX environments: everything from the first observation to the last is one compiled program.

Each episode is a lane of it, with its own policy. A seed determines an episode's initial state and all random numbers
of its steps. Lanes do not affect each other, except that JAX may round a batch of another size in another way.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dvdrl.engines.jax import Episode, JaxEnvironment, advance, begin, first_episode, told
from dvdrl.interfaces import Ask, Episodes, Rollouts
from dvdrl.policies import Moments, Policy
from dvdrl.rollouts.local import split
from dvdrl.rollouts.measures import Measures
from dvdrl.rollouts.tally import sampling
from dvdrl.tasks.task import MODE

_NONE = Measures()
_BLOCK = 32
"""The most steps between two looks at whether any episode is left."""


class _Seen(NamedTuple):
    """What is known of each episode so far."""

    first: Float[Array, "n obs"]
    sums: Float[Array, "n obs"]
    squares: Float[Array, "n obs"]
    """Sums of squared differences from the first observation. So a constant stays exact, and these sums stay small."""
    state: Float[Array, "n obs"]
    """One of the observations; each is equally likely."""
    returned: Float[Array, "n"]
    modes: dict[str, Float[Array, "n"]]
    measured: Float[Array, "n D"]
    """What the user measures: sums, or latest values."""


class Compiled:
    """Evaluates rollouts of a policy.

    Args:
        env: the environment.
        policy: the policy that acts in it.
        measures: what to measure of each episode. JAX must be able to trace its functions.
    """

    def __init__(self, env: JaxEnvironment, policy: Policy, measures: Measures = _NONE):
        policy.refuse_other_spaces(env.observation_space, env.action_space)
        self._env, self._policy, self._measures = env, policy, measures
        self._modes = [name.removeprefix(MODE) for name in told(env) if name.startswith(MODE)]
        num_blocks = -(-env.horizon // _BLOCK)
        self._block = -(-env.horizon // num_blocks)
        self._run = jax.jit(self._episodes)
        self.simulation_seconds = 0.0
        """Time of whole runs, policies included, because they are one program."""

    def evaluate(self, ask: Ask, states: Sequence[Any]) -> list[Episodes]:
        """Run the episodes that each state asks for, all as one batch."""
        asked = [ask(state) for state in states]
        ends = np.cumsum([len(rollouts.member) for rollouts in asked])
        return split(self.run(jax.tree.map(lambda *fields: jnp.concatenate(fields), *asked)), ends)

    def run(self, rollouts: Rollouts) -> Episodes:
        """Run every episode to its end."""
        called = time.perf_counter()
        result: Episodes = jax.block_until_ready(self._run(rollouts))
        self.simulation_seconds += time.perf_counter() - called
        return result

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _episodes(self, rollouts: Rollouts) -> Episodes:
        n = rollouts.start.shape[0]
        _, keys = jax.vmap(first_episode)(jnp.asarray(rollouts.start, jnp.uint32))
        episode = jax.vmap(partial(begin, self._env))(keys)
        obs, none = episode.observation, jnp.zeros(n)
        seen = _Seen(
            first=obs,
            sums=jnp.zeros_like(obs),
            squares=jnp.zeros_like(obs),
            state=obs,
            returned=none,
            modes=dict.fromkeys(self._modes, none),
            measured=jnp.zeros((n, self._measures.size)),
        )

        def any_left(carry: tuple[Episode, _Seen, Array]) -> Array:
            return ~carry[0].ended.all()

        def block(carry: tuple[Episode, _Seen, Array]) -> tuple[Episode, _Seen, Array]:
            episode, seen, number = carry
            of_block = jax.vmap(lambda data: jax.random.fold_in(jax.random.wrap_key_data(data), number))(rollouts.key)
            draws = jax.vmap(lambda key: jax.random.uniform(key, (self._block,)))(of_block)
            num = self._policy.head.num_outputs if self._policy.sampled else 0
            noise = jax.vmap(lambda key: sampling(key, (self._block, num)))(of_block)
            step = partial(self._step, rollouts)
            (episode, seen), _ = jax.lax.scan(step, (episode, seen), (draws.T, noise.swapaxes(0, 1)))
            return episode, seen, number + 1

        episode, seen, _ = jax.lax.while_loop(any_left, block, (episode, seen, jnp.zeros((), jnp.int32)))
        lengths = jnp.maximum(episode.length, 1)[:, None]
        mean = seen.sums / lengths
        sum_squares = jnp.maximum(seen.squares - seen.sums * mean, 0.0)
        moments = Moments(episode.length.astype(jnp.float32), seen.first + mean, sum_squares)
        measured = self._measures.of_episodes(seen.measured, episode.length)
        return Episodes(seen.returned, episode.length, moments, seen.state, seen.modes, measured)

    def _step(
        self,
        rollouts: Rollouts,
        carry: tuple[Episode, _Seen],
        drawn: tuple[Float[Array, "n"], Float[Array, "n out"]],
    ) -> tuple[tuple[Episode, _Seen], None]:
        (episode, seen), (draw, noise) = carry, drawn
        obs, active = episode.observation, ~episode.ended
        difference = jnp.where(active[:, None], obs - seen.first, 0.0)
        # Step t replaces the kept state with probability 1 / (t + 1), so in the end each state is equally likely.
        keep = active & (draw * (episode.length + 1) < 1.0)
        with jax.default_matmul_precision("highest"):  # otherwise a GPU would round policies to ten bits
            outputs: Any = self._policy.outputs(rollouts.agents, obs[:, None])[:, 0]
        # No simulator accepts an action that is not finite: the episode ends here, with a return of NaN.
        lost = ~jnp.isfinite(outputs).all(axis=1) & active
        episode = episode._replace(terminated=episode.terminated | lost)
        outputs = jnp.where((active & ~lost)[:, None], outputs, 0.0)
        actions = self._policy.head.actions(outputs + noise if self._policy.sampled else outputs)
        episode, reward, info = jax.vmap(partial(advance, self._env))(episode, actions)
        measured = seen.measured
        if self._measures.each:
            measured = self._measures.added(measured, info, episode.observation, active & ~lost)
        seen = _Seen(
            first=seen.first,
            sums=seen.sums + difference,
            squares=seen.squares + jnp.square(difference),
            state=jnp.where(keep[:, None], obs, seen.state),
            returned=jnp.where(lost, jnp.nan, seen.returned + reward),
            modes={name: total + info[MODE + name] for name, total in seen.modes.items()},
            measured=measured,
        )
        return (episode, seen), None
