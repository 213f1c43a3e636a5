"""One full update of XQC with a population: float64, NumPy, gradients derived by hand. It knows nothing of dvdrl.

Parameters of a critic are a list: scale of the inputs; weights, scale and shift of each layer; weights and bias of the
heads.
"""

from dataclasses import dataclass, field

import numpy as np

from td3_reference import Adam, backward, forward, log_det_slope

Params = list[np.ndarray]
Moments = list[tuple[np.ndarray, np.ndarray]]
EPSILON, Z = 1e-3, np.linspace(-5, 5, 101)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def project(params: Params) -> Params:
    """All columns of weights at norm 1: of the layers, at 1, 4, ..., and of the heads, at -2."""
    weights = {*range(1, len(params) - 2, 3), len(params) - 2}
    return [p / np.linalg.norm(p, axis=-2, keepdims=True) if i in weights else p for i, p in enumerate(params)]


def critic_forward(params: Params, x: np.ndarray, running: Moments | None) -> tuple[np.ndarray, list, Moments]:
    """Features, what the derivative needs of each layer, and the moments of the batch."""
    kept, moments = [], []

    def normalize(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
        mean, variance = running[len(moments)] if running else (x.mean(axis=0), x.var(axis=0))
        moments.append((mean, variance))
        root = np.sqrt(variance + EPSILON)
        kept.append(((x - mean) / root, root))
        return (x - mean) / root * scale + shift

    x = normalize(x, params[0], np.zeros(1))
    for layer in range(1, len(params) - 2, 3):
        kept.append(x)
        x = np.maximum(normalize(x @ params[layer], params[layer + 1], params[layer + 2]), 0)
    return x, kept, moments


def critic_backward(params: Params, features: np.ndarray, kept: list, slope: np.ndarray, batch: bool) -> tuple:
    """Gradients of all but the heads, and of the inputs, given that of the features."""
    gradients: Params = []
    kept, x = list(kept), features

    def normalization(slope: np.ndarray, scale: np.ndarray) -> np.ndarray:
        hat, root = kept.pop()
        gradients[:0] = [(slope * hat).sum(axis=0), slope.sum(axis=0)]
        slope = slope * scale
        if batch:  # the moments depend on the batch, too
            slope = slope - slope.mean(axis=0) - hat * (slope * hat).mean(axis=0)
        return slope / root

    for layer in reversed(range(1, len(params) - 2, 3)):
        slope = normalization(slope * (x > 0), params[layer + 1])
        x = kept.pop()
        gradients.insert(0, x.T @ slope)
        slope = slope @ params[layer].T
    slope = normalization(slope, params[0])
    del gradients[1]  # inputs have no shift
    return gradients, slope


@dataclass
class Reference:
    M: int
    policies: list[Params]  # of each member: weights, bias, weights, ...
    critics: list[Params]
    lambda_: np.ndarray
    rate: float
    discount: float
    tau: float
    length_scale: float
    shrinkage: float
    num_states: int
    shift: np.ndarray
    scale: np.ndarray
    num_updates: int = 0
    running: list[Moments] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.target_critics = [[p.copy() for p in params] for params in self.critics]
        self.log_temperatures = np.full(self.M, np.log(0.01))
        self.critic_adam = [[Adam(self.rate) for _ in params] for params in self.critics]
        self.policy_adam = [[Adam(self.rate) for _ in params] for params in self.policies]
        self.temperature_adam = [Adam(self.rate) for _ in range(self.M)]

    def layers(self, m: int) -> list[tuple[np.ndarray, np.ndarray]]:
        return list(zip(self.policies[m][::2], self.policies[m][1::2], strict=True))

    def sample(self, m: int, obs: np.ndarray, noise: np.ndarray) -> tuple:
        """(action, log of its density, deviation, where it is not clipped, inputs of the layers)."""
        out, inputs = forward(self.layers(m), (obs - self.shift) * self.scale)
        mean, log_deviation = np.split(out, 2, axis=-1)
        free = (log_deviation > -10) & (log_deviation < 2)
        log_deviation = np.clip(log_deviation, -10, 2)
        action = np.tanh(mean + np.exp(log_deviation) * noise)
        density = -0.5 * noise**2 - log_deviation - 0.5 * np.log(2 * np.pi) - np.log(1 - action**2)
        return action, density.sum(axis=-1), np.exp(log_deviation), free, inputs

    def logits(self, params: Params, features: np.ndarray) -> np.ndarray:
        """Of k rows of each member: (M, k, atoms)."""
        by_head = features.reshape(self.M, -1, features.shape[-1])
        return np.stack([f @ w + b for f, w, b in zip(by_head, params[-2], params[-1], strict=True)])

    def update_critics(self, batch: tuple, noise: np.ndarray) -> float:
        """One step; arrays of the batch have axes (M, k). Returns the sum of both losses."""
        obs, action, reward, terminated, next_obs = batch
        k, n = obs.shape[1], obs.shape[0] * obs.shape[1]
        sampled = [self.sample(m, next_obs[m], noise[m])[:2] for m in range(self.M)]
        next_action, density = (np.stack(each) for each in zip(*sampled, strict=True))
        rows = [np.concatenate(pair, axis=-1).reshape(n, -1) for pair in ((obs, action), (next_obs, next_action))]
        x = np.concatenate(rows)
        of_targets = [softmax(self.logits(p, critic_forward(p, x, None)[0][n:])) for p in self.target_critics]
        lower = (of_targets[0] @ Z <= of_targets[1] @ Z)[..., None]
        probabilities = np.where(lower, *of_targets)
        target = np.zeros_like(probabilities)
        for m in range(self.M):
            for row in range(k):
                for z, p in zip(Z, probabilities[m, row], strict=True):
                    value = z - np.exp(self.log_temperatures[m]) * density[m, row]
                    y = reward[m, row] + self.discount * (1 - terminated[m, row]) * value
                    place = (np.clip(y, -5, 5) + 5) / 0.1
                    below = int(np.floor(place))
                    target[m, row, below] += p * (1 - (place - below))
                    if place > below:
                        target[m, row, below + 1] += p * (place - below)
        loss, new_moments = 0.0, []
        for i, params in enumerate(self.critics):
            features, kept, moments = critic_forward(params, x, None)
            predicted = softmax(self.logits(params, features[:n]))
            loss -= float((target * np.log(predicted)).sum(axis=-1).mean())
            slope = (predicted - target) / n
            by_head = features[:n].reshape(self.M, k, -1)
            heads = [np.einsum("mki,mko->mio", by_head, slope), slope.sum(axis=1)]
            of_features = np.zeros_like(features)
            of_features[:n] = np.einsum("mko,mio->mki", slope, params[-2]).reshape(n, -1)
            gradients = critic_backward(params, features, kept, of_features, batch=True)[0] + heads
            moved = [p + adam.step(g) for p, g, adam in zip(params, gradients, self.critic_adam[i], strict=True)]
            self.critics[i] = project(moved)
            new_moments.append(moments)
        self.num_updates += 1
        rate = max(0.01, 1 / self.num_updates)
        blend = [
            [tuple(o + rate * (n - o) for o, n in zip(*pair, strict=True)) for pair in zip(old, new, strict=True)]
            for old, new in zip(self.running or new_moments, new_moments, strict=True)
        ]
        self.running = blend
        for target_params, params in zip(self.target_critics, self.critics, strict=True):
            for t, p in zip(target_params, params, strict=True):
                t += self.tau * (p - t)
        return loss

    def update_policies(self, obs: np.ndarray, noise: np.ndarray) -> None:
        """One step of all members and temperatures; obs: (M, k, obs)."""
        k, states = obs.shape[1], obs.reshape(-1, obs.shape[-1])[: self.num_states]
        embedded = np.stack(
            [
                np.tanh(np.split(forward(self.layers(m), (states - self.shift) * self.scale)[0], 2, axis=-1)[0])
                for m in range(self.M)
            ]
        )
        apart = log_det_slope(embedded, self.length_scale, self.shrinkage) * self.lambda_[:, None, None]
        sampled = [self.sample(m, obs[m], noise[m]) for m in range(self.M)]
        actions = np.stack([each[0] for each in sampled])
        x = np.concatenate([obs, actions], axis=-1).reshape(self.M * k, -1)
        values, slopes = [], []
        for params, running in zip(self.critics, self.running, strict=True):
            features, kept, _ = critic_forward(params, x, running)
            p = softmax(self.logits(params, features))
            q = p @ Z
            of_logits = p * (Z - q[..., None])
            of_features = np.einsum("mko,mio->mki", of_logits, params[-2]).reshape(self.M * k, -1)
            of_inputs = critic_backward(params, features, kept, of_features, batch=False)[1]
            values.append(q)
            slopes.append(of_inputs.reshape(self.M, k, -1)[..., obs.shape[-1] :])
        of_action = np.where((values[0] <= values[1])[..., None], *slopes)
        for m in range(self.M):
            action, density, deviation, free, inputs = sampled[m]
            temperature = np.exp(self.log_temperatures[m])
            before = of_action[m] * (1 - action**2) - temperature * 2 * action
            of_log_deviation = (before * deviation * noise[m] + temperature) * free
            ascent = (1 - self.lambda_[m]) / k * np.concatenate([before, of_log_deviation], axis=-1)
            gradients = [-part for pair in backward(self.layers(m), inputs, ascent)[0] for part in pair]
            _, inputs = forward(self.layers(m), (states - self.shift) * self.scale)
            apart_before = np.concatenate([apart[m] * (1 - embedded[m] ** 2), np.zeros_like(apart[m])], axis=-1)
            further = [part for pair in backward(self.layers(m), inputs, apart_before)[0] for part in pair]
            self.policies[m] = [
                p + adam.step(g - f)
                for p, g, f, adam in zip(self.policies[m], gradients, further, self.policy_adam[m], strict=True)
            ]
            slope = temperature * (-density.mean() + actions.shape[-1] / 2)
            self.log_temperatures[m] += self.temperature_adam[m].step(slope)
