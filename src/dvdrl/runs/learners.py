"""The off-policy learners that options describe: the only place that knows both."""

import dataclasses
import functools
from typing import Any

from dvdrl.diversity import KERNELS
from dvdrl.off_policy import Learner, log_determinants, make_policy, td3
from dvdrl.runs import config

_NOT_THE_LEARNERS = {
    *("task", "task_options", "seed", "seeds", "iterations", "steps", "out", "keep_checkpoints", "wandb"),
    *("iteration_steps", "evaluation_episodes", "random_steps", "executor"),
    *("controller", "arms", "patience", "pull_interval"),
}
"""Options that are the run's."""


def make_td3(options: config.TD3, num_observed: int, num_actions: int) -> Learner:
    """The learner that resolved options describe; compiled once for all runs that differ in other options."""
    names = {field.name for field in dataclasses.fields(options)} - _NOT_THE_LEARNERS
    values = {name: getattr(options, name) for name in sorted(names)}
    # More is never filled: a run is whole iterations.
    iteration = config.whole_iteration(options)
    values["buffer_size"] = min(options.buffer_size, -(-options.steps // iteration) * iteration)
    return _td3(num_observed, num_actions, tuple(values.items()))


@functools.lru_cache(maxsize=8)
def _td3(num_observed: int, num_actions: int, items: tuple[tuple[str, Any], ...]) -> Learner:
    values = dict(items)
    kernel = KERNELS[values.pop("kernel")](length_scale=values.pop("length_scale"))
    diversity = log_determinants(kernel, values.pop("normalization"), values.pop("shrinkage"))
    return td3(make_policy(num_observed, num_actions, values["hidden"]), diversity=diversity, **values)
