"""Controllers of lambda, the weight of diversity (section 4.2 and appendix C.1 of the paper).

A controller is three pure functions around a state that holds everything that changes:

    state = controller.init()
    state, lambda_ = controller.select(key, state)     # before a round: one lambda for all members, or one each, (M,)
    state = controller.update(state, returns)          # after it: the members' returns at the new parameters, (M,)

The Thompson samplers keep a Beta posterior for each arm (a value of lambda). The score of a round is the mean of the
returns. A pull is rewarded with 1 if the score rose and with 0 otherwise. The first score only sets the reference.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

Lambda = Float[Array, ""] | Float[Array, "M"]
Returns = Float[Array, "M"]

PAPER_ARMS = (0.0, 0.5)
"""The two values of lambda of the paper."""


class Controller(NamedTuple):
    """Chooses lambda for each round."""

    init: Callable[[], Any]
    select: Callable[[PRNGKeyArray, Any], tuple[Any, Lambda]]
    update: Callable[[Any, Returns], Any]


class ThompsonState(NamedTuple):
    """Everything that changes in a Thompson sampler with K arms."""

    successes: Float[Array, "K"]
    failures: Float[Array, "K"]
    arm: Int[Array, ""]
    """The arm of the current round."""
    num_pulls: Int[Array, ""]
    """Rounds so far whose reward entered the posterior."""
    past_arms: Int[Array, "window"]
    past_rewards: Float[Array, "window"]
    """The pulls inside the window, in a ring; empty without a window."""
    past_scores: Float[Array, "reference"]
    """The latest scores, in a ring; minus infinity where there is none yet."""
    num_scores: Int[Array, ""]


class PlateauState(NamedTuple):
    """Everything that changes in the controller `plateau`."""

    lambdas: Float[Array, "M"]
    num_rounds: Int[Array, ""]
    start: Float[Array, ""]
    """The members' mean return before the first round."""
    records: Float[Array, "patience"]
    """The best return so far, at each of the latest rounds, in a ring; minus infinity where there is none."""
    num_flat: Int[Array, ""]
    """Rounds since the record last rose."""
    level: Float[Array, ""]
    """The record at which the latest plateau began; infinity before the first one."""
    level_before: Float[Array, ""]
    """The record at which the plateau before it began; infinity if there was none."""


def posterior(state: Any) -> tuple[Float[Array, "K"], Float[Array, "K"]]:
    """Parameters (alpha, beta) of each arm's Beta distribution; the prior is Beta(1, 1). Empty without a bandit."""
    if not isinstance(state, ThompsonState):
        return jnp.zeros(0), jnp.zeros(0)
    return 1.0 + state.successes, 1.0 + state.failures


def thompson(arms: Sequence[float] = PAPER_ARMS) -> Controller:
    """Bernoulli Thompson sampling as in the paper: r_t = 1(R_{t+1} > R_t), posteriors over all rounds."""
    return _thompson(arms)


def authors_thompson(arms: Sequence[float] = PAPER_ARMS) -> Controller:
    """The sampler of the authors' code, which differs from the paper.

    A pull is rewarded if the score beats the best of the previous five; posteriors are rebuilt from the last 50 pulls;
    the first five pulls are uniform.
    """
    return _thompson(arms, window=50, num_reference=5, num_uniform=5)


def sliding_window_thompson(arms: Sequence[float] = PAPER_ARMS, window: int = 50) -> Controller:
    """Thompson sampling that forgets: posteriors use only the last `window` rounds (Trovo et al. 2020)."""
    if window < 1:
        raise ValueError(f"window: expected at least 1 round, got {window}")
    return _thompson(arms, window=window)


def discounted_thompson(arms: Sequence[float] = PAPER_ARMS, discount: float = 0.95) -> Controller:
    """Thompson sampling that fades: a reward weighs `discount` to the power of its age (Raj and Kalyani 2017)."""
    if not 0 < discount < 1:
        raise ValueError(f"discount: expected a number between 0 and 1, got {discount}")
    return _thompson(arms, discount=discount)


def plateau(population: int, arms: Sequence[float] = (0.0, 0.5, 0.8), patience: int = 4) -> Controller:
    """One lambda for each member: diversity only on plateaus, and only for members that have not improved.

    Diversity helps once all members are in one local optimum; before, it costs time. A bandit is rewarded if the mean
    return rises. While returns rise, it learns that diversity does not pay; on a plateau, no arm pays. This controller
    learns nothing from rewards:

    - Returns rise if the best return so far gained more than a twentieth of the total gain since the start, within the
      last `patience` rounds. All members then have the smallest arm, as in ES.
    - Otherwise there is a plateau, and a search begins. The best member keeps the smallest arm, so that its solution is
      not lost. So do members that have left the previous plateau, unless all have. The others get the next larger
      arm for 3 * `patience` rounds.
    - A search succeeds soon or hardly at all (results/point/README.md). After it, all members follow their reward for
      `patience` rounds, in case reward alone leaves the plateau. A new search then begins from there, with the next
      arm, up to the largest.
    """
    ascending = sorted(_checked_arms(arms, name="arms"))
    if population < 1:
        raise ValueError(f"population: expected at least 1 member, got {population}")
    if patience < 1:
        raise ValueError(f"patience: expected at least 1 round, got {patience}")

    def init() -> PlateauState:
        return PlateauState(
            lambdas=jnp.full(population, ascending[0]),
            num_rounds=jnp.zeros((), jnp.int32),
            start=jnp.zeros(()),
            records=jnp.full(patience, -jnp.inf),
            num_flat=jnp.zeros((), jnp.int32),
            level=jnp.array(jnp.inf),
            level_before=jnp.array(jnp.inf),
        )

    def update(state: PlateauState, returns: Returns) -> PlateauState:
        start = jnp.where(state.num_rounds == 0, jnp.mean(returns), state.start)
        record = jnp.maximum(jnp.max(returns), jnp.max(state.records))
        slot = state.num_rounds % patience
        before = jnp.maximum(state.records[slot], start)
        step = _RISE * (record - start)
        rises = (state.num_rounds < patience) | (record - before > step)
        num_flat = jnp.where(rises, 0, state.num_flat + 1)
        begins = num_flat == 1
        level = jnp.where(begins, record, state.level)
        level_before = jnp.where(begins, state.level, state.level_before)
        num_searches, round_of_search = jnp.divmod(num_flat - 1, 4 * patience)
        searches = ~rises & (round_of_search < 3 * patience)
        arm = jnp.asarray(ascending)[jnp.clip(num_searches + 1, 0, len(ascending) - 1)]
        has_left = returns > level_before + step
        leads = (jnp.arange(population) == jnp.argmax(returns)) | (has_left & ~jnp.all(has_left))
        return PlateauState(
            lambdas=jnp.where(searches & ~leads, arm, ascending[0]),
            num_rounds=state.num_rounds + 1,
            start=start,
            records=state.records.at[slot].set(record),
            num_flat=num_flat,
            level=level,
            level_before=level_before,
        )

    return Controller(init, lambda key, state: (state, state.lambdas), update)


