"""TD3 for M members with one shared twin critic: the one implementation behind TD3, E-TD3 and DvD-TD3 (section 4.4).

TD3 is M = 1, E-TD3 is lambda = 0, and in DvD-TD3 a controller chooses lambda from round to round. All of them run the
same compiled program, so that they are equal to the bit where they should be. The functions are written for one run and
mapped over an axis of independent runs, `seeds`, whose replay buffers fill in step.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float, Int, PRNGKeyArray

from dvdrl.diversity import Kernel, Normalization, gram, measure, normalize
from dvdrl.policies import MLP, Layers
from dvdrl.td3 import losses, replay
from dvdrl.td3.replay import Bootstrapping, Replay

Scalar = Float[Array, ""]
Step = Float[Any, "n row_and_obs"]
"""What one step of all simulations brings, in one array: the packed transition, and what to act on next.

Simulation i of the n = simulations x M is member i mod M's."""


class Moments(NamedTuple):
    """What Adam knows of gradients: running means of them and of their squares."""

    first: Layers
    second: Layers


class Learner(NamedTuple):
    """Everything that changes in training but the replay buffer; a leading axis of seeds before each."""

    key: PRNGKeyArray
    """The key of the run, of which each call of `update` draws its own."""
    num_updates: Int[Array, ""]
    policies: Layers
    """Of the M members, an axis M before each array. By layer and not flat: slices of a flat vector are copied."""
    target_policies: Layers
    policy_moments: Moments
    critics: Layers
    """Both, an axis of 2 before each array."""
    target_critics: Layers
    critic_moments: Moments


class Sums(NamedTuple):
    """Over updates, for each place of a batch: adding is done on the way, while a mean would be two kernels each.

    A leading axis of seeds before each.
    """

    squared_errors: Float[Array, "2 n"]
    """Of both critics; their means over the batch are the critics' losses."""
    values: Float[Array, "n"]
    """By the first critic."""


class Algorithm(NamedTuple):
    """The pure functions, compiled. Everything has a leading axis of seeds but for the count in a Replay."""

    init: Callable[[PRNGKeyArray], Learner]
    """Of one seed, without the axis."""
    no_sums: Callable[[int], Sums]
    """For so many seeds."""
    empty: Callable[[int], Replay]
    """For so many seeds."""
    act: Callable[[Layers, Step], Float[Array, "seeds n act"]]
    """The members' actions in all their simulations, without noise."""
    add: Callable[[Replay, Sequence[Step]], Replay]
    """Store `steps_per_update` steps without learning. The buffer that is passed is given up."""
    update: Callable[[Learner, Replay, Sums, Sequence[Step], Float[Any, "seeds M"]], tuple[Learner, Replay, Sums]]
    """Store as many steps and make an update for each transition. The first three arguments are given up."""
    assess: Callable[[Layers, Float[Array, "s obs"]], dict[str, Array]]
    """How diverse the members of one seed, without the axis, are on the given states."""
    steps_per_update: int
    """After so many steps `add` or `update` is called, so that the updates are whole periods of `policy_delay`."""
    capacity: int
    """Of the replay buffer."""


def make_policy(num_observed: int, num_actions: int, hidden: tuple[int, ...]) -> MLP:
    """TD3's policy: ReLU hidden layers, tanh output."""
    return MLP((num_observed, *hidden, num_actions), activation="relu", output_bias=True)


def make_critic(num_observed: int, num_actions: int, hidden: tuple[int, ...]) -> MLP:
    """One of TD3's two critics: a value for an observation and an action side by side."""
    return MLP((num_observed + num_actions, *hidden, 1), activation="relu", output_activation="none", output_bias=True)


