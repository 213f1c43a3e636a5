"""The off-policy learners, made from their options: the learner, and the trainer for it."""

import functools
from collections.abc import Callable
from typing import Any, Never

from dvdrl import off_policy
from dvdrl.diversity import KERNELS, Normalization
from dvdrl.niches import Niches, Rules, niches
from dvdrl.off_policy.td3 import NETWORK
from dvdrl.policies import Policy
from dvdrl.runs import fields
from dvdrl.runs.off_policy import OffPolicy
from dvdrl.runs.options import InNiches, OffPolicyTraining
from dvdrl.runs.trainer import make_continuous_policy

_PACE = Rules(settled=6, longest_away=2, longest_outside=6)
"""Iterations of niches. Those of off-policy learners are much longer than those of niche-ES."""


def make_trainer(options: OffPolicyTraining[Never], num_runs: int) -> OffPolicy:
    """The trainer for `num_runs` runs that differ only in their seeds."""
    policy = make_continuous_policy(options, **NETWORK)
    return OffPolicy(options, num_runs, make_learner(options, policy), _niches(options, policy.num_observed))


def _niches(options: OffPolicyTraining[Never], num_observed: int) -> Niches | None:
    """The controller of niches, if the options ask for them."""
    if not isinstance(options, InNiches):
        return None
    left_out = dict.fromkeys(options.without, False)
    rules = _PACE._replace(least_return=options.least_return, **left_out)
    return niches(options.population, num_observed, rules)


def make_learner(options: OffPolicyTraining[Never], policy: Policy) -> off_policy.Learner:
    """The learner for resolved options. Runs share the compiled one if they differ only in options of other parts."""
    values = fields.values(options, "algorithm") | {"buffer_size": options.whole_buffer()}
    diversity = options.kernel, options.length_scale, options.normalization, options.shrinkage
    return _learner(getattr(off_policy, options.learner), policy, tuple(values.items()), *diversity)


@functools.lru_cache(maxsize=8)
def _learner(
    make: Callable[..., off_policy.Learner],
    policy: Policy,
    items: tuple[tuple[str, Any], ...],
    kernel: str,
    length_scale: float,
    normalization: Normalization,
    shrinkage: float,
) -> off_policy.Learner:
    diversity = off_policy.log_determinants(KERNELS[kernel](length_scale=length_scale), normalization, shrinkage)
    return make(policy, diversity=diversity, **dict(items))
