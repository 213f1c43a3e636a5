"""Environments of gymnax, Brax and MuJoCo Playground, as `engines.jax` takes them. Only this module imports these."""

import dataclasses
import subprocess
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Space

from dvdrl.engines.jax import JaxEnvironment, Key, State, Step
from dvdrl.errors import DvdrlError, explained

_UNLIMITED = 2**30


class OfGymnax:
    """An environment with gymnax's interface; `params` are its parameters, by default its own.

    Observations are flattened. Time limits truncate episodes, also in gymnax before 1.0, where they terminate them.
    """

    def __init__(self, env: Any, params: Any = None):
        from gymnax.environments.spaces import gymnax_space_to_gym_space

        params = env.default_params if params is None else params
        self.env, self.params = env, params
        self.horizon = int(params.max_steps_in_episode)
        self.action_space: Space[Any] = gymnax_space_to_gym_space(env.action_space(params))
        _, observation = jax.eval_shape(self.reset, jax.random.PRNGKey(0))
        self.observation_space = _vectors(observation.size)

    def reset(self, key: Key) -> tuple[State, jax.Array]:
        """See JaxEnvironment."""
        observation, state = self.env.reset_env(key, self.params)
        return jax.tree.map(jnp.asarray, state), jnp.ravel(observation).astype(jnp.float32)

    def step(self, key: Key, state: State, action: Any) -> Step:
        """See JaxEnvironment. Not gymnax's own `step`, which also begins the next episode, whether it is due or not."""
        observation, after, reward, done, info = self.env.step_env(key, state, action, self.params)
        # Actions of one number make some states of numbers into states of vectors of length one.
        after = jax.tree.map(lambda new, old: jnp.reshape(new, old.shape).astype(old.dtype), after, state)
        if not hasattr(self.env, "is_truncated"):  # before 1.0, `done` also says that the time is up
            unlimited = self.params.replace(max_steps_in_episode=_UNLIMITED)
            at_limit = after.time >= self.params.max_steps_in_episode
            done = jnp.where(at_limit, self.env.is_terminal(after, unlimited), done)
        return Step(
            after,
            jnp.ravel(observation).astype(jnp.float32),
            jnp.reshape(reward, ()).astype(jnp.float32),
            jnp.reshape(done, ()).astype(bool),
            _numbers(info),
        )


class OfBrax:
    """An environment with the interface of Brax and MuJoCo Playground, whose actions are within [-1, 1].

    Args:
        env: the environment, without wrappers.
        episode_length: the number of its steps after which an episode is truncated.
        action_repeat: its steps in one step of the policy; the rewards are summed.
        observed: the part that policies see, if the observation has several.
    """

    def __init__(self, env: Any, episode_length: int, action_repeat: int = 1, observed: str = "state"):
        self.env, self.observed, self.action_repeat = env, observed, action_repeat
        self.horizon = -(-episode_length // action_repeat)
        self.action_space: Space[Any] = Box(-1.0, 1.0, (env.action_size,), np.float32)
        _, observation = jax.eval_shape(self.reset, jax.random.PRNGKey(0))
        self.observation_space = _vectors(observation.size)

    def reset(self, key: Key) -> tuple[State, jax.Array]:
        """See JaxEnvironment."""
        state = self.env.reset(key)
        return state, self._observation(state)

    def step(self, key: Key, state: State, action: Any) -> Step:  # noqa: ARG002 - the state has its own key
        """See JaxEnvironment."""

        def one(state: State, _: None) -> tuple[State, Any]:
            after = self.env.step(state, action)
            return after, after.reward

        if self.action_repeat == 1:
            state, reward = one(state, None)
        else:
            state, rewards = jax.lax.scan(one, state, length=self.action_repeat)
            reward = jnp.sum(rewards)
        return Step(state, self._observation(state), reward, state.done.astype(bool), _numbers(state.metrics))

    def _observation(self, state: State) -> jax.Array:
        observation = state.obs[self.observed] if isinstance(state.obs, Mapping) else state.obs
        return jnp.ravel(observation)


def load_gymnax(name: str, **options: Any) -> JaxEnvironment:
    """The environment of gymnax with this name; options are fields of its parameters.

    Raises:
        DvdrlError: gymnax is not installed, or has no such environment or option.
    """
    try:
        import gymnax
    except ImportError as error:
        raise DvdrlError(f"gymnax:{name} needs gymnax ({error}): pip install 'dvdrl[gymnax]'") from error
    _expect("gymnax", name, gymnax.registered_envs)
    try:
        env, params = gymnax.make(name)
    except Exception as error:  # one environment downloads its data
        raise DvdrlError(f"gymnax:{name} cannot be made: {explained(error)}") from error
    known = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    return OfGymnax(env, params.replace(**_options(f"gymnax:{name}", options, known)))


def load_playground(name: str, **options: Any) -> JaxEnvironment:
    """The environment of MuJoCo Playground with this name; options are fields of its configuration.

    Raises:
        DvdrlError: Playground is not installed, or has no such environment or option, or cannot load its robots.
    """
    try:
        from mujoco_playground import registry
    except ImportError as error:
        raise DvdrlError(f"playground:{name} needs Playground ({error}): pip install 'dvdrl[playground]'") from error
    _expect("playground", name, registry.ALL_ENVS)
    config = registry.get_default_config(name)
    if "impl" in config:  # Warp needs a GPU to be fast
        config.impl = "warp" if jax.default_backend() == "gpu" else "jax"
    config.update(_options(f"playground:{name}", options, config))
    if config.get("impl") == "warp":
        import warp

        warp.config.log_level = warp.LOG_WARNING  # do not log every kernel that it compiles
    try:
        env = registry.load(name, config=config)
    except (OSError, subprocess.CalledProcessError) as error:
        raise DvdrlError(
            f"playground:{name} needs robots that Playground downloads with git: {explained(error)}"
        ) from error
    return OfBrax(env, config.episode_length, config.action_repeat)


def _expect(library: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        close = get_close_matches(name, list(known), n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(f'{library}:{each}' for each in close)}?" if close else ", ".join(known)
        raise DvdrlError(f"{library} has no environment {name!r}; {hint}")


def _options(env_id: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the types of the values that they replace: 2 and 2.0 are the same, as in JSON."""
    typed = {}
    for name, value in options.items():
        if name not in known:
            raise DvdrlError(f"{env_id} has no option {name!r}; it has {', '.join(sorted(known))}")
        kind = type(known[name])
        if kind in (int, bool) and isinstance(value, float) and value == int(value):
            value = int(value)
        number = isinstance(value, int | float)
        if number != isinstance(known[name], int | float) or (number and kind(value) != value):
            raise DvdrlError(f"{env_id}: {name}: expected {kind.__name__}, such as {known[name]!r}; got {value!r}")
        typed[name] = kind(value) if number else value
    return typed


def _vectors(size: int) -> Space[Any]:
    return Box(-np.inf, np.inf, (size,), np.float32)


def _numbers(info: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Those values of info, or of metrics, that are one number."""
    return {name: jnp.asarray(value, jnp.float32) for name, value in info.items() if jnp.ndim(value) == 0}