def td3(
    policy: MLP,
    *,
    population: int,
    simulations: int = 1,
    kernel: Kernel | None,
    hidden: tuple[int, ...] = (256, 256),
    learning_rate: float = 3e-4,
    batch_size: int = 256,
    buffer_size: int = 1_000_000,
    discount: float = 0.99,
    target_rate: float = 0.005,
    target_noise: float = 0.2,
    target_noise_clip: float = 0.5,
    policy_delay: int = 2,
    bootstrapping: Bootstrapping = "collector",
    num_states: int | None = None,
    normalization: Normalization = "none",
    shrinkage: float = 0.01,
    batched_critics: bool | None = None,
    updates_at_least: int = 1,
) -> Algorithm:
    """TD3 on M members; see `dvdrl.runs.options` for what most options mean.

    batched_critics: evaluate both critics in one matrix product. Default: on accelerators, where it takes less to start
    one than two. For measurements: without a kernel there is no diversity, and `update` makes `updates_at_least`.
    """
    M, num_observed, num_actions = population, policy.sizes[0], policy.sizes[-1]
    critic = make_critic(num_observed, num_actions, hidden)
    # One update a transition, in whole periods of policy_delay updates of which the last is of the policies too.
    per_step = simulations * M
    num_new = next(n for n in count(per_step, per_step) if n % policy_delay == 0 and n >= updates_at_least)
    steps_per_update = num_new // per_step
    capacity = -(-buffer_size // num_new) * num_new
    rows_per_member = -(-batch_size // M)
    batched = jax.default_backend() != "cpu" if batched_critics is None else batched_critics
    # The kernels of a period are a CUDA graph, whose order is by default that of the program. This lets those run side
    # by side that do not wait for each other, as diversity and values, or the steps of Adam by layer.
    side_by_side = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"} if jax.default_backend() == "gpu" else None

    def init(key: PRNGKeyArray) -> Learner:
        key_policies, key_critics, key_run = jax.random.split(key, 3)
        policies = policy.unravel(jax.vmap(policy.init_uniform)(jax.random.split(key_policies, M)))
        critics = critic.unravel(jax.vmap(critic.init_uniform)(jax.random.split(key_critics, 2)))
        return Learner(
            key=key_run,
            num_updates=jnp.zeros((), jnp.int32),
            policies=policies,
            target_policies=policies,
            policy_moments=_no_moments(policies),
            critics=critics,
            target_critics=critics,
            critic_moments=_no_moments(critics),
        )

    def act(policies: Layers, step: Step) -> Float[Array, "n act"]:
        by_member = step[:, -num_observed:].reshape(simulations, M, num_observed)
        actions: Array = jax.vmap(policy.apply_layers, in_axes=(0, 1), out_axes=1)(policies, by_member)
        return actions.reshape(per_step, num_actions)

    def add(memory: Replay, steps: Sequence[Step]) -> Replay:
        return replay.add(memory, jnp.concatenate([step[:, :-num_observed] for step in steps]))

    def update(
        learner: Learner, memory: Replay, sums: Sums, steps: Sequence[Step], lambda_: Float[Array, "M"]
    ) -> tuple[Learner, Replay, Sums]:
        memory = add(memory, steps)
        # All random numbers of the call at once, and outside of the loop.
        key_rows, key_noise = jax.random.split(jax.random.fold_in(learner.key, learner.num_updates))
        indices = replay.sample(key_rows, memory, (num_new, batch_size), M, bootstrapping)
        noise = target_noise * jax.random.normal(key_noise, (num_new, batch_size, num_actions))
        noise = jnp.clip(noise, -target_noise_clip, target_noise_clip)
        # Adam's scalars likewise: in the loop they would be six kernels of a number each.
        scales = _adam_scales(learning_rate, learner.num_updates + jnp.arange(1, num_new + 1))
        policy_scales = _adam_scales(
            learning_rate, learner.num_updates // policy_delay + jnp.arange(1, num_new // policy_delay + 1)
        )
        draws = jax.tree.map(lambda x: x.reshape(-1, policy_delay, *x.shape[1:]), (indices, noise, scales))

        def period(carry: tuple[Learner, Sums], given: Any) -> tuple[tuple[Learner, Sums], None]:
            learner, sums = carry
            draws, policy_scale = given
            for index, noise, scale in zip(*draws, strict=True):
                batch = replay.unpack(memory.rows[index], num_observed)
                learner, new = update_critics(learner, batch, noise, scale)
                sums = jax.tree.map(jnp.add, sums, new)
            return (update_policies(learner, batch.obs, lambda_, policy_scale), sums), None

        (learner, sums), _ = jax.lax.scan(period, (learner, sums), (draws, policy_scales))
        return learner._replace(num_updates=learner.num_updates + num_new), memory, sums

    def update_critics(
        learner: Learner, batch: replay.Transitions, noise: Float[Array, "n act"], scale: Float[Array, "2"]
    ) -> tuple[Learner, Sums]:
        """One step of both critics, towards the target of the member that each transition is for."""
        padded = jnp.pad(batch.next_obs, ((0, rows_per_member * M - batch_size), (0, 0)))
        by_member = padded.reshape(rows_per_member, M, num_observed)
        actions = jax.vmap(policy.apply_layers, in_axes=(0, 1), out_axes=1)(learner.target_policies, by_member)
        next_action = losses.smoothed(actions.reshape(-1, num_actions)[:batch_size], noise)
        next_values = on_both(lambda layers: losses.values(critic, layers, batch.next_obs, next_action))
        target = losses.bootstrapped(batch.reward, batch.terminated, discount, next_values(learner.target_critics))

        def loss(layers: Layers) -> tuple[Scalar, Float[Array, "n"]]:
            return losses.critic_loss(critic, layers, batch.obs, batch.action, target)

        gradient, q = on_both(jax.grad(loss, has_aux=True))(learner.critics)
        critics, moments = _adam(learner.critics, learner.critic_moments, gradient, scale)
        return learner._replace(critics=critics, critic_moments=moments), Sums(jnp.square(q - target[None]), q[0])

    def update_policies(
        learner: Learner, obs: Float[Array, "n obs"], lambda_: Float[Array, "M"], scale: Float[Array, "2"]
    ) -> Learner:
        """One step of all members on the same states, through the first critic; then all targets follow."""
        of_critic = jax.tree.map(lambda both: both[0], learner.critics)

        def loss(layers: Layers) -> Scalar:
            actions = jax.vmap(policy.apply_layers, in_axes=(0, None))(layers, obs)
            returns = losses.mean_values(critic, of_critic, obs, actions)
            if kernel is None:
                return -jnp.sum(returns)
            return losses.population_loss(returns, actions[:, :num_states], lambda_, kernel, normalization, shrinkage)

        policies, moments = _adam(learner.policies, learner.policy_moments, jax.grad(loss)(learner.policies), scale)
        return learner._replace(
            policies=policies,
            policy_moments=moments,
            target_policies=_towards(learner.target_policies, policies, target_rate),
            target_critics=_towards(learner.target_critics, learner.critics, target_rate),
        )

    def on_both(function: Callable[[Layers], Any]) -> Callable[[Layers], Any]:
        """The function of one critic, of both."""
        if batched:
            return jax.vmap(function)

        def apply(critics: Layers) -> Any:
            each = [function(jax.tree.map(lambda both, i=i: both[i], critics)) for i in range(2)]
            return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)

        return apply

    def assess(policies: Layers, states: Float[Array, "s obs"]) -> dict[str, Array]:
        actions = jax.vmap(policy.apply_layers, in_axes=(0, None))(policies, states)
        embeddings = normalize(actions.reshape(M, -1), normalization)
        assert kernel is not None
        K = gram(kernel, embeddings)
        return measure(K, embeddings)

    def empty(seeds: int) -> Replay:
        return replay.empty((seeds, capacity), replay.row_size(num_observed, num_actions))

    shared_count = Replay(0, None)  # type: ignore[arg-type]  # axes: each seed has rows, all have one count
    return Algorithm(
        init=jax.jit(init),
        no_sums=lambda seeds: Sums(jnp.zeros((seeds, 2, batch_size)), jnp.zeros((seeds, batch_size))),
        empty=empty,
        act=jax.jit(jax.vmap(act)),
        add=jax.jit(jax.vmap(add, in_axes=(shared_count, 0), out_axes=shared_count), donate_argnums=0),
        update=jax.jit(
            jax.vmap(update, in_axes=(0, shared_count, 0, 0, 0), out_axes=(0, shared_count, 0)),
            donate_argnums=(0, 1, 2),
            compiler_options=side_by_side,
        ),
        assess=jax.jit(assess),
        steps_per_update=steps_per_update,
        capacity=capacity,
    )


def _towards(target: Layers, source: Layers, rate: float) -> Layers:
    """Polyak averaging."""
    moved: Layers = jax.tree.map(lambda old, new: old + rate * (new - old), target, source)
    return moved


def _no_moments(params: Layers) -> Moments:
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Moments(zeros, zeros)


_DECAYS, _EPSILON = (0.9, 0.999), 1e-8
"""Adam's, as Kingma and Ba have them."""


def _adam_scales(learning_rate: float, step: Int[Array, "k"]) -> Float[Array, "k 2"]:
    """What the moments are multiplied by in steps number 1, 2, ...: bias correction, and the learning rate."""
    first, second = (-1.0 / jnp.expm1(step * jnp.log(decay)) for decay in _DECAYS)
    return jnp.stack([learning_rate * first, second], axis=-1)


def _adam(params: Layers, moments: Moments, gradient: Layers, scale: Float[Array, "2"]) -> tuple[Layers, Moments]:
    """A step of Adam. By hand, as optax computes the scales of a step within it."""
    # Where a gradient's product leaves it transposed, so would be all that is computed of it, and copied back.
    gradient = jax.tree.map(lambda g: with_layout_constraint(g, Layout(tuple(range(g.ndim)))), gradient)

    def running(decay: float, mean: Layers, new: Layers) -> Layers:
        mixed: Layers = jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, mean, new)
        return mixed

    first = running(_DECAYS[0], moments.first, gradient)
    second = running(_DECAYS[1], moments.second, jax.tree.map(jnp.square, gradient))
    moved: Layers = jax.tree.map(
        lambda x, m, v: x - scale[0] * m / (jnp.sqrt(scale[1] * v) + _EPSILON), params, first, second
    )
    return moved, Moments(first, second)
