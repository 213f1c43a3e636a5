"""Niches: who is a worse copy of whom, what it does next, and what a population has found so far.

Every member follows its own return. One that has settled where a fitter one already is adds nothing to the determinant
(its share, given the fitter ones, is small: `ordered_shares`), and does one of two things, in turn over the population:

- It begins anew, and at first only goes away from all that is known. Starting anew finds something, going away first
  makes it something new.
- It searches from where it is: half for the return, half along the direction in which that one of its perturbations
  led which differed most and did not cost. That passes obstacles into which the return leads every newborn again.

Either way it then follows its return, and is judged again. The best of every life is kept as long as no fitter one is
where it is, so nothing that was once good and different is lost: these elites are what a run ends with.

    controller = niches.niches(population, num_coordinates)
    state = controller.init(agents)
    scores = controller.score(state, behaviours, returns)                  # (M, n, D), (M, n) -> (M, n)
    state, report = controller.update(state, behaviours, returns, agents)  # the same, and who they were of

Behaviours and returns are those of a member's n perturbed rollouts; nothing is judged by one episode, and members are
judged by several iterations.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dvdrl.diversity.behaviours import (
    Behaviours,
    Coordinates,
    learn,
    squared_distances,
    standardize,
    unknown,
    weighting,
)
from dvdrl.diversity.ordered import ordered_shares

FOLLOW, AWAY, SEARCH = 0, 1, 2
"""What a member does: follow its return, go away from what is known, or search from where it is."""

LENGTH_SCALE = 3.0
"""Of the kernel, in units of a member's own noise: perturbations of one member are about this far from each other."""
LEAST_SHARE = 0.5
"""A member with a smaller share is a worse copy."""
LEAST_GAIN = 0.25
"""Of what the best has gained since the start; less is not good."""
SETTLED = 20
"""Iterations that a member follows its return before it is judged a copy or not; twice as many before it is judged
good or not: a copy that has not caught up yet passes for something else."""
LONGEST_AWAY, FAR = 8, 9.0
"""A newborn goes away for at most so many iterations, and until it is so far from all that is known."""
LONGEST_SEARCH = 16
"""Iterations of a search in place."""
SMOOTHING = 0.3
"""The weight of an iteration in what a member is judged by."""

Returns = Float[Array, "M n"]


class Elites(NamedTuple):
    """What is kept of members, with a leading axis."""

    quality: Float[Array, "e"]
    """Minus infinity where nothing is kept."""
    behaviours: Float[Array, "e D"]
    agents: Any
    """All that is needed to act as they did: a pytree of arrays (e, ...)."""


class State(NamedTuple):
    """Everything that changes."""

    iteration: Int[Array, ""]
    coordinates: Coordinates
    stage: Int[Array, "M"]
    """`FOLLOW`, `AWAY` or `SEARCH`."""
    age: Int[Array, "M"]
    """Iterations in this stage."""
    num_seen: Int[Array, "M"]
    """Iterations since the member began anew."""
    behaviours: Float[Array, "M D"]
    quality: Float[Array, "M"]
    """Means over a member's perturbations, smoothed over iterations."""
    direction: Float[Array, "M D"]
    """In which a member searches; of length 1 in units of noise."""
    num_renewals: Int[Array, ""]
    """How many times a worse copy has begun anew or searched."""
    start: Float[Array, ""]
    origin: Float[Array, "D"]
    """The mean quality and behaviour at the start."""
    records: Elites
    """The best of each member's present life; of the life before, until it has settled in this one."""
    records_are_old: Bool[Array, "M"]
    archive: Elites
    """The best of lives that have ended."""


class Report(NamedTuple):
    """What an iteration shows of itself."""

    renewed: Bool[Array, "M"]
    """Who begins anew: with new parameters, a new optimizer and the population's observation filter."""
    shares: Float[Array, "M"]
    """Given the fitter members and elites."""
    distinct: Bool[Array, "M"]
    """Who has settled, and is good and different."""


class Niches(NamedTuple):
    """The pure functions."""

    init: Callable[[Any], State]
    score: Callable[[State, Behaviours, Returns], Float[Array, "M n"]]
    update: Callable[[State, Behaviours, Returns, Any], tuple[State, Report]]


