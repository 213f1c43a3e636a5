"""Run directories that were written, not trained: policies and numbers as a test needs them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import dvdrl
from dvdrl.policies import MLP, Agents, Bounded, Policy, Population
from dvdrl.runs import file, policies
from dvdrl.runs.presets import resolve
from probes import policy_of


def write_run(directory: Path, network: MLP, members: int = 3, task: str = "Point-v0") -> Population:
    """A run directory with random policies, and a state filter with a constant coordinate.

    On a task that is not Point their bounds are not ±1.
    """
    sizes, rng = network.sizes, np.random.default_rng(0)
    scale = rng.uniform(0.1, 10, (members, sizes[0])).astype(np.float32)
    scale[:, -1] = 0  # the filter's scale of what never changed
    low, high = (
        np.linspace(*ends, sizes[-1], dtype=np.float32).tolist()
        for ends in (((-1, -1), (1, 1)) if task == "Point-v0" else ((-2, 0), (1, 10)))
    )
    params = np.asarray(jax.vmap(network.init)(jax.random.split(jax.random.key(0), members)))
    shift = rng.normal(size=(members, sizes[0])).astype(np.float32)
    policy = Policy(network, Bounded(tuple(low), tuple(high)))
    population = Population(task, policy, Agents(params, shift, scale))
    directory.mkdir()
    options = resolve(dvdrl.DvDES(task=task, population=members))
    (directory / "config.json").write_text(file.to_json(options))
    policies.save(directory / "policies", population)
    return population


def write_still_run(
    directory: Path, task: str, sizes: tuple[int, ...], members: int, high: float = 1.0, **options: object
) -> None:
    """A run whose members do nothing: all parameters are 0, which is the middle of every action."""
    policy, ones = policy_of(*sizes, low=-high, high=high), np.ones((members, sizes[0]), np.float32)
    params = np.zeros((members, policy.network.num_params), np.float32)
    population = Population(task, policy, Agents(params, 0 * ones, ones))
    directory.mkdir()
    resolved = resolve(dvdrl.ES(task=task, population=members, **options))
    (directory / "config.json").write_text(file.to_json(resolved))
    policies.save(directory / "policies", population)


def write_numbers(directory: Path, lines: Iterable[dict[str, Any]], **options: Any) -> Path:
    """A run directory with these metrics, and no policies."""
    directory.mkdir(parents=True)
    resolved = resolve(dvdrl.DvDES(**{"task": "HalfCheetah-v5", **options}))
    (directory / "config.json").write_text(file.to_json(resolved))
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


def numbers(iterations: Iterable[int], members: int = 3, seed: int = 0) -> list[dict[str, Any]]:
    """Lines as a run of DvD-ES writes them, with random numbers."""
    rng = np.random.default_rng(seed)
    pairs = members * (members - 1) // 2
    lines = []
    for iteration in iterations:
        returns = (rng.normal(size=members) * 10 + iteration).tolist()
        behaviours = rng.normal(size=(members, 4))
        i, j = np.triu_indices(members, 1)
        distances = np.sqrt(np.mean((behaviours[i] - behaviours[j]) ** 2, axis=1))
        lines.append(
            {
                "iteration": iteration,
                "env_steps": 1000 * iteration,
                "best_return": max(returns),
                "mean_return": float(np.mean(returns)),
                "member_returns": returns,
                "lambda": float(rng.choice([0.0, 0.5])),
                "arm_alpha": [1.0 + iteration, 2.0],
                "arm_beta": [1.0, 3.0],
                "log_det_per_member": float(-rng.exponential()),
                "vendi_1": float(rng.uniform(1, max(members, 1.1))),
                "min_distance": float(distances.min()) if pairs else 0.0,
                "similarities": np.exp(-(distances**2)).tolist(),
                "distances": distances.tolist(),
            }
        )
    return lines
