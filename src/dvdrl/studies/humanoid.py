"""The parts of the return of Humanoid's best final member, in Gymnasium's own environment."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np

from dvdrl.runs.directory import Run
from dvdrl.studies.measures import MEDIAN, Measure, Outcome

EPISODES = 3
_PARTS = ("reward_survive", "reward_forward", "reward_ctrl", "reward_contact")


def parts_of_the_return() -> dict[str, Measure]:
    """Means over episodes with seeds 0, 1, ...: the return, the steps until the end, and each part of the reward."""

    def part(name: str) -> Callable[[Outcome], float]:
        return lambda outcome: _parts(outcome.run)[name]

    return {name: Measure(part(name), (MEDIAN,)) for name in ("gymnasium_return", "gymnasium_steps", *_PARTS)}


@lru_cache(maxsize=1)  # all measures of a run are taken one after the other
def _parts(run: Run) -> dict[str, float]:
    """The parts for the member that was best in the last evaluation."""
    options: dict[str, Any] = run.config.task_options
    env = gymnasium.make(run.config.task, **options)
    member = run.population[int(np.argmax(run.metrics[-1]["member_returns"]))]
    sums = dict.fromkeys(("gymnasium_return", "gymnasium_steps", *_PARTS), 0.0)
    for seed in range(EPISODES):
        obs, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            obs, reward, terminated, truncated, info = env.step(member.act(obs))
            sums["gymnasium_return"] += float(reward)
            sums["gymnasium_steps"] += 1
            for name in _PARTS:
                sums[name] += info[name]
            ended = terminated or truncated
    env.close()
    return {name: value / EPISODES for name, value in sums.items()}
