"""XQC (Palenicek et al. 2025) for M members: a soft actor-critic whose critics are well conditioned.

Critics have batch normalisation, weights of unit norm, and distributions of values that are learned by cross-entropy.
Members share both critics up to the last layer. There each member has a head of its own, which learns the values of
that member's policy from the transitions that this member has collected. So members with different behaviours keep
theirs, and an update costs hardly more than that of a single agent.

Deviations from XQC: policies are plain networks behind the running moments of all observations, instead of networks
with batch normalisation. Rewards are divided as in SimbaV2 (Lee et al. 2025), so that no observed return leaves the
range of the atoms.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from dvdrl import niches
from dvdrl.niches import Guidance
from dvdrl.off_policy import adam, batch_norm, categorical, losses, replay
from dvdrl.off_policy.diversity import Diversity
from dvdrl.off_policy.parameters import Tree, all_finite, on_both, towards
from dvdrl.off_policy.record import Guided, Learner, Step
from dvdrl.off_policy.replay import Replay
from dvdrl.policies import MLP, Agents, Layers, Moments, Policy
from dvdrl.policies import filter as moments_of

Scalar = Float[Array, ""]

_STATISTICS_RATE = 0.01
"""How far the running moments of critics move towards those of a batch, as in XQC; at first, they are plain means."""
_FIRST_TEMPERATURE = 0.01
_LARGEST_VALUE_AWAY = categorical.LARGEST / 2
"""Of a member that goes away, on the scale of the atoms: once it is far away, for ever."""
_RENEWAL = 1
"""Folded into the key of an update's random numbers, for those with which members begin anew."""
_LEAST_LOG_DEVIATION, _LARGEST_LOG_DEVIATION = -10.0, 2.0


class Rewards(NamedTuple):
    """By what rewards are divided, so that values stay within the range of the atoms."""

    running: Float[Array, "n"]
    """The discounted sum of rewards in the present episode of each simulation."""
    moments: Moments
    """Of all these sums so far."""
    largest: Scalar
    """The largest magnitude of these sums so far."""


class State(NamedTuple):
    """Everything that changes in training, except the replay buffer. Each array has a leading axis of seeds."""

    key: PRNGKeyArray
    num_updates: Int[Array, ""]
    policies: Layers
    """The policies of the M members; each array has an axis M in front, or of 1 if all members share it. They give the
    mean and the logarithm of the deviation of each action before its tanh."""
    policy_moments: adam.Moments[Layers]
    log_temperatures: Float[Array, "M"]
    temperature_moments: adam.Moments[Array]
    critics: batch_norm.Parameters
    """Both critics; each array has an axis of 2 in front."""
    target_critics: batch_norm.Parameters
    critic_moments: adam.Moments[batch_norm.Parameters]
    statistics: batch_norm.Statistics
    """What both critics normalise with when policies learn."""
    observations: Moments
    """Of all observations so far."""
    rewards: Rewards
    born: Int[Array, "M"]
    """Steps that each member had made when its present life began. It learns from later ones only."""
    guidance: Guidance
    """What counts as reward for each member."""


class Sums(NamedTuple):
    """Sums over updates. Each array has a leading axis of seeds."""

    losses: Float[Array, "2 n"]
    """Cross-entropies of both critics."""
    values: Float[Array, "n"]
    """Values given by the first critic, in units of the reward."""
    temperatures: Float[Array, "M"]


def make_network(policy: MLP) -> MLP:
    """The network that is trained: it also gives the logarithms of deviations, and no tanh."""
    return MLP((*policy.sizes[:-1], 2 * policy.sizes[-1]), policy.activation, "none", output_bias=True)


