"""Run directories that were written, not trained: policies and numbers as a test needs them."""

from pathlib import Path

import jax
import numpy as np

import dvdrl
from dvdrl.networks import MLP
from dvdrl.runs import config, policies
from dvdrl.runs.policies import Population


def write_run(directory: Path, sizes: tuple[int, ...], members: int = 3) -> Population:
    """A run directory with random policies, a state filter with a constant coordinate, and bounds that are not ±1."""
    policy, rng = MLP(sizes), np.random.default_rng(0)
    scale = rng.uniform(0.1, 10, (members, sizes[0])).astype(np.float32)
    scale[:, -1] = 0  # the filter's scale of what never changed
    population = Population(
        task="Point-v0",
        policy=policy,
        params=np.asarray(jax.vmap(policy.init)(jax.random.split(jax.random.key(0), members))),
        shift=rng.normal(size=(members, sizes[0])).astype(np.float32),
        scale=scale,
        action_low=np.linspace(-2, 0, sizes[-1], dtype=np.float32),
        action_high=np.linspace(1, 10, sizes[-1], dtype=np.float32),
    )
    directory.mkdir()
    options = config.resolve(dvdrl.DvDES(task="Point-v0", population=members))
    (directory / "config.json").write_text(config.to_json(options))
    policies.save(directory / "policies", population)
    return population


def write_still_run(directory: Path, task: str, sizes: tuple[int, ...], members: int, **options: object) -> None:
    """A run whose members do nothing: all parameters are 0, which is the middle of every action."""
    policy, width = MLP(sizes), sizes[-1]
    population = Population(
        task=task,
        policy=policy,
        params=np.zeros((members, policy.num_params), np.float32),
        shift=np.zeros((members, sizes[0]), np.float32),
        scale=np.ones((members, sizes[0]), np.float32),
        action_low=-np.ones(width, np.float32),
        action_high=np.ones(width, np.float32),
    )
    directory.mkdir()
    resolved = config.resolve(dvdrl.ES(task=task, population=members, **options))
    (directory / "config.json").write_text(config.to_json(resolved))
    policies.save(directory / "policies", population)
