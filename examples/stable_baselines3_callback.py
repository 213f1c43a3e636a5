"""The diversity term in Stable-Baselines3: a callback pushes an agent's actions away from those of the other agents.

Whenever the agent has collected experience, the callback computes with dvdrl how the log determinant of all agents'
behaviours changes with this agent's actions, and has PyTorch carry that gradient on to the agent's parameters. Agents
take turns; everything else of Stable-Baselines3 is as it was.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import torch
from stable_baselines3 import TD3
from stable_baselines3.common.callbacks import BaseCallback

from dvdrl.diversity import KERNELS, gram, log_determinant

KERNEL = KERNELS["squared-exponential"](length_scale=0.5)


@jax.jit
def diversity(own: jax.Array, others: jax.Array) -> jax.Array:
    """Log determinant of all behaviours, as a function of one agent's."""
    return log_determinant(gram(KERNEL, jnp.concatenate([own[None], others])))


class Diversity(BaseCallback):
    """A step up the log determinant after every rollout of the agent that it is given to."""

    def __init__(self, agents: Sequence[TD3], weight: float, num_states: int = 20):
        super().__init__()
        self.agents, self.weight, self.num_states = agents, weight, num_states
        self.value = float("nan")

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        assert isinstance(self.model, TD3)
        if self.model.replay_buffer.size() < self.num_states:
            return
        states = self.model.replay_buffer.sample(self.num_states).observations
        with torch.no_grad():
            others = np.stack([agent.actor(states).numpy().ravel() for agent in self.agents if agent is not self.model])
        own = self.model.actor(states)
        value, gradient = jax.value_and_grad(diversity)(own.detach().numpy().ravel(), others)
        self.model.actor.optimizer.zero_grad()
        own.backward(-self.weight * torch.from_numpy(np.array(gradient)).reshape(own.shape))
        self.model.actor.optimizer.step()
        self.value = float(value)
        self.logger.record("diversity/log_det", self.value)


def main(agents: int = 3, rounds: int = 5, steps: int = 1000, weight: float = 0.1, task: str = "Pendulum-v1") -> float:
    """Train agents in turns; the log determinant of their behaviours at the end."""
    population = [TD3("MlpPolicy", task, seed=seed, device="cpu", learning_starts=100) for seed in range(agents)]
    callbacks = [Diversity(population, weight) for _ in population]
    for _ in range(rounds):
        for agent, callback in zip(population, callbacks, strict=True):
            agent.learn(steps, callback=callback, reset_num_timesteps=False)
    return callbacks[-1].value


if __name__ == "__main__":
    print(f"log determinant with the term {main():.2f}, without {main(weight=0.0):.2f}")
