"""A Gymnasium environment of your own: dvdrl finds it by the id `module:Id-v0`.

cd examples && dvdrl train dvd-es --task gymnasium_environment:Valleys-v0
"""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import dvdrl

ID = "Valleys-v0"


class Valleys(gymnasium.Env[Any, Any]):
    """A hiker on a ridge between two equally deep valleys. Going down pays on either side."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.state = self.np_random.normal(0.0, 0.01, 2).astype(np.float32)
        return self.state, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        position, speed = self.state
        speed = 0.9 * speed + 0.1 * float(action[0])
        position = np.clip(position + 0.1 * speed, -1.0, 1.0)
        self.state = np.array([position, speed], np.float32)
        return self.state, float(position**2), False, False, {}


if ID not in gymnasium.registry:  # if run as a script, this file is imported twice: as __main__ and by its name
    gymnasium.register(ID, "gymnasium_environment:Valleys", max_episode_steps=50)


def main(out: Path, **options: Any) -> dvdrl.Population:
    """Train a population in this environment."""
    dvdrl.train(dvdrl.DvDES(task=f"gymnasium_environment:{ID}", out=out, **options))
    return dvdrl.load(out)


if __name__ == "__main__":
    hikers = main(Path("runs/valleys"), population=3, sensings=20, hidden=(8,), iterations=30)
    print("first steps:", hikers.act(np.zeros(2)).ravel())  # some go left, some go right
