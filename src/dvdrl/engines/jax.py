"""Environments whose `reset` and `step` are pure functions of arrays, compiled by JAX for whatever it runs on.

`JaxEnvironment` is the interface. `gymnax:NAME` and `playground:NAME` are adapted to it in `engines.jax_libraries`; an
environment of one's own implements it. An executor compiles whole episodes of it (`rollouts.jax`). Everything else
steps it as a vector environment.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Array, Bool, Float, Int, UInt32
from numpy.typing import NDArray

from dvdrl.engines.host import reset_mask, seeds_of
from dvdrl.errors import DvdrlError, explained

Key = UInt32[Array, "2"]
"""A key of JAX as two plain numbers, `jax.random.PRNGKey(seed)`: all libraries take these."""
State = Any
"""The state of an environment: a pytree of arrays, whose shapes and types never change."""


class Step(NamedTuple):
    """The results of a step."""

    state: State
    observation: Float[Array, "obs"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    """Whether the task itself ends the episode; time limits are kept elsewhere."""
    info: Mapping[str, Float[Array, ""]] = {}
    """Numbers for `--measures`; those that begin with `reward_mode_` are the rewards of the task's modes."""


class JaxEnvironment(Protocol):
    """One environment; `jax.vmap` makes many of it."""

    observation_space: Space[Any]
    action_space: Space[Any]
    horizon: int
    """The number of steps after which an episode is truncated."""

    def reset(self, key: Key) -> tuple[State, Float[Array, "obs"]]:
        """A new episode: its state and its first observation."""
        ...

    def step(self, key: Key, state: State, action: Any) -> Step:
        """Take one step. The key is another one in every step."""
        ...


class Episode(NamedTuple):
    """The progress of one episode."""

    state: State
    observation: Float[Array, "obs"]
    key: Key
    length: Int[Array, ""]
    """The number of steps so far."""
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]

    @property
    def ended(self) -> Bool[Array, ""]:
        """Terminated or truncated."""
        return self.terminated | self.truncated


def begin(env: JaxEnvironment, key: Key) -> Episode:
    """A new episode. All its random numbers follow from the key."""
    of_reset, of_steps = jax.random.split(key)
    state, observation = env.reset(of_reset)
    no = jnp.zeros((), bool)
    return Episode(state, observation, of_steps, jnp.zeros((), jnp.int32), no, no)


def advance(
    env: JaxEnvironment, episode: Episode, action: Any
) -> tuple[Episode, Float[Array, ""], Mapping[str, Float[Array, ""]]]:
    """The episode after a step, the reward of the step, and its info.

    An ended episode rests: its reward is 0 and it keeps its last observation. If an observation or a reward is not
    finite, the simulation is lost: the episode ends, the reward of that step is 0 and the observation stays, as in the
    other engines.
    """
    resting = episode.ended
    step = env.step(jax.random.fold_in(episode.key, episode.length), episode.state, action)
    lost = ~(jnp.isfinite(step.observation).all() & jnp.isfinite(step.reward))
    unpaid = resting | lost
    length = episode.length + ~resting
    after = Episode(
        state=step.state,  # also if it rests: nothing reads it any more
        observation=jnp.where(unpaid, episode.observation, step.observation),
        key=episode.key,
        length=length,
        terminated=jnp.where(resting, episode.terminated, lost | step.terminated),
        truncated=jnp.where(resting, episode.truncated, ~lost & (length >= env.horizon)),
    )
    info = {name: jnp.where(unpaid, 0.0, value) for name, value in step.info.items()}
    return after, jnp.where(unpaid, 0.0, step.reward), info


def told(env: JaxEnvironment) -> Mapping[str, Any]:
    """The shapes of the numbers that a step tells besides its reward.

    Raises:
        DvdrlError: the environment fails, or a step changes the form of its state.
    """
    try:
        one = jax.eval_shape(partial(begin, env), jax.random.PRNGKey(0))
        stepped = jax.eval_shape(partial(advance, env), one, jnp.asarray(env.action_space.sample()))
    except Exception as error:  # other people's code may raise anything
        raise DvdrlError(f"the JAX environment {type(env).__name__} failed: {explained(error)}") from error
    after, info = stepped[0], dict(stepped[2])
    before, now = jax.tree.leaves_with_path(one.state), jax.tree.leaves(after.state)
    if len(before) != len(now):
        raise DvdrlError(f"a step changes the number of arrays in the state from {len(before)} to {len(now)}")
    for (path, leaf), new in zip(before, now, strict=True):
        if (leaf.shape, leaf.dtype) != (new.shape, new.dtype):
            raise DvdrlError(
                f"a step changes state{jax.tree_util.keystr(path)} from {leaf.dtype}{list(leaf.shape)} to"
                f" {new.dtype}{list(new.shape)}; the state of a JAX environment must keep its shapes and types"
            )
    return info


