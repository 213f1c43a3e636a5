"""TD3, E-TD3 and DvD-TD3, made from their options: the learner, and the trainer for it."""

import functools
from typing import Any, Never

from dvdrl.diversity import KERNELS, Normalization
from dvdrl.off_policy import Learner, log_determinants, td3
from dvdrl.off_policy.td3 import NETWORK
from dvdrl.policies import Policy
from dvdrl.runs import fields
from dvdrl.runs.off_policy import OffPolicy
from dvdrl.runs.options import TD3
from dvdrl.runs.trainer import make_continuous_policy


def make_trainer(options: TD3[Never], num_runs: int) -> OffPolicy:
    """The trainer for `num_runs` runs that differ only in their seeds."""
    return OffPolicy(options, num_runs, make_learner(options, make_continuous_policy(options, **NETWORK)))


def make_learner(options: TD3[Never], policy: Policy) -> Learner:
    """The learner for resolved options. Runs share the compiled one if they differ only in options of other parts."""
    values = fields.values(options, "algorithm")
    # A run is a whole number of iterations. It never fills a larger buffer.
    iteration = options.whole_iteration()
    values["buffer_size"] = min(options.buffer_size, -(-options.steps // iteration) * iteration)
    diversity = options.kernel, options.length_scale, options.normalization, options.shrinkage
    return _learner(policy, tuple(values.items()), *diversity)


@functools.lru_cache(maxsize=8)
def _learner(
    policy: Policy,
    items: tuple[tuple[str, Any], ...],
    kernel: str,
    length_scale: float,
    normalization: Normalization,
    shrinkage: float,
) -> Learner:
    diversity = log_determinants(KERNELS[kernel](length_scale=length_scale), normalization, shrinkage)
    return td3(policy, diversity=diversity, **dict(items))
