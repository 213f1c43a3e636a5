"""A policy: a filter of observations, a network, and an action head.

    policy = policy_for(observation_space, action_space, hidden=(32, 32))
    agents = Agents(params, shift, scale)       # M members: each array has a leading axis M
    policy.act(agents, obs)                     # (M, n, obs) -> (M, n, act)

The run owns the policy. Executors, evaluation, export and videos receive it; they never choose one. Everything works on
NumPy arrays (on the host) and on JAX arrays (on a device, also while traced).
"""

from dvdrl.policies.filter import Moments
from dvdrl.policies.heads import HEADS, Bounded, Categorical, Head, Operation, head_for, register_head
from dvdrl.policies.network import MLP, Layers
from dvdrl.policies.policy import Agents, Policy, policy_for
from dvdrl.policies.population import Member, Places, Population, Standing

__all__ = [
    "HEADS",
    "MLP",
    "Agents",
    "Bounded",
    "Categorical",
    "Head",
    "Layers",
    "Member",
    "Moments",
    "Operation",
    "Places",
    "Policy",
    "Population",
    "Standing",
    "head_for",
    "policy_for",
    "register_head",
]
