"""TD3 for M members with one shared twin critic: the one implementation behind TD3, E-TD3 and DvD-TD3 (section 4.4).

TD3 is M = 1, E-TD3 is lambda = 0, and in DvD-TD3 a controller chooses lambda in each round. All three run the same
compiled program, so they are bit-identical where they should be. The functions are written for one run and mapped over
an axis of independent runs, `seeds`. The replay buffers of all seeds always hold equally many transitions.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dvdrl.off_policy import adam, losses, replay
from dvdrl.off_policy.diversity import Diversity
from dvdrl.off_policy.parameters import all_finite, on_both, towards
from dvdrl.off_policy.record import Learner, Step
from dvdrl.off_policy.replay import Bootstrapping, Replay
from dvdrl.policies import MLP, Agents, Bounded, Layers, Policy

Scalar = Float[Array, ""]


class State(NamedTuple):
    """Everything that changes in training, except the replay buffer. Each array has a leading axis of seeds."""

    key: PRNGKeyArray
    """The key of the run. Each call of `update` derives its own keys from it."""
    num_updates: Int[Array, ""]
    policies: Layers
    """The policies of the M members; each array has an axis M in front. They are stored by layer, because slices of a
    flat vector would be copied."""
    target_policies: Layers
    policy_moments: adam.Moments[Layers]
    critics: Layers
    """Both critics; each array has an axis of 2 in front."""
    target_critics: Layers
    critic_moments: adam.Moments[Layers]


class Sums(NamedTuple):
    """Sums over updates, for each place of a batch. Adding needs no kernel of its own; each mean would need two.

    Each array has a leading axis of seeds.
    """

    squared_errors: Float[Array, "2 n"]
    """Squared errors of both critics; their means over the batch are the critics' losses."""
    values: Float[Array, "n"]
    """Values given by the first critic."""


NETWORK: dict[str, Any] = {"activation": "relu", "output_bias": True}
"""The properties of TD3's policy networks, apart from their sizes."""


def make_policy(num_observed: int, num_actions: int, hidden: tuple[int, ...]) -> Policy:
    """TD3's policy for actions in [-1, 1]: ReLU hidden layers, tanh output."""
    head = Bounded((-1.0,) * num_actions, (1.0,) * num_actions)
    return Policy(MLP((num_observed, *hidden, num_actions), **NETWORK), head)


def make_critic(num_observed: int, num_actions: int, hidden: tuple[int, ...]) -> MLP:
    """One of TD3's two critics: it gives a value for an observation joined with an action."""
    return MLP((num_observed + num_actions, *hidden, 1), activation="relu", output_activation="none", output_bias=True)


