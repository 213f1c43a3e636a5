"""The diversity term in Stable-Baselines3: a callback pushes an agent's actions away from those of the other agents.

The callback runs whenever the agent has collected experience. `dvdrl.torch` computes the log determinant of all agents'
behaviours, and PyTorch its gradient with respect to this agent's parameters. Agents train in turns. Nothing else in
Stable-Baselines3 changes.
"""

from collections.abc import Sequence

import torch
from stable_baselines3 import TD3
from stable_baselines3.common.callbacks import BaseCallback

from dvdrl.torch import KERNELS, gram, log_determinant

KERNEL = KERNELS["squared-exponential"](length_scale=2.0)


class Diversity(BaseCallback):
    """After every rollout of its agent, take some steps that raise the log determinant."""

    def __init__(self, agents: Sequence[TD3], learning_rate: float, num_steps: int = 10, num_states: int = 20):
        super().__init__()
        self.agents, self.learning_rate, self.num_steps, self.num_states = agents, learning_rate, num_steps, num_states
        self.value = float("nan")

    def _init_callback(self) -> None:
        # A separate optimizer, because Adam's moments for the agent's own loss do not fit this gradient.
        self.optimizer = torch.optim.Adam(self.model.actor.parameters(), lr=self.learning_rate)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        for _ in range(self.num_steps):
            states = self.model.replay_buffer.sample(self.num_states).observations
            others = [agent for agent in self.agents if agent is not self.model]
            with torch.no_grad():
                fixed = [agent.actor(states).flatten() for agent in others]
            behaviours = torch.stack([self.model.actor(states).flatten(), *fixed])
            log_det = log_determinant(gram(KERNEL, behaviours))
            self.optimizer.zero_grad()
            (-log_det).backward()
            self.optimizer.step()
            self.value = log_det.item()
        self.logger.record("diversity/log_det", self.value)


def main(
    agents: int = 3, rounds: int = 2, steps: int = 200, learning_rate: float = 1e-3, task: str = "Pendulum-v1"
) -> float:
    """Train the agents in turns, and return the final log determinant of their behaviours."""
    options = {"learning_starts": 40, "train_freq": 20, "policy_kwargs": {"net_arch": [64, 64]}, "device": "cpu"}
    population = [TD3("MlpPolicy", task, seed=seed, **options) for seed in range(agents)]
    callbacks = [Diversity(population, learning_rate) for _ in population]
    for _ in range(rounds):
        for agent, callback in zip(population, callbacks, strict=True):
            agent.learn(steps, callback=callback, reset_num_timesteps=False)
    return callbacks[-1].value


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are small
    print(f"log determinant with the term {main():.2f}, without {main(learning_rate=0.0):.2f}")
