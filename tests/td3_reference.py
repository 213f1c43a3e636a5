"""One full update of TD3 with a population: float64, NumPy, gradients derived by hand. It knows nothing of dvdrl."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

Layers = list[tuple[np.ndarray, np.ndarray]]


def forward(layers: Layers, x: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Output before any output activation, and the input of every layer."""
    inputs = []
    for index, (weights, bias) in enumerate(layers):
        inputs.append(x)
        x = x @ weights + bias
        if index < len(layers) - 1:
            x = np.maximum(x, 0.0)
    return x, inputs


def backward(layers: Layers, inputs: list[np.ndarray], slope: np.ndarray) -> tuple[Layers, np.ndarray]:
    """Gradients of the layers and of the input, given that of the output."""
    gradients: Layers = []
    for index in reversed(range(len(layers))):
        gradients.insert(0, (inputs[index].T @ slope, slope.sum(axis=0)))
        slope = slope @ layers[index][0].T
        if index > 0:
            slope = slope * (inputs[index] > 0)
    return gradients, slope


@dataclass
class Adam:
    rate: float
    t: int = 0
    first: Any = 0.0
    second: Any = 0.0

    def step(self, gradient: np.ndarray) -> np.ndarray:
        self.t += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        corrected = self.first / (1 - 0.9**self.t), self.second / (1 - 0.999**self.t)
        return -self.rate * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)


def ravel(layers: Layers) -> np.ndarray:
    return np.concatenate([part.ravel() for pair in layers for part in pair])


def unravel(sizes: tuple[int, ...], params: np.ndarray) -> Layers:
    layers, start = [], 0
    for i, o in pairwise(sizes):
        layers.append((params[start : start + i * o].reshape(i, o), params[start + i * o : start + i * o + o]))
        start += i * o + o
    return layers


def log_det_slope(actions: np.ndarray, length_scale: float, shrinkage: float) -> np.ndarray:
    """Gradient of log det K with respect to each member's embedding, by d log det K = tr(K^-1 dK)."""
    x = actions.reshape(len(actions), -1)
    M, D = x.shape
    similarity = np.exp(-((x[:, None] - x[None]) ** 2).mean(axis=-1) / (2 * length_scale**2))
    K = np.where(np.eye(M, dtype=bool), 1.0, (1 - shrinkage) * similarity)
    inverse = np.linalg.inv(K)
    slope = np.zeros_like(x)
    for m in range(M):
        for j in range(M):
            # dK_mj / dx_m = -K_mj (x_m - x_j) / (D l^2); K_mj and K_jm both move.
            slope[m] += 2 * inverse[m, j] * K[m, j] * -(x[m] - x[j]) / (D * length_scale**2) if j != m else 0.0
    return slope.reshape(actions.shape)


@dataclass
class Reference:
    policy_sizes: tuple[int, ...]
    critic_sizes: tuple[int, ...]
    policies: np.ndarray
    critics: np.ndarray
    lambda_: np.ndarray
    rate: float
    discount: float
    tau: float
    length_scale: float
    shrinkage: float
    num_states: int
    target_policies: np.ndarray = field(init=False)
    target_critics: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.target_policies, self.target_critics = self.policies.copy(), self.critics.copy()
        self.policy_adam, self.critic_adam = Adam(self.rate), Adam(self.rate)

    def act(self, params: np.ndarray, obs: np.ndarray) -> np.ndarray:
        return np.tanh(forward(unravel(self.policy_sizes, params), obs)[0])

    def update_critics(self, batch: Any, noise: np.ndarray, member: np.ndarray) -> float:
        obs, action, reward, terminated, next_obs = batch
        n = len(obs)
        next_action = np.stack([self.act(self.target_policies[m], s) for m, s in zip(member, next_obs, strict=True)])
        next_input = np.concatenate([next_obs, np.clip(next_action + noise, -1, 1)], axis=1)
        both = [forward(unravel(self.critic_sizes, params), next_input)[0][:, 0] for params in self.target_critics]
        target = reward + self.discount * (1 - terminated) * np.minimum(*both)
        gradients, loss = [], 0.0
        for params in self.critics:
            layers = unravel(self.critic_sizes, params)
            q, inputs = forward(layers, np.concatenate([obs, action], axis=1))
            difference = q[:, 0] - target
            loss += float(np.mean(difference**2))
            gradients.append(ravel(backward(layers, inputs, (2 * difference / n)[:, None])[0]))
        self.critics = self.critics + self.critic_adam.step(np.stack(gradients))
        return loss

    def update_policies(self, obs: np.ndarray) -> None:
        critic = unravel(self.critic_sizes, self.critics[0])
        actions = np.stack([self.act(params, obs) for params in self.policies])
        slopes = np.zeros_like(actions)
        slopes[:, : self.num_states] = self.lambda_[:, None, None] * log_det_slope(
            actions[:, : self.num_states], self.length_scale, self.shrinkage
        )
        gradients = []
        for m, params in enumerate(self.policies):
            _, inputs = forward(critic, np.concatenate([obs, actions[m]], axis=1))
            _, of_input = backward(critic, inputs, np.full((len(obs), 1), 1 / len(obs)))
            ascent = (1 - self.lambda_[m]) * of_input[:, obs.shape[1] :] + slopes[m]
            layers = unravel(self.policy_sizes, params)
            _, inputs = forward(layers, obs)
            gradients.append(-ravel(backward(layers, inputs, ascent * (1 - actions[m] ** 2))[0]))
        self.policies = self.policies + self.policy_adam.step(np.stack(gradients))
        self.target_policies += self.tau * (self.policies - self.target_policies)
        self.target_critics += self.tau * (self.critics - self.target_critics)
