"""An off-policy learner that is not TD3: it has no critics and no gradients, and counts what it is given."""

from typing import Any, NamedTuple, Never

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import dvdrl
from dvdrl.off_policy import Learner, Replay, Step, row_size
from dvdrl.policies import Agents
from dvdrl.runs.off_policy import OffPolicy
from dvdrl.runs.options import TD3
from dvdrl.runs.presets import resolve
from dvdrl.runs.trainer import make_policy

OBS, ACT, M, STEPS_PER_UPDATE = 6, 2, 2, 5
# An iteration is 30 steps of two members' simulations, of which the first 45 in all are random.
OPTIONS = resolve(
    dvdrl.ETD3(
        task="Point-v0",
        population=M,
        hidden=(),
        steps=240,
        iteration_steps=60,
        random_steps=90,
        evaluation_episodes=2,
        num_states=3,
    )
)


class Toy(NamedTuple):
    num_updates: Int[Array, ""]
    total: Float[Array, "obs"]
    """Of all observations, as a learner would sum them that normalises them; random steps included."""
    ended: Float[Array, ""]
    """Episodes that ended, which a learner has to know that normalises rewards by their sums."""
    beliefs: Float[Array, "M"]


def toy() -> Learner:
    """Acts with the number of its updates and the number of the member, in hundredths."""

    def act(state: Toy, step: Step) -> Float[Array, "seeds n outputs"]:
        member = jnp.broadcast_to(jnp.arange(step.shape[1]) % M, step.shape[:2])
        updates = jnp.broadcast_to(state.num_updates[:, None], step.shape[:2])
        return jnp.stack([updates, member, jnp.full(step.shape[:2], 100)], axis=-1)

    def add(state: Toy, memory: Replay, steps: list[Step]) -> tuple[Toy, Replay]:
        num_added = memory.num_added + len(steps) * steps[0].shape[1]
        together = jnp.sum(jnp.stack(steps), axis=(0, 2))
        total, ended = state.total + together[:, :OBS], state.ended + together[:, row_size(OBS, ACT)]
        return state._replace(total=total, ended=ended), memory._replace(num_added=num_added)

    def update(state: Toy, memory: Replay, statistics: Array, steps: list[Step], lambda_: Array) -> Any:
        assert lambda_.shape == (len(statistics), M)
        state, memory = add(state, memory, steps)
        return state._replace(num_updates=state.num_updates + 1), memory, statistics + 3.0

    return Learner(
        policy=make_policy(OPTIONS),
        row_size=row_size(OBS, ACT),
        capacity=240,
        steps_per_update=STEPS_PER_UPDATE,
        init=lambda key: Toy(jnp.zeros((), jnp.int32), jnp.zeros(OBS), jnp.zeros(()), jax.random.uniform(key, (M,))),
        no_statistics=jnp.zeros,
        draw_noise=lambda generator, shape: np.zeros((*shape, 0), np.float32),
        act=act,
        explore=lambda outputs, noise: (outputs[:, :ACT] / outputs[:, ACT:]).astype(np.float32),
        add=add,
        update=update,
        greedy=lambda state, obs: jnp.zeros((*obs.shape[:-1], ACT)),
        behaviours=lambda state, states: jnp.broadcast_to(jnp.arange(float(M))[:, None], (M, len(states))),
        agents=lambda state: Agents(*(np.zeros((M, size), np.float32) for size in (OBS * ACT, OBS, OBS))),
        finite=lambda state, statistics: {"belief of member": np.isfinite(np.asarray(state.beliefs))},
        num_updates=lambda state: int(state.num_updates),
        metrics=lambda statistics, num_updates: {"surprise": float(statistics) / num_updates},
    )


def make_trainer(options: TD3[Never], num_runs: int) -> OffPolicy:
    """What an options class names as its trainer."""
    return OffPolicy(options, num_runs, toy())
