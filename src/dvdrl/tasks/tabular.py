"""The four-state MDP of section 3.3 (figure 2): small enough to enumerate every policy and every population.

From s0 the actions left, down and right (-1, 0, 1) lead to s1, s2 and s3. A second action leads to one of five terminal
states in a row, at position first action + second action. The outer two and the middle one pay 1, the other two 0.
"""

import itertools
from typing import NamedTuple

ACTIONS = (-1, 0, 1)
NUM_STATES = 4
TERMINAL_REWARDS = {-2: 1.0, -1: 0.0, 0: 1.0, 1: 0.0, 2: 1.0}

Policy = tuple[int, int, int, int]
"""The action in each of s0, s1, s2, s3."""
Behavior = tuple[int, int]
"""The actions taken in the two states that an episode visits: the paper's two-dimensional embedding."""


class Episode(NamedTuple):
    """One episode: the embedding of the behaviour, and the reward."""

    behavior: Behavior
    reward: float


def policies() -> list[Policy]:
    """All 81 deterministic policies."""
    return [(a, b, c, d) for a, b, c, d in itertools.product(ACTIONS, repeat=NUM_STATES)]


def rollout(policy: Policy) -> Episode:
    """The only possible episode of a policy, as transitions are deterministic."""
    first = policy[0]
    second = policy[1 + ACTIONS.index(first)]  # left, down, right lead to s1, s2, s3
    return Episode((first, second), TERMINAL_REWARDS[first + second])
