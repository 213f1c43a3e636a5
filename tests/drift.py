"""A JAX environment with answers known on paper: a number drifts, and the episode ends when it is above a threshold."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box

from dvdrl.engines.jax import Step


class Drift:
    """The number begins at 0.1 times a uniform draw. A step adds 0.1 + the action + its noise, and pays the number.

    Observations are the number, the number of steps so far, and 1.
    """

    def __init__(self, horizon: int = 70, threshold: float = 1e6, noise: float = 0.0, broken_at: int = -1):
        self.horizon, self.threshold, self.noise, self.broken_at = horizon, threshold, noise, broken_at
        self.observation_space = Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = Box(-0.5, 0.5, (1,), np.float32)

    def reset(self, key: Any) -> tuple[Any, Any]:
        state = {"x": 0.1 * jax.random.uniform(key), "time": jnp.asarray(0)}
        return state, self._observe(state)

    def step(self, key: Any, state: Any, action: Any) -> Step:
        x = state["x"] + 0.1 + action[0] + self.noise * jax.random.normal(key)
        time = state["time"] + 1
        reward = jnp.where(time == self.broken_at, jnp.nan, x)
        after = {"x": x, "time": time}
        info = {"x": x, "reward_mode_up": x, "reward_mode_down": -x}
        return Step(after, self._observe(after), reward, x > self.threshold, info)

    def _observe(self, state: Any) -> Any:
        return jnp.stack([state["x"], state["time"].astype(jnp.float32), jnp.ones(())])
