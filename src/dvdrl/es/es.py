"""Evolution strategies for M members at once: the one implementation behind ES, NSR-ES, DvD-ES and niche-ES.

The first three differ only in the diversity score of perturbed members and in the controller of its weight lambda. In
niche-ES, a controller of niches scores perturbed members and decides which members begin anew. One iteration is

    rollouts = algorithm.ask(state)      # all its episodes: M unperturbed, then 2k for each updated member
    state, info = algorithm.tell(state, evaluate(rollouts))

The functions are already compiled. The state holds everything that changes. `ask` does not change the state, so an
interrupted iteration can be asked for again.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

from dvdrl.bandits import Controller, posterior
from dvdrl.diversity import (
    Kernel,
    Normalization,
    StateRule,
    gram,
    measure,
    normalize,
    select_states,
)
from dvdrl.es import estimator, niche
from dvdrl.es.behaviours import Behaviour, actions
from dvdrl.interfaces import Episodes, Rollouts
from dvdrl.niches import Known, Niches, Report, known
from dvdrl.policies import Agents, Moments, Policy
from dvdrl.policies import filter as observation_filter

StepRule = Literal["plain", "adam", "authors"]
Starts = Literal["same", "per-iteration", "per-rollout"]
Members = Literal["all", "one"]

Scalar = Float[Array, ""]

Diversity = Callable[[Float[Array, "M l"], Float[Array, "m n l"], Int[Array, "m"]], Float[Array, "m n"]]
"""(behaviours of all members, behaviours of perturbed members, indices of the latter) -> scores of the perturbed."""
Outcomes = tuple[Float[Array, "M n l"], Float[Array, "M n"]]
"""(behaviours, returns) of the perturbations of each member: what niches are judged by."""


class State(NamedTuple):
    """Everything that changes."""

    key: PRNGKeyArray
    """The key of the run. Each iteration derives its own keys from it."""
    iteration: Int[Array, ""]
    params: Float[Array, "M d"]
    optimizer: optax.OptState
    controller: Any
    moments: Moments
    """Moments of each member's observations, (M, ...)."""
    states: Float[Array, "s obs"]
    """The states on which behaviours are compared."""
    niches: Any
    """The state of the controller of niches; without leaves if there is none."""


class Info(NamedTuple):
    """What an iteration reports. It describes the members before the iteration's step."""

    lambda_: Scalar
    """The mean over the members, if each has a lambda of its own."""
    successes: Float[Array, "K"]
    failures: Float[Array, "K"]
    """The Beta parameters of each arm; empty if no bandit chooses lambda."""
    diversity: dict[str, Array]
    """The results of `dvdrl.diversity.measure`."""
    niches: Report | None
    """None if there is no controller of niches."""


class Algorithm(NamedTuple):
    """The pure functions."""

    init: Callable[[PRNGKeyArray], State]
    ask: Callable[[State], Rollouts]
    tell: Callable[[State, Episodes], tuple[State, Info]]
    members: Callable[[State], Agents]
    """The members as they are."""
    elites: Callable[[State], Known | None]
    """What niche-ES ends with; None if there is no controller of niches."""


def no_diversity(
    members: Float[Array, "M l"],  # noqa: ARG001
    perturbed: Float[Array, "m n l"],
    indices: Int[Array, "m"],  # noqa: ARG001
) -> Float[Array, "m n"]:
    """Give every perturbed member the same score, so that only reward counts: vanilla ES."""
    return jnp.zeros(perturbed.shape[:2])