def niches(population: int, num_coordinates: int) -> Niches:
    """The controller for so many members, whose behaviours have so many coordinates.

    Args:
        population: M.
        num_coordinates: D.
    """
    if population < 1:
        raise ValueError(f"population: expected at least 1 member, got {population}")
    M, D = population, num_coordinates
    E = 2 * population  # elites of ended lives

    def init(agents: Any) -> State:
        whole = jnp.zeros(M, jnp.int32)
        return State(
            iteration=jnp.zeros((), jnp.int32),
            coordinates=unknown(D),
            stage=whole,
            age=whole,
            num_seen=whole,
            behaviours=jnp.zeros((M, D)),
            quality=jnp.zeros(M),
            direction=jnp.zeros((M, D)),
            num_renewals=jnp.zeros((), jnp.int32),
            start=jnp.zeros(()),
            origin=jnp.zeros(D),
            records=_nobody(M, D, agents),
            records_are_old=jnp.zeros(M, bool),
            archive=_nobody(E, D, agents),
        )

    def score(state: State, behaviours: Behaviours, returns: Returns) -> Float[Array, "M n"]:
        """What each perturbation is worth to a member, standardised."""
        pays = standardize(returns)
        apart = standardize(_distance_to_known(state, behaviours))
        equal = weighting(state.coordinates, relevant=False)
        along = standardize(jnp.sum(behaviours * (equal[None] * state.direction)[:, None], axis=-1))
        stage = state.stage[:, None]
        return jnp.where(stage == FOLLOW, pays, jnp.where(stage == AWAY, apart, (pays + along) / 2))

    def update(state: State, behaviours: Behaviours, returns: Returns, agents: Any) -> tuple[State, Report]:
        """Judge all members, and say who begins anew. `agents`: the unperturbed members, (M, ...)."""
        before = state
        state = _observed(state, behaviours, returns, agents)
        state, shares, distinct, ended, poor = _judged(state)

        # Those that are worse copies take turns; from where nothing is good there is nothing to search.
        turn = state.num_renewals + jnp.cumsum(ended) - 1
        renewed = ended & (poor | (turn % 2 == 0))
        arrived = _distance_to_known(before, jnp.mean(behaviours, axis=1, keepdims=True))[:, 0] > FAR
        over = ((state.stage == AWAY) & (arrived | (state.age >= LONGEST_AWAY))) | (
            (state.stage == SEARCH) & (state.age >= LONGEST_SEARCH)
        )
        stage = jnp.where(renewed, AWAY, jnp.where(ended, SEARCH, jnp.where(over, FOLLOW, state.stage)))
        directions = _directions(state, behaviours, returns)
        state = state._replace(
            iteration=state.iteration + 1,
            stage=stage,
            age=jnp.where(ended | over, 0, state.age),
            num_seen=jnp.where(renewed, 0, state.num_seen),
            direction=jnp.where(ended[:, None], directions, state.direction),
            num_renewals=state.num_renewals + jnp.sum(ended),
            records_are_old=state.records_are_old | ended,
        )
        return state, Report(renewed, shares, distinct)

    def _distance_to_known(state: State, behaviours: Behaviours) -> Float[Array, "M n"]:
        """Of each behaviour to the nearest of the other members and the elites; 0 where there are none."""
        known = jnp.concatenate([state.behaviours, state.archive.behaviours])
        counts = jnp.concatenate(
            [~jnp.eye(M, dtype=bool), jnp.broadcast_to(state.archive.quality > -jnp.inf, (M, E))], axis=1
        )
        factors = weighting(state.coordinates, relevant=True)
        squared = jax.vmap(squared_distances, in_axes=(0, None, None))(behaviours, known, factors)
        nearest = jnp.min(jnp.where(counts[:, None], squared, jnp.inf), axis=-1)
        return jnp.sqrt(jnp.where(jnp.isfinite(nearest), nearest, 0.0))

    def _observed(state: State, behaviours: Behaviours, returns: Returns, agents: Any) -> State:
        """With what this iteration says of the members, of coordinates, and of who has a new record."""
        rate = jnp.maximum(SMOOTHING, 1.0 / (1.0 + state.num_seen))
        quality = state.quality + rate * (jnp.mean(returns, axis=1) - state.quality)
        smooth = state.behaviours + rate[:, None] * (jnp.mean(behaviours, axis=1) - state.behaviours)
        follows = state.stage == FOLLOW
        settled = follows & ((state.age >= SETTLED) | (state.age == state.iteration))  # or has done nothing else yet
        rises = follows & ((quality > state.records.quality) | state.records_are_old)
        now = Elites(quality, smooth, agents)
        return state._replace(
            coordinates=learn(state.coordinates, behaviours, returns, settled),
            age=state.age + 1,
            num_seen=state.num_seen + 1,
            behaviours=smooth,
            quality=quality,
            start=jnp.where(state.iteration == 0, jnp.mean(quality), state.start),
            origin=jnp.where(state.iteration == 0, jnp.mean(smooth, axis=0), state.origin),
            records=_where(rises, now, state.records),
            records_are_old=state.records_are_old & ~rises,
        )

    def _judged(state: State) -> tuple[State, Array, Array, Array, Array]:
        """(state with its archive, shares, who is distinct, who is renewed, and who of them because it is poor)."""
        follows = state.stage == FOLLOW
        # Who has not settled stands behind all others: it has a share, and takes none. What comes back from a search
        # may lose again what it seems to have gained, and must not end the life of the one that it is a copy of.
        settled = follows & (state.age >= SETTLED)
        quality = jnp.where(settled, state.quality, jnp.finfo(state.quality.dtype).min)
        present = Elites(quality, state.behaviours, None)
        shares, different = _compared(state, _join(present, state.archive._replace(agents=None)))
        shares, different = shares[:M], different[:M]
        bar = floor(state)
        good = state.quality >= bar
        poor = follows & (state.age >= 2 * SETTLED) & ~good
        ended = (settled & ~different) | poor
        distinct = follows & (state.age >= 2 * SETTLED) & different & good

        # Records of lives that end join the archive; there stays what is no worse copy of a record or another elite.
        # Old records have joined before.
        current = jnp.where(state.records_are_old, -jnp.inf, state.records.quality)
        everyone = _join(state.records._replace(quality=current), state.archive)
        _, kept = _compared(state, everyone)
        ends_now = jnp.concatenate([ended, jnp.ones(E, bool)])
        worth = jnp.where(kept & ends_now, everyone.quality, -jnp.inf)
        best = jnp.argsort(-worth, stable=True)[:E]
        archive: Elites = jax.tree.map(lambda leaf: leaf[best], everyone._replace(quality=worth))
        return state._replace(archive=archive), shares, distinct, ended, poor

    def _directions(state: State, behaviours: Behaviours, returns: Returns) -> Float[Array, "M D"]:
        """Where that perturbation of each member leads which differs most of the better half of them.

        The distance to the fitter member would not do: of a copy it grows in all directions alike.
        """
        equal = weighting(state.coordinates, relevant=False)
        led = (behaviours - jnp.mean(behaviours, axis=1, keepdims=True)) * equal[None, None]
        length = jnp.linalg.norm(led, axis=-1)
        better = returns >= jnp.median(returns, axis=1, keepdims=True)
        most = jnp.argmax(jnp.where(better, length, -1.0), axis=1)[:, None]
        led, length = jnp.take_along_axis(led, most[..., None], axis=1)[:, 0], jnp.take_along_axis(length, most, axis=1)
        return led / jnp.where(length > 0, length, 1.0)

    return Niches(init, score, update)