def first_episode(seed: Any) -> tuple[Key, Key]:
    """Of a seed: the key of all later episodes, and the key of the first one."""
    later, first = jax.random.split(jax.random.PRNGKey(seed))
    return later, first


@dataclass(frozen=True)
class JaxEngine:
    """An engine, as `engines.register_engine` takes it, for the environments that `load(name, **options)` makes."""

    load: Callable[..., JaxEnvironment]

    def __call__(
        self,
        name: str,
        num_envs: int,
        *,
        autoreset_mode: AutoresetMode | str,
        wrappers: Sequence[Any],
        num_threads: int | None,  # noqa: ARG002 - JAX has its own threads
        **options: Any,
    ) -> VectorEnv[Any, Any, Any]:
        """See `engines.Engine`."""
        if wrappers:
            raise DvdrlError(f"{name} is a JAX environment, around which Gymnasium's wrappers cannot go")
        return JaxVectorEnv(self.load(name, **options), num_envs, autoreset_mode)


class JaxVectorEnv(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """num_envs copies of an environment, stepped together. Autoreset is NextStep or Disabled, as in the host engine."""

    def __init__(
        self, env: JaxEnvironment, num_envs: int, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP
    ):
        self.env, self.num_envs = env, num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            raise DvdrlError('JAX environments have autoreset_mode "NextStep" and "Disabled"; got "SameStep"')
        self.metadata = {"autoreset_mode": self.autoreset_mode}
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._begin = jax.jit(partial(_begin_some, env))
        self._advance = jax.jit(jax.vmap(partial(advance, env)))
        self._keys: Any = None
        self._episodes: Any = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin new episodes in all environments, or in those of options["reset_mask"]; seeds as in Gymnasium."""
        mask = reset_mask(options, self.num_envs)
        chosen = np.ones(self.num_envs, bool) if mask is None else mask
        if self._keys is None and not chosen.all():
            raise ResetNeeded("the first reset must include all environments, but it has a reset_mask")
        seeds = seeds_of(seed, self.num_envs)
        if self._keys is None:
            drawn = np.random.default_rng().integers(2**32, size=self.num_envs, dtype=np.uint32)
            self._keys = jax.vmap(jax.random.PRNGKey)(drawn)
        given = [i for i in np.flatnonzero(chosen).tolist() if seeds[i] is not None]
        if given:
            keys = jax.vmap(jax.random.PRNGKey)(np.asarray([seeds[i] for i in given]).astype(np.uint32))
            self._keys = self._keys.at[np.asarray(given)].set(keys)
        self._restart(chosen)
        return np.asarray(self._episodes.observation), {}

    def step(self, actions: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], Any]:
        """Take one step in every environment; see VectorEnv."""
        if self._episodes is None:
            raise ResetNeeded("step was called before the first reset; call reset first")
        actions = np.asarray(actions)
        if actions.shape != self.action_space.shape or not np.isfinite(actions).all():
            raise ValueError(
                f"expected finite actions of shape {self.action_space.shape}; got shape {actions.shape}"
                f" with {np.count_nonzero(~np.isfinite(actions))} values that are NaN or Inf"
            )
        resting = np.asarray(self._episodes.ended)
        self._episodes, rewards, info = self._advance(self._episodes, actions)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and resting.any():
            self._restart(resting)
        told = {name: np.asarray(values) for name, values in info.items()}
        told |= {"_" + name: ~resting for name in info}
        episodes = self._episodes
        observed, terminated, truncated = map(
            np.asarray, (episodes.observation, episodes.terminated, episodes.truncated)
        )
        return observed, np.asarray(rewards, np.float64), terminated, truncated, told

    def _restart(self, chosen: NDArray[np.bool_]) -> None:
        self._keys, self._episodes = self._begin(self._keys, self._episodes, chosen)


def _begin_some(
    env: JaxEnvironment, keys: UInt32[Array, "n 2"], episodes: Episode | None, chosen: Bool[Array, "n"]
) -> tuple[UInt32[Array, "n 2"], Episode]:
    """The keys of all later episodes, and the episodes, of which the chosen ones are new."""
    later, own = jnp.swapaxes(jax.vmap(jax.random.split)(keys), 0, 1)
    new = jax.vmap(partial(begin, env))(own)

    def mixed(one: Array, other: Array) -> Array:
        return jnp.where(chosen.reshape(-1, *(1,) * (one.ndim - 1)), one, other)

    if episodes is None:
        return later, new
    return mixed(later, keys), jax.tree.map(mixed, new, episodes)
