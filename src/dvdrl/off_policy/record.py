"""What an off-policy learner of M members is: a record of functions, and nothing else of it is known to the trainer.

The trainer (`dvdrl.runs.off_policy`) steps the simulations, stores the transitions and evaluates. The learner keeps its
own state, a pytree that the trainer saves and restores without looking into it. Independent runs with different seeds
are trained together: "seeds" is a leading axis of every array, except where a function is said to be of one run.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from dvdrl.off_policy.replay import Replay
from dvdrl.policies import Agents, Policy

State = Any
"""Everything that changes in training, but for the replay buffer: a pytree of arrays."""
Statistics = Any
"""What the updates of one iteration have to report, summed on the device: a pytree of arrays."""
Step = Float[Any, "seeds n row_and_ended_and_obs"]
"""One step of all simulations, in one array, as `pack_step` makes it: of each simulation the packed transition, whether
its episode ended, and what to act on next.

Simulation i of the n = simulations x M of a run belongs to member i mod M."""


def pack_step(
    rows: Float[np.ndarray, "n row"], ended: Bool[np.ndarray, "n"], obs: Float[np.ndarray, "n obs"]
) -> Float[np.ndarray, "n row_and_ended_and_obs"]:
    """A step of n simulations as one array, so that it is one copy to the device.

    Args:
        rows: the packed transitions.
        ended: where an episode ended, by a time limit or by the task itself.
        obs: what to act on next; where an episode ended, the first observation of the next one.
    """
    return np.concatenate([rows, ended[:, None], obs], axis=1, dtype=np.float32)


class Learner(NamedTuple):
    """The functions of a learner. Those that compute on the device are compiled, and return before they are done."""

    policy: Policy
    """What acts, also after training; `agents` are the members. What is called an output here is one of its network, of
    which its head makes an action of the environment."""
    row_size: int
    """Numbers in a packed transition."""
    capacity: int
    """Transitions that the replay buffer holds."""
    steps_per_update: int
    """`add` or `update` is called after so many steps of all simulations, with these steps."""

    init: Callable[[PRNGKeyArray], State]
    """The first state of one run."""
    no_statistics: Callable[[int], Statistics]
    """What an iteration begins with, for so many seeds."""

    draw_noise: Callable[[np.random.Generator, tuple[int, int]], Float[np.ndarray, "k n ..."]]
    """What the members of one run explore with: for (k, n), an array for k steps of n simulations.

    Drawn on the host from the run's generator, for a whole iteration at once. It may be empty, (k, n, 0), where `act`
    explores by itself."""
    act: Callable[[State, Step], Float[Array, "seeds n ..."]]
    """What the members make of the latest observations of their simulations, computed on the device.

    Any numbers that `explore` turns into outputs, as for instance the mean and the deviation of each."""
    explore: Callable[[Float[np.ndarray, "n ..."], Float[np.ndarray, "n ..."]], Float[np.ndarray, "n out"]]
    """Outputs with exploration, given what `act` returned and the noise of the step; computed on the host.

    Here n counts the simulations of all seeds. Transitions have these outputs as their actions."""

    add: Callable[[State, Replay, Sequence[Step]], tuple[State, Replay]]
    """Store `steps_per_update` steps of random outputs without learning. The state and the buffer that are passed in
    cannot be used afterwards."""
    update: Callable[
        [State, Replay, Statistics, Sequence[Step], Float[Any, "seeds M"]], tuple[State, Replay, Statistics]
    ]
    """Store as many steps and learn; the last argument is lambda, the weight of diversity for each member. The first
    three arguments cannot be used afterwards."""

    greedy: Callable[[State, Float[np.ndarray, "seeds M n obs"]], Float[Array, "seeds M n out"]]
    """Each member's outputs without exploration."""
    behaviours: Callable[[State, Float[Array, "s obs"]], Float[Array, "M l"]]
    """What each member of one run does on the given states: a row for each, by which members are compared."""
    agents: Callable[[State], Agents]
    """The members of one run, as arrays of NumPy: the parameters of the policy, its filter included."""

    finite: Callable[[State, Statistics], Mapping[str, Bool[np.ndarray, "seeds k"]]]
    """By the name of what has to be finite, whether number k of it is, as in {"parameters of member": (seeds, M)}."""
    num_updates: Callable[[State], int]
    """How many updates one run has had since it began."""
    metrics: Callable[[Statistics, int], dict[str, float]]
    """What so many updates of one run reported, as fields of its metrics line. Not called without updates."""
