"""Behaviours: the row of numbers by which an agent is compared with others. There is one row per episode.

Each is a function (policy, n agents, the states on which members are compared, the agents' episodes, the moments of
all observations of the population so far) -> one row per agent.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from dvdrl import diversity
from dvdrl.diversity import behaviours
from dvdrl.interfaces import Episodes
from dvdrl.policies import Agents, Moments, Policy
from dvdrl.policies import filter as observation_filter

Behaviour = Callable[[Policy, Agents, Float[Array, "s obs"], Episodes, Moments], Float[Array, "n l"]]


def actions(
    policy: Policy,
    agents: Agents,
    states: Float[Array, "s obs"],
    episodes: Episodes,  # noqa: ARG001
    seen: Moments,  # noqa: ARG001
) -> Float[Array, "n l"]:
    """The paper's behaviour (definition 3.1): what the agents do in the same states."""
    return diversity.embed(policy.behaviour, agents, states)


def visits(
    policy: Policy,  # noqa: ARG001
    agents: Agents,  # noqa: ARG001
    states: Float[Array, "s obs"],  # noqa: ARG001
    episodes: Episodes,
    seen: Moments,  # noqa: ARG001
) -> Float[Array, "n obs"]:
    """The mean of the observations in each episode, in their own units."""
    return behaviours.visits(episodes.moments.mean)


def standardized_visits(
    policy: Policy,  # noqa: ARG001
    agents: Agents,  # noqa: ARG001
    states: Float[Array, "s obs"],  # noqa: ARG001
    episodes: Episodes,
    seen: Moments,
) -> Float[Array, "n obs"]:
    """The same in units of the deviation of all observations, so that one length scale serves; constants are 0."""
    shift, scale = observation_filter.affine(seen)
    return (behaviours.visits(episodes.moments.mean) - shift[None]) * scale[None]


def measures(
    policy: Policy,  # noqa: ARG001
    agents: Agents,  # noqa: ARG001
    states: Float[Array, "s obs"],  # noqa: ARG001
    episodes: Episodes,
    seen: Moments,  # noqa: ARG001
) -> Float[Array, "n D"]:
    """What the user measures of each episode, in the user's units."""
    return jnp.asarray(episodes.measures)