def evolution_strategy(
    policy: Policy,
    *,
    population: int,
    sensings: int,
    sigma: float,
    learning_rate: float,
    kernel: Kernel,
    controller: Controller,
    diversity: Diversity = no_diversity,
    niches: Niches | None = None,
    behaviour: Behaviour = actions,
    members: Members = "all",
    step_rule: StepRule = "plain",
    orthogonal: bool = False,
    state_filter: bool = True,
    starts: Starts = "same",
    num_states: int = 20,
    state_pool: int = 100,
    state_rule: StateRule = "uniform",
    state_interval: int | None = 20,
    normalization: Normalization = "none",
) -> Algorithm:
    """ES on M members. `dvdrl.runs.options` explains each option.

    With `niches` it is niche-ES: the controller's scores replace those of reward and diversity. It must be made for as
    many members, and for as many coordinates as behaviours have. Where these depend on the states, `state_interval`
    must be None: states are then chosen once, in the first iteration.
    """
    if niches is not None and members != "all":
        raise ValueError(f"members: expected 'all', as niches judge all members in each iteration, got {members!r}")
    M, k = population, sensings
    num_updated = M if members == "all" else 1
    num_rollouts = M + num_updated * 2 * k
    parts = slice(M), slice(M, None)
    """The rollouts of the unperturbed members, and those of their perturbations."""
    pool_size = max(num_states, min(state_pool, num_rollouts))
    optimizer = _optimizer(step_rule, learning_rate)

    def init(key: PRNGKeyArray) -> State:
        key_params, key_run = jax.random.split(key)
        params = jax.vmap(policy.init)(jax.random.split(key_params, M))
        empty = observation_filter.empty(policy.num_observed)
        state = State(
            key=key_run,
            iteration=jnp.zeros((), jnp.int32),
            params=params,
            optimizer=jax.vmap(optimizer.init)(params),
            controller=controller.init(),
            moments=jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (M, *leaf.shape)), empty),
            states=jnp.zeros((num_states, policy.num_observed)),
            niches=(),
        )
        return state if niches is None else state._replace(niches=niches.init(_members(state)))

    def ask(state: State) -> Rollouts:
        agents, perturbed, _, updated = _population(state)
        everyone: Agents = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), agents, _flat(perturbed))
        keys = jax.random.split(_keys(state)["rollouts"], num_rollouts)
        member = jnp.concatenate([jnp.arange(M), jnp.repeat(updated, 2 * k)])
        return Rollouts(member, everyone, _starts(state), jax.random.key_data(keys))

    def tell(state: State, episodes: Episodes) -> tuple[State, Info]:
        # Two programs: the second is the same in every variant, so equal scores give bit-identical steps.
        episodes = episodes._replace(modes={})  # nothing here uses the modes
        scores, control, states, info, outcomes = assess(state, episodes)
        new = advance(state, episodes, scores)._replace(controller=control, states=states)
        if niches is None:
            return new, info
        new, report = renew(niches, state, new, outcomes)
        return new, info._replace(niches=report)

    @jax.jit
    def assess(
        state: State, episodes: Episodes
    ) -> tuple[Float[Array, "m 2k"], Any, Float[Array, "s obs"], Info, Outcomes | None]:
        """Choose lambda and the states, and score each perturbed member. Niches are also told the outcomes."""
        agents, perturbed, _, updated = _population(state)
        keys = _keys(state)
        # r_t = 1(R_{t+1} > R_t) is known one iteration later, after rollouts with the new parameters.
        control = controller.update(state.controller, episodes.returns[:M])
        control, lambda_ = controller.select(keys["controller"], control)
        states = jax.lax.cond(
            state.iteration == 0 if state_interval is None else state.iteration % state_interval == 0,
            lambda: _choose_states(keys["states"], episodes),
            lambda: state.states,
        )

        of_members, of_perturbed = (jax.tree.map(lambda leaf, part=part: leaf[part], episodes) for part in parts)
        seen = observation_filter.pool(episodes.moments, axis=0)
        seen = observation_filter.merge(observation_filter.pool(state.moments, axis=0), seen)
        # Metrics compare members by what is scored. Niches have units of their own, so there metrics compare actions.
        shown = behaviour if niches is None else actions
        behaviours = shown(policy, agents, states, of_members, seen)
        others = behaviour(policy, _flat(perturbed), states, of_perturbed, seen).reshape(num_updated, 2 * k, -1)
        returns = of_perturbed.returns.reshape(num_updated, 2 * k)
        outcomes = None
        if niches is None:
            rewards = jax.vmap(estimator.standardize)(returns)
            differences = jax.vmap(estimator.standardize)(diversity(behaviours, others, updated))
            # The bracket of equations "ours" and "nsres".
            weights = jnp.broadcast_to(lambda_, M)[updated, None]
            scores = (1.0 - weights) * rewards + weights * differences
        else:
            outcomes = others, returns
            scores = niches.score(state.niches, *outcomes)
        compared = normalize(behaviours, normalization)
        measured = measure(gram(kernel, compared), compared)
        info = Info(jnp.mean(lambda_), *posterior(control), measured, None)
        return scores, control, states, info, outcomes

    @jax.jit
    def advance(state: State, episodes: Episodes, scores: Float[Array, "m 2k"]) -> State:
        """Step along the gradient, and add the observations to the state filter."""
        _, _, g, updated = _population(state)
        ascent = jax.vmap(estimator.gradient, in_axes=(0, 0, None))(scores, g, sigma)
        step, optimizer_state = jax.vmap(optimizer.update)(ascent, _take(state.optimizer, updated))
        state = state._replace(
            iteration=state.iteration + 1,
            params=state.params.at[updated].add(step),
            optimizer=_put(state.optimizer, updated, optimizer_state),
        )
        if not state_filter:
            return state
        seen = jax.tree.map(lambda leaf: leaf[M:].reshape(num_updated, 2 * k, *leaf.shape[1:]), episodes.moments)
        moments = observation_filter.merge(_take(state.moments, updated), observation_filter.pool(seen, axis=1))
        return state._replace(moments=_put(state.moments, updated, moments))

    @functools.partial(jax.jit, static_argnums=0)
    def renew(niches: Niches, before: State, after: State, outcomes: Outcomes) -> tuple[State, Report]:
        """Judge the members as they were rolled out, before the step. Those that are renewed lose what they are now."""
        kept, report = niches.update(before.niches, *outcomes, _members(before))
        key = _keys(before)["members"]  # unused otherwise, as all members are updated
        current = after.params, after.optimizer, after.moments
        anew = niche.newborns(key, policy, optimizer, after.moments)

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(report.renewed.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

        params, optimizer_state, moments = jax.tree.map(choose, anew, current)
        return after._replace(params=params, optimizer=optimizer_state, moments=moments, niches=kept), report

    def elites(state: State) -> Known | None:
        return None if niches is None else known(niches, state.niches)

    def _keys(state: State) -> dict[str, PRNGKeyArray]:
        names = ("noise", "members", "rollouts", "controller", "states", "starts")
        return dict(
            zip(names, jax.random.split(jax.random.fold_in(state.key, state.iteration), len(names)), strict=True)
        )

    def _population(state: State) -> tuple[Agents, Agents, Float[Array, "m k d"], Int[Array, "m"]]:
        """Members (M, ..), perturbed members (m, 2k, ..), directions (m, k, d), and indices of the updated members."""
        keys = _keys(state)
        agents = _members(state)
        updated = jnp.arange(M) if members == "all" else jax.random.randint(keys["members"], (1,), 0, M)
        noise_keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(keys["noise"], updated)
        g = jax.vmap(lambda key: estimator.directions(key, k, policy.network.num_params, orthogonal=orthogonal))(
            noise_keys
        )
        params = jax.vmap(estimator.perturb, in_axes=(0, 0, None))(state.params[updated], g, sigma)
        repeated = (jnp.broadcast_to(leaf[updated, None], (num_updated, 2 * k, leaf.shape[1])) for leaf in agents[1:])
        return agents, Agents(params, *repeated), g, updated

    def _starts(state: State) -> UInt32[Array, "n"]:
        if starts == "per-rollout":
            return jax.random.bits(_keys(state)["starts"], (num_rollouts,))
        key = state.key if starts == "same" else _keys(state)["starts"]
        return jnp.broadcast_to(jax.random.bits(key), (num_rollouts,))

    def _choose_states(key: PRNGKeyArray, episodes: Episodes) -> Float[Array, "s obs"]:
        """States of the most recent iteration (section 4.3), from a pool that has one state from each of many rollouts.

        Each state of a rollout is equally likely to be its state in the pool. Longer rollouts are more likely to be in
        the pool. So all states are equally likely to be chosen if rollouts are equally long. Otherwise states of short
        rollouts are more likely, because a much longer rollout still contributes only one state.
        """
        key_pool, key_rule = jax.random.split(key)
        chance = episodes.lengths / jnp.sum(episodes.lengths)
        # Only small trials have fewer rollouts than states; some states then count twice.
        pool = jax.random.choice(key_pool, num_rollouts, (pool_size,), num_rollouts < pool_size, chance)
        return select_states(key_rule, episodes.states[pool], num_states, state_rule)

    return Algorithm(jax.jit(init), jax.jit(ask), tell, jax.jit(_members), elites)


def _members(state: State) -> Agents:
    """As they are."""
    return Agents(state.params, *observation_filter.affine(state.moments))


def _optimizer(rule: StepRule, learning_rate: float) -> optax.GradientTransformation:
    """The rule that turns a member's ascent direction into its step."""
    if rule == "plain":  # equation "simple-est"
        return optax.scale(learning_rate)
    if rule == "adam":
        return optax.chain(optax.scale_by_adam(), optax.scale(learning_rate))
    return optax.chain(_sign_of_adam(), optax.scale(learning_rate))


def _sign_of_adam(decay_1: float = 0.9, decay_2: float = 0.999) -> optax.GradientTransformation:
    """The step of the authors' code: Adam whose moments, but not its counter t, are reset to 0 before every step.

    Adam then reduces to sign(g) times (1 - b1) / sqrt(1 - b2) * sqrt(1 - b2^t) / (1 - b1^t). This factor is 1 at
    first, 0.5 around t = 12, and 3.16 in the end. The authors also rescale the gradient, but that keeps its sign.
    """

    def update(ascent: Array, t: Array, params: None = None) -> tuple[Array, Array]:  # noqa: ARG001
        t = t + 1
        correction = jnp.sqrt(1.0 - decay_2**t) / (1.0 - decay_1**t)
        return jnp.sign(ascent) * ((1.0 - decay_1) / (1.0 - decay_2) ** 0.5 * correction), t

    return optax.GradientTransformation(lambda params: jnp.zeros((), jnp.float32), update)


def _flat(agents: Agents) -> Agents:
    """(m, n, ..) -> (m n, ..)."""
    return Agents(*(leaf.reshape(-1, leaf.shape[-1]) for leaf in agents))


def _take(tree: Any, indices: Int[Array, "m"]) -> Any:
    return jax.tree.map(lambda leaf: leaf[indices], tree)


def _put(tree: Any, indices: Int[Array, "m"], values: Any) -> Any:
    return jax.tree.map(lambda leaf, value: leaf.at[indices].set(value), tree, values)