_RISE = 0.05
"""A share of the total gain since the start. Gaining less than this within `patience` rounds counts as a plateau; a
member that exceeds its level by more than this has left it."""


def fixed(lambda_: float) -> Controller:
    """The same lambda in every round."""
    (value,) = _checked_arms([lambda_], name="lambda_")
    return Controller(
        init=lambda: (),
        select=lambda key, state: (state, jnp.asarray(value)),
        update=lambda state, returns: state,
    )


def schedule(function: Callable[[Int[Array, ""]], Float[Array, ""]]) -> Controller:
    """Lambda as a function of the number of rounds so far, such as an optax schedule. Values are clipped to [0, 1]."""
    return Controller(
        init=lambda: jnp.zeros((), jnp.int32),
        select=lambda key, state: (state, jnp.clip(function(state), 0.0, 1.0)),
        update=lambda state, returns: state + 1,
    )


def _thompson(
    arms: Sequence[float],
    *,
    window: int = 0,
    discount: float = 1.0,
    num_reference: int = 1,
    num_uniform: int = 0,
) -> Controller:
    values = _checked_arms(arms, name="arms")
    num_arms = len(values)

    def init() -> ThompsonState:
        return ThompsonState(
            successes=jnp.zeros(num_arms),
            failures=jnp.zeros(num_arms),
            arm=jnp.zeros((), jnp.int32),
            num_pulls=jnp.zeros((), jnp.int32),
            past_arms=jnp.zeros(window, jnp.int32),
            past_rewards=jnp.zeros(window),
            past_scores=jnp.full(num_reference, -jnp.inf),
            num_scores=jnp.zeros((), jnp.int32),
        )

    def select(key: PRNGKeyArray, state: ThompsonState) -> tuple[ThompsonState, Lambda]:
        key_means, key_uniform = jax.random.split(key)
        arm = jnp.argmax(jax.random.beta(key_means, *posterior(state)))  # i_t = argmax mu_i, mu_i ~ pi_{t-1}^i
        if num_uniform:
            uniform_arm = jax.random.randint(key_uniform, (), 0, num_arms)
            arm = jnp.where(state.num_pulls < num_uniform, uniform_arm, arm)
        return state._replace(arm=arm.astype(jnp.int32)), jnp.asarray(values)[arm]

    def update(state: ThompsonState, returns: Returns) -> ThompsonState:
        score = jnp.mean(returns)
        reward = (score > jnp.max(state.past_scores)).astype(state.successes.dtype)
        rewarded = _pull(state, reward)
        is_reference = state.num_scores == 0
        state = jax.tree.map(lambda before, after: jnp.where(is_reference, before, after), state, rewarded)
        return state._replace(
            past_scores=state.past_scores.at[state.num_scores % num_reference].set(score),
            num_scores=state.num_scores + 1,
        )

    def _pull(state: ThompsonState, reward: Float[Array, ""]) -> ThompsonState:
        # (alpha_i, beta_i) <- (alpha_i + r_t, beta_i + 1 - r_t) for i = i_t, appendix C.1.
        successes = (discount * state.successes).at[state.arm].add(reward)
        failures = (discount * state.failures).at[state.arm].add(1.0 - reward)
        past_arms, past_rewards = state.past_arms, state.past_rewards
        if window:
            slot = state.num_pulls % window
            evicted = (state.num_pulls >= window).astype(reward.dtype)
            old_arm, old_reward = past_arms[slot], past_rewards[slot]
            successes = successes.at[old_arm].add(-evicted * old_reward)
            failures = failures.at[old_arm].add(-evicted * (1.0 - old_reward))
            past_arms = past_arms.at[slot].set(state.arm)
            past_rewards = past_rewards.at[slot].set(reward)
        return state._replace(
            successes=successes,
            failures=failures,
            num_pulls=state.num_pulls + 1,
            past_arms=past_arms,
            past_rewards=past_rewards,
        )

    return Controller(init, select, update)


def _checked_arms(arms: Sequence[float], name: str) -> tuple[float, ...]:
    values = tuple(float(arm) for arm in arms)
    if not values or not all(0 <= value <= 1 for value in values):
        raise ValueError(f"{name}: expected values of lambda from 0 to 1, got {list(arms)}")
    return values