def td3(
    policy: Policy,
    *,
    population: int,
    simulations: int = 1,
    diversity: Diversity,
    hidden: tuple[int, ...] = (256, 256),
    learning_rate: float = 3e-4,
    batch_size: int = 256,
    buffer_size: int = 1_000_000,
    discount: float = 0.99,
    target_rate: float = 0.005,
    target_noise: float = 0.2,
    target_noise_clip: float = 0.5,
    policy_delay: int = 2,
    exploration_noise: float = 0.1,
    bootstrapping: Bootstrapping = "collector",
    num_states: int | None = None,
) -> Learner:
    """TD3 on M members. `dvdrl.runs.options` explains each option.

    `diversity` scores the members' behaviours on `num_states` states of a batch.
    """
    M, num_observed, num_actions = population, policy.num_observed, policy.head.num_outputs
    network, behaviour = policy.network, policy.head.behaviour
    row_size = replay.row_size(num_observed, num_actions)
    critic = make_critic(num_observed, num_actions, hidden)
    # One update per transition, in whole periods of policy_delay updates. The last one of a period includes policies.
    per_step = simulations * M
    num_new = math.lcm(per_step, policy_delay)
    rows_per_member = -(-batch_size // M)
    # The kernels of a period are a CUDA graph, which by default runs them in program order. This option lets
    # independent kernels run side by side, such as diversity and values, or the steps of Adam by layer.
    side_by_side = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"} if jax.default_backend() == "gpu" else None

    def init(key: PRNGKeyArray) -> State:
        key_policies, key_critics, key_run = jax.random.split(key, 3)
        policies = network.unravel(jax.vmap(network.init_uniform)(jax.random.split(key_policies, M)))
        critics = critic.unravel(jax.vmap(critic.init_uniform)(jax.random.split(key_critics, 2)))
        return State(
            key=key_run,
            num_updates=jnp.zeros((), jnp.int32),
            policies=policies,
            target_policies=policies,
            policy_moments=adam.no_moments(policies),
            critics=critics,
            target_critics=critics,
            critic_moments=adam.no_moments(critics),
        )

    def started_from(state: State, given: Agents) -> State:
        if given.shift.any() or (given.scale != 1).any():
            raise ValueError("these policies filter observations, and TD3's do not")
        policies = network.unravel(jnp.asarray(given.params))
        return state._replace(policies=policies, target_policies=policies)

    def act(policies: Layers, step: Step) -> Float[Array, "n act"]:
        by_member = step[:, -num_observed:].reshape(simulations, M, num_observed)
        actions: Array = jax.vmap(network.apply_layers, in_axes=(0, 1), out_axes=1)(policies, by_member)
        return actions.reshape(per_step, num_actions)

    def add(memory: Replay, steps: Sequence[Step]) -> Replay:
        return replay.add(memory, jnp.concatenate([step[:, :row_size] for step in steps]))

    def update(
        state: State, memory: Replay, sums: Sums, steps: Sequence[Step], lambda_: Float[Array, "M"]
    ) -> tuple[State, Replay, Sums]:
        memory = add(memory, steps)
        # All random numbers of the call are drawn at once, outside the loop.
        key_rows, key_noise = jax.random.split(jax.random.fold_in(state.key, state.num_updates))
        indices = replay.sample(key_rows, memory, (num_new, batch_size), M, bootstrapping)
        noise = target_noise * jax.random.normal(key_noise, (num_new, batch_size, num_actions))
        noise = jnp.clip(noise, -target_noise_clip, target_noise_clip)
        # So are Adam's scalars: in the loop they would be six kernels, each for one number.
        scales = adam.scales(learning_rate, state.num_updates + jnp.arange(1, num_new + 1))
        policy_scales = adam.scales(
            learning_rate, state.num_updates // policy_delay + jnp.arange(1, num_new // policy_delay + 1)
        )
        draws = jax.tree.map(lambda x: x.reshape(-1, policy_delay, *x.shape[1:]), (indices, noise, scales))

        def period(carry: tuple[State, Sums], given: Any) -> tuple[tuple[State, Sums], None]:
            state, sums = carry
            draws, policy_scale = given
            for index, noise, scale in zip(*draws, strict=True):
                batch = replay.unpack(memory.rows[index], num_observed)
                state, new = update_critics(state, batch, noise, scale)
                sums = jax.tree.map(jnp.add, sums, new)
            return (update_policies(state, batch.obs, lambda_, policy_scale), sums), None

        (state, sums), _ = jax.lax.scan(period, (state, sums), (draws, policy_scales))
        return state._replace(num_updates=state.num_updates + num_new), memory, sums

    def update_critics(
        state: State, batch: replay.Transitions, noise: Float[Array, "n act"], scale: Float[Array, "2"]
    ) -> tuple[State, Sums]:
        """One step of both critics. Each transition's target uses the target policy of the member of its place."""
        padded = jnp.pad(batch.next_obs, ((0, rows_per_member * M - batch_size), (0, 0)))
        by_member = padded.reshape(rows_per_member, M, num_observed)
        actions = jax.vmap(network.apply_layers, in_axes=(0, 1), out_axes=1)(state.target_policies, by_member)
        next_action = losses.smoothed(actions.reshape(-1, num_actions)[:batch_size], noise)
        next_values = on_both(lambda layers: losses.values(critic, layers, batch.next_obs, next_action))
        target = losses.bootstrapped(batch.reward, batch.terminated, discount, next_values(state.target_critics))

        def loss(layers: Layers) -> tuple[Scalar, Float[Array, "n"]]:
            return losses.critic_loss(critic, layers, batch.obs, batch.action, target)

        gradient, q = on_both(jax.grad(loss, has_aux=True))(state.critics)
        critics, moments = adam.step(state.critics, state.critic_moments, gradient, scale)
        return state._replace(critics=critics, critic_moments=moments), Sums(jnp.square(q - target[None]), q[0])

    def update_policies(
        state: State, obs: Float[Array, "n obs"], lambda_: Float[Array, "M"], scale: Float[Array, "2"]
    ) -> State:
        """One step of all members on the same states, through the first critic; then all targets follow."""
        of_critic = jax.tree.map(lambda both: both[0], state.critics)

        def loss(layers: Layers) -> Scalar:
            actions = jax.vmap(network.apply_layers, in_axes=(0, None))(layers, obs)
            returns = losses.mean_values(critic, of_critic, obs, actions)
            return losses.population_loss(returns, behaviour(actions[:, :num_states]), lambda_, diversity)

        policies, moments = adam.step(state.policies, state.policy_moments, jax.grad(loss)(state.policies), scale)
        return state._replace(
            policies=policies,
            policy_moments=moments,
            target_policies=towards(state.target_policies, policies, target_rate),
            target_critics=towards(state.target_critics, state.critics, target_rate),
        )

    def draw_noise(generator: np.random.Generator, shape: tuple[int, int]) -> Float[np.ndarray, "k n act"]:
        noise: np.ndarray = exploration_noise * generator.standard_normal((*shape, num_actions), np.float32)
        return noise

    def explore(actions: Float[np.ndarray, "n act"], noise: Float[np.ndarray, "n act"]) -> Float[np.ndarray, "n act"]:
        chosen: np.ndarray = np.clip(actions + noise, -1.0, 1.0)
        return chosen

    def behaviours(policies: Layers, states: Float[Array, "s obs"]) -> Float[Array, "M l"]:
        actions: Array = jax.vmap(network.apply_layers, in_axes=(0, None))(policies, states)
        rows: Array = behaviour(actions).reshape(M, -1)
        return rows

    def agents(state: State) -> Agents:
        params = network.ravel(jax.tree.map(np.asarray, state.policies))
        shift = np.zeros((M, num_observed), np.float32)
        return Agents(params, shift, shift + 1)

    shared_count = Replay(0, None)  # type: ignore[arg-type]  # axes: each seed has its rows, all share one count
    # Only the part of the state that a function reads is passed on, because passing the rest costs time in every step.
    act_by_seed, greedy_by_seed = jax.jit(jax.vmap(act)), jax.jit(network.apply_layers)
    add_by_seed = jax.jit(jax.vmap(add, in_axes=(shared_count, 0), out_axes=shared_count), donate_argnums=0)
    return Learner(
        policy=policy,
        row_size=row_size,
        capacity=-(-buffer_size // num_new) * num_new,
        steps_per_update=num_new // per_step,
        init=jax.jit(init),
        no_statistics=lambda seeds: Sums(jnp.zeros((seeds, 2, batch_size)), jnp.zeros((seeds, batch_size))),
        draw_noise=draw_noise,
        act=lambda state, step: act_by_seed(state.policies, step),
        explore=explore,
        add=lambda state, memory, steps: (state, add_by_seed(memory, steps)),
        update=jax.jit(
            jax.vmap(update, in_axes=(0, shared_count, 0, 0, 0), out_axes=(0, shared_count, 0)),
            donate_argnums=(0, 1, 2),
            compiler_options=side_by_side,
        ),
        greedy=lambda state, obs: greedy_by_seed(state.policies, obs),
        behaviours=lambda state, states: behaviours(state.policies, states),
        agents=agents,
        finite=_finite,
        num_updates=lambda state: int(state.num_updates),
        metrics=_metrics,
        started_from=started_from,
    )


def _finite(state: State, sums: Sums) -> dict[str, Bool[np.ndarray, "seeds k"]]:
    return {
        "parameters of member": all_finite(state.policies),
        "parameters of critic": all_finite(state.critics),
        "loss of critic": np.isfinite(np.asarray(sums.squared_errors)).all(axis=-1),
    }


def _metrics(sums: Sums, num_updates: int) -> dict[str, float]:
    # In double precision, sums of numbers near the largest float32 do not overflow.
    return {
        "critic_loss": float(np.asarray(sums.squared_errors, np.float64).mean(axis=-1).sum()) / num_updates,
        "value": float(np.asarray(sums.values, np.float64).mean()) / num_updates,
    }
