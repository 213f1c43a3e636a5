"""Our tasks as Gymnasium's own environments: importing this module registers `dvdrl/Point-v0` and so on.

Only tasks that Gymnasium does not have are registered, your own too if they were made known before. `gymnasium.make`
gives one simulation of the host engine, `gymnasium.make_vec` as many as are wanted, on all cores.
"""

import sys
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer
from numpy.typing import NDArray

from dvdrl.engines.host import Floats, HostVectorEnv
from dvdrl.errors import DvdrlError
from dvdrl.tasks import registry

NAMESPACE = "dvdrl"


class TaskEnv(gymnasium.Env[Floats, NDArray[Any]]):
    """One simulation of a task. Gymnasium's TimeLimit ends its episodes, after `max_episode_steps`."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self, task: str, *, render_mode: str | None = None, width: int = 480, height: int = 480, **options: Any
    ):
        self._envs = make_vec(1, task, -1, autoreset_mode="Disabled", num_threads=1, **options)
        self.metadata = {**self.metadata, "render_fps": round(1 / self._envs.task.dt)}
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space
        self.render_mode = render_mode
        self._width, self._height = width, height
        self._renderer: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Begin a new episode; see gymnasium.Env. No task has options of a reset."""
        super().reset(seed=seed, options=options)
        observation, _ = self._envs.reset(seed=[seed])
        return observation[0], {}

    def step(self, action: NDArray[Any]) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Take one control step; see gymnasium.Env."""
        observation, reward, terminated, truncated, info = self._envs.step(np.asarray(action)[None])
        told = {name: values[0].item() for name, values in info.items() if not name.startswith("_")}
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), told

    def render(self) -> Any:
        """A picture, (height, width, 3), with the render mode "rgb_array"."""
        if self.render_mode is None:
            return None
        if self._renderer is None:
            model = self._envs.task.model
            self._renderer = MujocoRenderer(model, mujoco.MjData(model), width=self._width, height=self._height)
        self._renderer.data.qpos[:] = self._envs.batch.bind("qpos")[0]
        mujoco.mj_forward(self._renderer.model, self._renderer.data)
        return self._renderer.render(self.render_mode)

    def close(self) -> None:
        """Free the simulation."""
        self._envs.close()
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def make_vec(num_envs: int, task: str, max_episode_steps: int, **options: Any) -> HostVectorEnv:
    """Many simulations of a task, as `gymnasium.make_vec` asks for them.

    Args:
        num_envs: how many.
        task: the id of the task.
        max_episode_steps: the number of steps after which an episode is truncated; with -1 none is, as in Gymnasium.
        **options: `autoreset_mode`, `num_threads` and `perturb` as in `dvdrl.make_vec`, and the options of the task.
    """
    if "horizon" in options:
        raise DvdrlError("horizon: Gymnasium's name for it is max_episode_steps")
    of_engine = {name: options.pop(name) for name in ("autoreset_mode", "num_threads", "perturb") if name in options}
    horizon = sys.maxsize if max_episode_steps == -1 else max_episode_steps
    return HostVectorEnv(registry.make(task, horizon=horizon, **options), num_envs, **of_engine)


for _id, _task in registry.TASKS.items():
    if _id not in gymnasium.registry:
        gymnasium.register(
            f"{NAMESPACE}/{_id}",
            entry_point=f"{__name__}:{TaskEnv.__name__}",
            vector_entry_point=f"{__name__}:{make_vec.__name__}",
            max_episode_steps=_task.horizon,
            kwargs={"task": _id},
        )
