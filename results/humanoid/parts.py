"""What the return of each run's best final member is made of, in Gymnasium's own Humanoid-v5: a line of CSV a run.

python results/humanoid/parts.py runs/humanoid/*/*/*/seed-* runs/humanoid-choices/*/*/*/seed-*
"""

import csv
import sys
from pathlib import Path

import gymnasium
import numpy as np

import dvdrl

EPISODES = 3
PARTS = ("reward_survive", "reward_forward", "reward_ctrl", "reward_contact")


def parts(run: dvdrl.Run) -> dict[str, float]:
    """Means over episodes from seeds 0, 1, .., of the member that was best in the last evaluation."""
    env = gymnasium.make("Humanoid-v5", **run.config.task_options)
    member = run.population[int(np.argmax(run.metrics[-1]["member_returns"]))]
    sums = dict.fromkeys(("return", "steps", *PARTS), 0.0)
    for seed in range(EPISODES):
        obs, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            obs, reward, terminated, truncated, info = env.step(member.act(obs))
            sums["return"] += float(reward)
            sums["steps"] += 1
            for name in PARTS:
                sums[name] += info[name]
            ended = terminated or truncated
    return {name: round(value / EPISODES, 1) for name, value in sums.items()}


if __name__ == "__main__":
    writer = csv.DictWriter(sys.stdout, ("variant", "seed", "return", "steps", *PARTS), lineterminator="\n")
    writer.writeheader()
    for path in map(Path, sys.argv[1:]):
        made = dvdrl.Run(path)
        writer.writerow({"variant": path.parent.name, "seed": made.config.seed, **parts(made)})