def xqc(
    policy: Policy,
    *,
    population: int,
    simulations: int = 1,
    diversity: Diversity,
    critic_hidden: tuple[int, ...] = (256, 256),
    shared_trunk: bool = False,
    learning_rate: float = 3e-4,
    batch_size: int = 256,
    buffer_size: int = 1_000_000,
    updates_per_step: int = 1,
    discount: float = 0.99,
    target_rate: float = 0.005,
    policy_delay: int = 3,
    num_states: int | None = None,
) -> Learner:
    """XQC on M members. `dvdrl.runs.options` explains each option.

    `diversity` scores the members' behaviours on `num_states` states of a batch.
    """
    M, num_observed, num_actions = population, policy.num_observed, policy.head.num_outputs
    network, row_size = make_network(policy.network), replay.row_size(num_observed, num_actions)
    away = _LARGEST_VALUE_AWAY * (1.0 - discount)
    rows_per_member = -(-batch_size // M)
    num_rows = rows_per_member * M  # every member has the same part of a batch
    # The last update of a period of policy_delay updates includes the policies.
    per_step = simulations * M
    num_steps = next(n for n in count(1) if n * per_step * updates_per_step % policy_delay == 0)
    num_updates = num_steps * per_step * updates_per_step

    def init(key: PRNGKeyArray) -> State:
        key_policies, key_critics, key_run = jax.random.split(key, 3)
        *hidden, last = network.unravel(jax.vmap(network.init_uniform)(jax.random.split(key_policies, M)))
        policies = with_trunk(hidden, last)
        critics = jax.vmap(
            lambda key: batch_norm.init(key, num_observed + num_actions, critic_hidden, categorical.NUM_ATOMS, M)
        )(jax.random.split(key_critics, 2))
        log_temperatures = jnp.full(M, np.log(_FIRST_TEMPERATURE), jnp.float32)
        return State(
            key=key_run,
            num_updates=jnp.zeros((), jnp.int32),
            policies=policies,
            policy_moments=adam.no_moments(policies),
            log_temperatures=log_temperatures,
            temperature_moments=adam.no_moments(log_temperatures),
            critics=critics,
            target_critics=critics,
            critic_moments=adam.no_moments(critics),
            statistics=batch_norm.no_statistics(critics),
            observations=moments_of.empty(num_observed),
            rewards=Rewards(jnp.zeros(per_step), moments_of.empty(1), jnp.zeros(())),
            born=jnp.zeros(M, jnp.int32),
            guidance=Guidance(jnp.zeros(M, jnp.int32), *jnp.zeros((2, M, num_observed))),
        )

    def with_trunk(hidden: Layers, last: tuple[Array, Array | None]) -> Layers:
        """Policies of these hidden layers, of which all members share the first member's, and these last layers."""
        return [*(jax.tree.map(lambda leaf: leaf[:1], hidden) if shared_trunk else hidden), last]

    def guided(state: State, asked: Guided) -> State:
        """Whoever begins anew gets a policy and heads like those of a new run. The shared layers stay as they are.

        Its temperature is the lowest in the population. Rewards are divided by much more than at the start of a run, so
        with a first temperature it would long do nothing but explore.
        """
        new = init(jax.random.fold_in(jax.random.fold_in(state.key, state.num_updates), _RENEWAL))

        def renewed(old: Tree, new: Tree, axis: int = 0) -> Tree:
            def choose(old: Array, new: Array) -> Array:
                if old.shape[axis] != M:  # members share it
                    return old
                members = asked.renewed.reshape(-1, *(1,) * (old.ndim - axis - 1))
                return jnp.where(members[(None,) * axis], new, old)

            chosen: Tree = jax.tree.map(choose, old, new)
            return chosen

        def with_heads(old: batch_norm.Parameters, new: batch_norm.Parameters) -> batch_norm.Parameters:
            return old._replace(heads=renewed(old.heads, new.heads, axis=1))

        return state._replace(
            policies=renewed(state.policies, new.policies),
            policy_moments=renewed(state.policy_moments, new.policy_moments),
            log_temperatures=jnp.where(asked.renewed, jnp.min(state.log_temperatures), state.log_temperatures),
            temperature_moments=renewed(state.temperature_moments, new.temperature_moments),
            critics=with_heads(state.critics, new.critics),
            target_critics=with_heads(state.target_critics, new.target_critics),
            critic_moments=adam.Moments(*map(with_heads, state.critic_moments, new.critic_moments)),
            born=jnp.where(asked.renewed, asked.num_steps, state.born),
            guidance=asked.guidance,
        )

    def started_from(state: State, given: Agents) -> State:
        """With these means of actions. Deviations begin as always."""
        if (given.shift != given.shift[:1]).any() or (given.scale != given.scale[:1]).any():
            raise ValueError("these policies filter observations differently, and XQC's members have one filter")
        *hidden, means = policy.network.unravel(jnp.asarray(given.params))
        last = jax.tree.map(lambda old, new: old.at[..., :num_actions].set(new), state.policies[-1], means)
        if shared_trunk and any((leaf != leaf[:1]).any() for leaf in jax.tree.leaves(hidden)):
            raise ValueError(
                "these policies have different hidden layers, and members with a shared trunk have the same"
            )
        seen = moments_of.as_of(given.shift[0], given.scale[0], moments_of.BORROWED)
        return state._replace(policies=with_trunk(hidden, last), observations=seen)

    def outputs(policies: Layers, seen: Moments, obs: Float[Array, "M k obs"]) -> tuple[Array, Array]:
        """The mean and the logarithm of the deviation of each member's actions before the tanh, in its own states."""
        shift, scale = moments_of.affine(seen)
        *hidden, last = policies
        # One product for all members, where they share a layer.
        if shared_trunk:
            hidden = jax.tree.map(lambda leaf: leaf[0], hidden)

        def of_member(hidden: Layers, last: Any, x: Array) -> Array:
            both: Array = network.apply_layers([*hidden, last], x)
            return both

        x = (obs - shift[None, None]) * scale[None, None]
        both = jax.vmap(of_member, in_axes=(None if shared_trunk else 0, 0, 0))(hidden, last, x)
        mean, log_deviation = jnp.split(both, 2, axis=-1)
        return mean, jnp.clip(log_deviation, _LEAST_LOG_DEVIATION, _LARGEST_LOG_DEVIATION)

    def sampled(
        policies: Layers, seen: Moments, obs: Float[Array, "M k obs"], noise: Float[Array, "M k act"]
    ) -> tuple[Float[Array, "M k act"], Float[Array, "M k"]]:
        """Random actions of each member, and the logarithms of their densities."""
        mean, log_deviation = outputs(policies, seen, obs)
        before = mean + jnp.exp(log_deviation) * noise
        # log(1 - tanh(x)^2), without cancellation
        log_slope = 2.0 * (jnp.log(2.0) - before - jax.nn.softplus(-2.0 * before))
        density = -0.5 * jnp.square(noise) - log_deviation - 0.5 * jnp.log(2.0 * jnp.pi) - log_slope
        return jnp.tanh(before), jnp.sum(density, axis=-1)

    def act(policies: Layers, seen: Moments, step: Step) -> Float[Array, "n outputs"]:
        by_member = step[:, -num_observed:].reshape(simulations, M, num_observed).swapaxes(0, 1)
        both = jnp.concatenate(outputs(policies, seen, by_member), axis=-1)
        return both.swapaxes(0, 1).reshape(per_step, -1)

    def add(state: State, memory: Replay, steps: Sequence[Step]) -> tuple[State, Replay]:
        new = jnp.concatenate([step[:, :row_size] for step in steps])
        rewards = state.rewards
        for step in steps:
            reward, ended = replay.unpack(step[:, :row_size], num_observed).reward, step[:, row_size]
            rewards = _noted(rewards, reward, ended, discount)
        observations = moments_of.merge(state.observations, _moments(new[:, :num_observed]))
        return state._replace(observations=observations, rewards=rewards), replay.add(memory, new)

    def update(
        state: State, memory: Replay, sums: Sums, steps: Sequence[Step], lambda_: Float[Array, "M"]
    ) -> tuple[State, Replay, Sums]:
        state, memory = add(state, memory, steps)
        seen, reward_scale = state.observations, _reward_scale(state.rewards)
        # All random numbers of the call are drawn at once, outside the loop, and so are Adam's scalars.
        key_rows, key_next, key_now = jax.random.split(jax.random.fold_in(state.key, state.num_updates), 3)
        indices = replay.sample_since(key_rows, memory, (num_updates, M, rows_per_member), state.born)
        noise = jax.random.normal(key_next, (num_updates, M, rows_per_member, num_actions))
        scales = adam.scales(learning_rate, state.num_updates + jnp.arange(1, num_updates + 1))
        rates = jnp.maximum(_STATISTICS_RATE, 1.0 / (state.num_updates + jnp.arange(1.0, num_updates + 1)))
        periods = num_updates // policy_delay
        policy_noise = jax.random.normal(key_now, (periods, M, rows_per_member, num_actions))
        policy_scales = adam.scales(learning_rate, state.num_updates // policy_delay + jnp.arange(1, periods + 1))
        draws = jax.tree.map(lambda x: x.reshape(-1, policy_delay, *x.shape[1:]), (indices, noise, scales, rates))

        def critics_once(carry: tuple[State, Sums], given: Any) -> tuple[tuple[State, Sums], Array]:
            state, sums = carry
            index, noise, scale, rate = given
            batch = replay.unpack(memory.rows[index], num_observed)
            reward = guided_reward(state.guidance, batch, away * reward_scale)
            batch = batch._replace(reward=reward / reward_scale)
            state, loss, values = update_critics(state, batch, seen, noise, scale, rate)
            new = Sums(loss, values * reward_scale, jnp.exp(state.log_temperatures))
            return (state, jax.tree.map(jnp.add, sums, new)), batch.obs

        def period(carry: tuple[State, Sums], given: Any) -> tuple[tuple[State, Sums], None]:
            draws, policy_noise, policy_scale = given
            (state, sums), obs = jax.lax.scan(critics_once, carry, draws)
            return (update_policies(state, obs[-1], seen, lambda_, policy_noise, policy_scale), sums), None

        (state, sums), _ = jax.lax.scan(period, (state, sums), (draws, policy_noise, policy_scales))
        return state._replace(num_updates=state.num_updates + num_updates), memory, sums

    def update_critics(
        state: State,
        batch: replay.Transitions,
        seen: Moments,
        noise: Float[Array, "M k act"],
        scale: Float[Array, "2"],
        rate: Scalar,
    ) -> tuple[State, Float[Array, "2 n"], Float[Array, "n"]]:
        """One step of both critics. Each array of the batch has axes (M, k) in front: k rows for each head."""
        next_action, log_density = sampled(state.policies, seen, batch.next_obs, noise)
        now = jnp.concatenate([batch.obs, batch.action], axis=-1).reshape(num_rows, -1)
        later = jnp.concatenate([batch.next_obs, next_action], axis=-1).reshape(num_rows, -1)
        # One pass over both, so that they are normalised with the same moments (CrossQ, Bhatt et al. 2024).
        inputs = jnp.concatenate([now, later])

        def of_next(params: batch_norm.Parameters) -> Float[Array, "M k a"]:
            return batch_norm.outputs(params, batch_norm.training_features(params, inputs)[0][num_rows:])

        distributions = jax.nn.softmax(on_both(of_next)(state.target_critics))
        first, second = distributions @ categorical.atoms()
        probabilities = jnp.where((first <= second)[..., None], distributions[0], distributions[1])
        bonus = jnp.exp(state.log_temperatures)[:, None] * log_density
        factor = discount * (1.0 - batch.terminated)
        target = categorical.moved(probabilities, factor, batch.reward - factor * bonus)

        def loss(params: batch_norm.Parameters) -> tuple[Scalar, Any]:
            features, statistics = batch_norm.training_features(params, inputs)
            predicted = batch_norm.outputs(params, features[:num_rows])
            each = categorical.cross_entropy(predicted, target)
            return jnp.mean(each), (each.reshape(-1), predicted, statistics)

        gradient, (each, predicted, statistics) = on_both(jax.grad(loss, has_aux=True))(state.critics)
        critics, moments = adam.step(state.critics, state.critic_moments, gradient, scale)
        critics = jax.vmap(batch_norm.projected)(critics)
        state = state._replace(
            critics=critics,
            critic_moments=moments,
            target_critics=towards(state.target_critics, critics, target_rate),
            statistics=towards(state.statistics, statistics, rate),
        )
        return state, each, categorical.means(predicted[0]).reshape(-1)

    def update_policies(
        state: State,
        obs: Float[Array, "M k obs"],
        seen: Moments,
        lambda_: Float[Array, "M"],
        noise: Float[Array, "M k act"],
        scale: Float[Array, "2"],
    ) -> State:
        """One step of all members and their temperatures, each on its rows and through its heads."""
        temperatures = jnp.exp(state.log_temperatures)
        states = obs.reshape(-1, num_observed)[:num_states]
        everywhere = jnp.broadcast_to(states, (M, *states.shape))

        def values(critic: tuple[batch_norm.Parameters, batch_norm.Statistics], inputs: Array) -> Array:
            params, statistics = critic
            return categorical.means(batch_norm.outputs(params, batch_norm.features(params, statistics, inputs)))

        def loss(layers: Layers) -> tuple[Scalar, Float[Array, "M"]]:
            actions, log_density = sampled(layers, seen, obs, noise)
            inputs = jnp.concatenate([obs, actions], axis=-1).reshape(num_rows, -1)
            least = jnp.min(on_both(lambda critic: values(critic, inputs))((state.critics, state.statistics)), axis=0)
            returns = jnp.mean(least - temperatures[:, None] * log_density, axis=-1)
            embedded = policy.head.behaviour(jnp.tanh(outputs(layers, seen, everywhere)[0]))
            return losses.population_loss(returns, embedded, lambda_, diversity), -jnp.mean(log_density, axis=-1)

        gradient, entropies = jax.grad(loss, has_aux=True)(state.policies)
        policies, moments = adam.step(state.policies, state.policy_moments, gradient, scale)
        # The derivative of temperature * (entropy - target) by the logarithm of the temperature; target: -actions / 2.
        slope = temperatures * (entropies + 0.5 * num_actions)
        log_temperatures, of_temperatures = adam.step(state.log_temperatures, state.temperature_moments, slope, scale)
        return state._replace(
            policies=policies,
            policy_moments=moments,
            log_temperatures=log_temperatures,
            temperature_moments=of_temperatures,
        )

    def draw_noise(generator: np.random.Generator, shape: tuple[int, int]) -> Float[np.ndarray, "k n act"]:
        noise: np.ndarray = generator.standard_normal((*shape, num_actions), np.float32)
        return noise

    def explore(both: Float[np.ndarray, "n outputs"], noise: Float[np.ndarray, "n act"]) -> Float[np.ndarray, "n act"]:
        mean, log_deviation = np.split(both, 2, axis=1)
        chosen: np.ndarray = np.tanh(mean + np.exp(log_deviation) * noise)
        return chosen

    def greedy(policies: Layers, seen: Moments, obs: Float[Array, "M k obs"]) -> Float[Array, "M k act"]:
        return jnp.tanh(outputs(policies, seen, obs)[0])

    def behaviours(state: State, states: Float[Array, "s obs"]) -> Float[Array, "M l"]:
        everywhere = jnp.broadcast_to(states, (M, *states.shape))
        rows: Array = policy.head.behaviour(greedy(state.policies, state.observations, everywhere)).reshape(M, -1)
        return rows

    def agents(state: State) -> Agents:
        *hidden, (weights, bias) = jax.tree.map(
            lambda leaf: np.broadcast_to(leaf, (M, *leaf.shape[1:])), state.policies
        )
        params = policy.network.ravel([*hidden, (weights[..., :num_actions], bias[..., :num_actions])])
        affine = (np.tile(np.asarray(each), (M, 1)) for each in moments_of.affine(state.observations))
        return Agents(params, *affine)

    def update_by_seed(
        state: State, memory: Replay, sums: Sums, steps: Sequence[Step], lambda_: Float[Array, "seeds M"]
    ) -> tuple[State, Replay, Sums]:
        if len(lambda_) > 1:
            mapped = jax.vmap(update, in_axes=(0, shared_count, 0, 0, 0), out_axes=(0, shared_count, 0))
            after: tuple[State, Replay, Sums] = mapped(state, memory, sums, steps, lambda_)
            return after
        # Without the axis: on a CPU, a batch of one matrix product takes twice as long as the product.
        given = state, memory._replace(num_added=memory.num_added[None]), sums, steps, lambda_
        state, memory, sums = jax.tree.map(lambda leaf: leaf[None], update(*jax.tree.map(lambda leaf: leaf[0], given)))
        return state, memory._replace(num_added=memory.num_added[0]), sums

    # All seeds share the count of a replay buffer.
    shared_count = Replay(0, None)  # type: ignore[arg-type]
    act_by_seed, greedy_by_seed = jax.jit(jax.vmap(act)), jax.jit(jax.vmap(greedy))
    return Learner(
        policy=policy,
        row_size=row_size,
        capacity=-(-buffer_size // (num_steps * per_step)) * num_steps * per_step,
        steps_per_update=num_steps,
        init=jax.jit(init),
        no_statistics=lambda seeds: Sums(
            jnp.zeros((seeds, 2, num_rows)), jnp.zeros((seeds, num_rows)), jnp.zeros((seeds, M))
        ),
        draw_noise=draw_noise,
        act=lambda state, step: act_by_seed(state.policies, state.observations, step),
        explore=explore,
        add=jax.jit(
            jax.vmap(add, in_axes=(0, shared_count, 0), out_axes=(0, shared_count)),
            donate_argnums=(0, 1),
        ),
        update=jax.jit(update_by_seed, donate_argnums=(0, 1, 2)),
        greedy=lambda state, obs: greedy_by_seed(state.policies, state.observations, obs),
        behaviours=behaviours,
        agents=agents,
        finite=_finite,
        num_updates=lambda state: int(state.num_updates),
        metrics=_metrics,
        guided=jax.jit(guided),
        started_from=started_from,
    )


def _moments(obs: Float[Array, "n obs"]) -> Moments:
    mean = jnp.mean(obs, axis=0)
    return Moments(jnp.asarray(float(len(obs))), mean, jnp.sum(jnp.square(obs - mean[None]), axis=0))


def guided_reward(guidance: Guidance, batch: replay.Transitions, away: Float[Array, ""]) -> Float[Array, "M k"]:
    """What each member is rewarded for: its return, being away, or its return outside the niche of a fitter member.

    The mean of what is linear in observations is the same function of their mean, which is a member's behaviour. So
    following such a reward moves the behaviour along the way that the niches ask for. `away` is the most for that.
    """
    along = jnp.einsum("mko,mo->mk", batch.next_obs - guidance.origin[:, None], guidance.direction)
    outside = jnp.where(batch.reward > 0, jnp.clip(along, 0.0, 1.0) * batch.reward, batch.reward)
    stage = guidance.stage[:, None]
    return jnp.select(
        [stage == niches.AWAY, stage == niches.OUTSIDE], [away * jnp.clip(along, -1.0, 1.0), outside], batch.reward
    )


def _noted(rewards: Rewards, reward: Float[Array, "n"], ended: Float[Array, "n"], discount: float) -> Rewards:
    """With the rewards of one step of all simulations."""
    running = discount * rewards.running + reward
    return Rewards(
        running=running * (1.0 - ended),
        moments=moments_of.merge(rewards.moments, _moments(running[:, None])),
        largest=jnp.maximum(rewards.largest, jnp.max(jnp.abs(running))),
    )


def _reward_scale(rewards: Rewards) -> Scalar:
    """The deviation of the discounted sums of rewards; more if one of them would otherwise leave the range of atoms."""
    deviation = jnp.sqrt(rewards.moments.sum_squares[0] / jnp.maximum(rewards.moments.num, 1.0))
    scale = jnp.maximum(deviation, rewards.largest / categorical.LARGEST)
    return jnp.where(scale > 0, scale, 1.0)


def _finite(state: State, sums: Sums) -> dict[str, Bool[np.ndarray, "seeds k"]]:
    return {
        "parameters of member": all_finite((state.policies, state.log_temperatures)),
        "parameters of critic": all_finite(state.critics),
        "loss of critic": np.isfinite(np.asarray(sums.losses)).all(axis=-1),
    }


def _metrics(sums: Sums, num_updates: int) -> dict[str, float]:
    return {
        "critic_loss": float(np.asarray(sums.losses, np.float64).mean(axis=-1).sum()) / num_updates,
        "value": float(np.asarray(sums.values, np.float64).mean()) / num_updates,
        "temperature": float(np.asarray(sums.temperatures, np.float64).mean()) / num_updates,
    }
