"""TD3, E-TD3 and DvD-TD3 as their options describe them: the learner, and the trainer for it."""

import dataclasses
import functools
from typing import Any

from dvdrl.diversity import KERNELS
from dvdrl.off_policy import Learner, log_determinants, td3
from dvdrl.off_policy.td3 import NETWORK
from dvdrl.policies import Policy
from dvdrl.runs import config
from dvdrl.runs.off_policy import OffPolicy
from dvdrl.runs.trainer import make_policy

_NOT_THE_LEARNERS = {
    *("task", "task_options", "seed", "seeds", "iterations", "steps", "out", "keep_checkpoints", "wandb"),
    *("iteration_steps", "evaluation_episodes", "random_steps", "executor"),
    *("controller", "arms", "patience", "pull_interval"),
}
"""Options that are the run's."""


def make_trainer(options: config.TD3, num_runs: int) -> OffPolicy:
    """The trainer of so many runs that differ in their seeds."""
    return OffPolicy(options, num_runs, make_learner(options, make_policy(options, **NETWORK)))


def make_learner(options: config.TD3, policy: Policy) -> Learner:
    """The learner that resolved options describe; compiled once for all runs that differ in other options."""
    names = {field.name for field in dataclasses.fields(options)} - _NOT_THE_LEARNERS
    values = {name: getattr(options, name) for name in sorted(names)}
    # More is never filled: a run is whole iterations.
    iteration = config.whole_iteration(options)
    values["buffer_size"] = min(options.buffer_size, -(-options.steps // iteration) * iteration)
    return _learner(policy, tuple(values.items()))


@functools.lru_cache(maxsize=8)
def _learner(policy: Policy, items: tuple[tuple[str, Any], ...]) -> Learner:
    values = dict(items)
    kernel = KERNELS[values.pop("kernel")](length_scale=values.pop("length_scale"))
    diversity = log_determinants(kernel, values.pop("normalization"), values.pop("shrinkage"))
    return td3(policy, diversity=diversity, **values)
