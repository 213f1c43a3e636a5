"""An off-policy learner of M members is a record of functions. The trainer knows nothing else of it.

The trainer (`dvdrl.runs.off_policy`) steps the simulations, stores the transitions and evaluates. The learner keeps its
own state, a pytree that the trainer saves and restores without looking into it. Independent runs with different seeds
are trained together: "seeds" is a leading axis of every array, unless a description mentions one run.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dvdrl.niches import Guidance
from dvdrl.off_policy.replay import Replay
from dvdrl.policies import Agents, Policy

State = Any
"""Everything that changes in training, except the replay buffer: a pytree of arrays."""
Statistics = Any
"""What the updates of one iteration report, summed on the device: a pytree of arrays."""
Step = Float[Any, "seeds n row_and_ended_and_obs"]
"""One step of all simulations as one array, made by `pack_step`. For each simulation it has the packed transition,
whether the episode ended, and the observation to act on next.

A run has n = simulations x M simulations; simulation i belongs to member i mod M."""


def pack_step(
    rows: Float[np.ndarray, "n row"], ended: Bool[np.ndarray, "n"], obs: Float[np.ndarray, "n obs"]
) -> Float[np.ndarray, "n row_and_ended_and_obs"]:
    """A step of n simulations as one array, so that one copy takes it to the device.

    Args:
        rows: the packed transitions.
        ended: whether each episode ended, by a time limit or by the task itself.
        obs: the observations to act on next; after the end of an episode, the first observation of the next one.
    """
    return np.concatenate([rows, ended[:, None], obs], axis=1, dtype=np.float32)


class Guided(NamedTuple):
    """What the niches of a population ask of its members."""

    renewed: Bool[Any, "M"]
    """Who begins anew: with a new policy, and without what was learned from its transitions so far."""
    num_steps: Int[Any, ""]
    """Steps that each member has made so far."""
    guidance: Guidance
    """What counts as reward from now on; behaviours are means of observations."""


class Learner(NamedTuple):
    """The functions of a learner. Those for the device are compiled, and return before the device has finished."""

    policy: Policy
    """The policy that acts, also after training; `agents` are the members. "Outputs" below are those of the policy's
    network, before the policy's head turns them into actions of the environment."""
    row_size: int
    """Numbers in a packed transition."""
    capacity: int
    """Transitions that the replay buffer holds."""
    steps_per_update: int
    """Number of steps of all simulations between two calls of `add` or `update`, which are given these steps."""

    init: Callable[[PRNGKeyArray], State]
    """The first state of one run."""
    no_statistics: Callable[[int], Statistics]
    """The statistics at the beginning of an iteration, for this number of seeds."""

    draw_noise: Callable[[np.random.Generator, tuple[int, int]], Float[np.ndarray, "k n ..."]]
    """The exploration noise of the members of one run: for (k, n), an array for k steps of n simulations.

    It is drawn on the host from the run's generator, for a whole iteration at once. It may be empty, (k, n, 0), if
    `act` explores by itself."""
    act: Callable[[State, Step], Float[Array, "seeds n ..."]]
    """The members' response to the latest observations of their simulations, computed on the device.

    It may be any numbers that `explore` turns into outputs, for instance the mean and the deviation of each output."""
    explore: Callable[[Float[np.ndarray, "n ..."], Float[np.ndarray, "n ..."]], Float[np.ndarray, "n out"]]
    """Outputs with exploration, given the result of `act` and the noise of the step; computed on the host.

    Here n counts the simulations of all seeds. These outputs are the actions in the stored transitions."""

    add: Callable[[State, Replay, Sequence[Step]], tuple[State, Replay]]
    """Store `steps_per_update` steps of random outputs, without learning. The state and the buffer that are passed in
    cannot be used afterwards."""
    update: Callable[
        [State, Replay, Statistics, Sequence[Step], Float[Any, "seeds M"]], tuple[State, Replay, Statistics]
    ]
    """Store `steps_per_update` steps, and learn. The last argument is lambda, the weight of diversity for each member.
    The first three arguments cannot be used afterwards."""

    greedy: Callable[[State, Float[np.ndarray, "seeds M n obs"]], Float[Array, "seeds M n out"]]
    """Each member's outputs without exploration."""
    behaviours: Callable[[State, Float[Array, "s obs"]], Float[Array, "M l"]]
    """What each member of one run does on the given states: one row per member. Diversity compares these rows."""
    agents: Callable[[State], Agents]
    """The members of one run, as NumPy arrays: the parameters of the policy and its filter."""

    finite: Callable[[State, Statistics], Mapping[str, Bool[np.ndarray, "seeds k"]]]
    """Whether everything that must be finite is. Keys name what is checked, as in {"parameters of member": (seeds, M)};
    entry k of a value is for number k, here member k."""
    num_updates: Callable[[State], int]
    """How many updates one run has had since it began."""
    metrics: Callable[[Statistics, int], dict[str, float]]
    """The statistics of one run, given its number of updates, as fields of its metrics line. The number is never 0."""

    guided: Callable[[State, Guided], State] | None = None
    """The state of one run, with members that do what is asked; None if the learner has no rewards for that."""
    started_from: Callable[[State, Agents], State] | None = None
    """The first state of one run, with these members instead of its own; None if the learner cannot do that.

    It raises ValueError if these members filter observations in a way that its own cannot."""