def floor(state: State) -> Float[Array, ""]:
    """The least quality that counts as good: a quarter of the way from the start to the best."""
    best = jnp.maximum(jnp.max(state.records.quality), jnp.max(state.archive.quality))
    gained = jnp.where(jnp.isfinite(best), best - state.start, 0.0)
    return state.start + LEAST_GAIN * gained


def elites(state: State) -> tuple[Elites, Bool[Array, "e"], Float[Array, "e"]]:
    """All that is kept, who of it is distinct, and the share of each given the fitter ones.

    First those that are distinct, then what is good and different so far but has not settled, then worse copies; each
    by quality. A run ends with the first M, or with all that are distinct.
    """
    everyone = _join(state.records, state.archive)
    shares, different = _compared(state, everyone)
    different &= everyone.quality >= floor(state)
    settled = state.records_are_old | ((state.stage == FOLLOW) & (state.age >= 2 * SETTLED))
    distinct = different & jnp.concatenate([settled, jnp.ones_like(state.archive.quality, bool)])
    order = jnp.lexsort((-everyone.quality, ~different, ~distinct))
    ordered: Elites = jax.tree.map(lambda leaf: leaf[order], everyone)
    return ordered, distinct[order], shares[order]


def _compared(state: State, some: Elites) -> tuple[Float[Array, "e"], Bool[Array, "e"]]:
    """(shares, who is different from all fitter ones); 0 and no for those that do not exist.

    Who is where a fitter one came by, on the straight way from the start, is a slow copy of it, however far behind.
    """
    factors = weighting(state.coordinates, relevant=True)
    exists = some.quality > -jnp.inf
    both_exist = exists[:, None] & exists[None]
    K = _kernel(squared_distances(some.behaviours, some.behaviours, factors))
    shares = ordered_shares(jnp.where(both_exist, K, jnp.eye(len(exists))), some.quality)

    came = (some.behaviours - state.origin[None]) * factors[None]
    inner = came @ came.T
    squared = jnp.diagonal(inner)
    part = jnp.clip(inner / jnp.where(squared > 0, squared, 1.0)[None], 0.0, 1.0)
    beside = jnp.sum(jnp.square(came[:, None] - part[..., None] * came[None]), axis=-1)
    fitter = both_exist & (inner > 0) & (some.quality[None] > some.quality[:, None])  # on the same side
    behind = jnp.any(fitter & (1.0 - jnp.square(_kernel(beside)) < LEAST_SHARE), axis=1)
    return jnp.where(exists, shares, 0.0), exists & (shares >= LEAST_SHARE) & ~behind


def _kernel(squared: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.exp(-squared / (2 * LENGTH_SCALE**2))


def _nobody(num: int, num_coordinates: int, agents: Any) -> Elites:
    """Elites of which none exists yet; `agents` shows what one is."""
    empty = jax.tree.map(lambda leaf: jnp.zeros((num, *leaf.shape[1:]), leaf.dtype), agents)
    return Elites(jnp.full(num, -jnp.inf), jnp.zeros((num, num_coordinates)), empty)


def _join(a: Elites, b: Elites) -> Elites:
    joined: Elites = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), a, b)
    return joined


def _where(condition: Bool[Array, "e"], a: Elites, b: Elites) -> Elites:
    def choose(x: Array, y: Array) -> Array:
        return jnp.where(condition.reshape(-1, *(1,) * (x.ndim - 1)), x, y)

    chosen: Elites = jax.tree.map(choose, a, b)
    return chosen
