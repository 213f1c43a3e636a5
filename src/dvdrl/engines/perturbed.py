"""Perturbations of any Gymnasium environment: of its model if it runs on MuJoCo, else of its actions and observations.

The host engine perturbs its simulations itself, each in its own way.
"""

from collections import deque
from operator import attrgetter
from typing import Any, TypeGuard

import gymnasium
import mujoco
import numpy as np
from gymnasium.spaces import Box, Space

from dvdrl.tasks.perturbations import DELAY, NOISE, Perturb, Perturbation, change, checked, motors, of_model


def known_of(env: gymnasium.Env[Any, Any]) -> dict[str, Perturbation]:
    """The perturbations of an environment, by name."""
    model, action = _model(env), env.action_space
    if model is not None:
        known = of_model(model)
    else:
        each: list[Perturbation] = []
        if _is_vector(action) and ((action.low <= 0) & (action.high >= 0)).all():
            each = motors(dict.fromkeys(map(str, range(len(action.low)))))
        known = {perturbation.name: perturbation for perturbation in (*each, NOISE, DELAY)}
    if not _is_vector(env.observation_space):
        del known[NOISE.name]
    return known


class Perturbed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment with perturbations.

    What comes late begins with actions of 0, or the ones nearest to it. Noise is drawn from the environment's own
    generator, so an episode depends on its seed alone.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], perturb: Perturb):
        super().__init__(env)
        name = env.spec.id if env.spec else str(env)
        values = checked(name, known_of(env), perturb)
        self._noise, self._delay = values.pop(NOISE, 0.0), int(values.pop(DELAY, 0))
        self._sent: deque[Any] = deque()
        self._strength: Any = None
        if (model := _model(env)) is not None:
            change(values, lambda field: attrgetter(field)(model))
            mujoco.mj_setConst(model, mujoco.MjData(model))
        elif values:
            self._strength = np.ones(env.action_space.shape or (), env.action_space.dtype)
            for kind, strength in values.items():
                which = kind.name.partition(":")[2]
                self._strength[int(which) if which else ...] *= strength

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        """See Env."""
        self._sent = deque([_rest(self.action_space)] * self._delay)
        observation, info = self.env.reset(**how)
        return self._sensed(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """See Env."""
        self._sent.append(action)
        action = self._sent.popleft()
        if self._strength is not None:
            action = action * self._strength
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._sensed(observation), reward, terminated, truncated, info

    def _sensed(self, observation: Any) -> Any:
        if not self._noise:
            return observation
        noise = self.unwrapped.np_random.normal(0.0, self._noise, np.shape(observation))
        return (observation + noise).astype(self.observation_space.dtype)


def _model(env: gymnasium.Env[Any, Any]) -> Any:
    """The MuJoCo model of an environment, if it has one."""
    model = getattr(env.unwrapped, "model", None)
    return model if isinstance(model, mujoco.MjModel) else None


def _is_vector(space: Space[Any]) -> TypeGuard[Box]:
    return isinstance(space, Box) and np.issubdtype(space.dtype, np.floating) and len(space.shape) == 1


def _rest(space: Space[Any]) -> Any:
    """The action 0, or the one nearest to it; of choices the first."""
    if isinstance(space, Box):
        return np.clip(np.zeros(space.shape), space.low, space.high).astype(space.dtype)
    return np.zeros(space.shape or (), space.dtype or np.int64)[()] + getattr(space, "start", 0)
