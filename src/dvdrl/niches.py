"""Niches: who is a worse copy of whom, what it does next, and what a population has found so far.

Every member follows its own return. One that has settled where a fitter one already is adds nothing to the determinant
(its share, given the fitter ones, is small: `ordered_shares`), and begins anew:

1. At first it only goes away from all that is known. Starting anew finds something, going away first makes it something
   new.
2. Then it follows its return, but what it returns inside a fitter member's niche does not count. So it passes obstacles
   in front of which the return alone leads every newborn to the same place again, and it has time to become better than
   those that it must not copy.
3. Then it follows its return alone, and is judged again.

Of several copies, the best one has more time: it may still become the best of all.

The best of every life is kept as long as no fitter one is where it is, so nothing that was once good and different is
lost: these elites are what a run ends with.

    controller = niches.niches(population, num_coordinates)
    state = controller.init(agents)
    scores = controller.score(state, behaviours, returns)                  # (M, n, D), (M, n) -> (M, n)
    state, report = controller.update(state, behaviours, returns, agents)  # the same, and who they were of

Behaviours and returns are those of a member's n perturbed rollouts; nothing is judged by one episode, and members are
judged by several iterations.
"""

import functools
import math
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
    units,
    unknown,
    weighting,
)
from dvdrl.diversity.ordered import ordered_shares

FOLLOW, AWAY, OUTSIDE = 0, 1, 2
"""What a member does: follow its return, go away from what is known, or follow its return outside fitter niches."""

LENGTH_SCALE = 3.0
"""Of the kernel, in units of a member's own noise: perturbations of one member are about this far from each other."""
LEAST_SHARE = 0.5
"""A member with a smaller share is a worse copy."""
LEAST_GAIN = 0.25
"""Of what the best has gained since the start; less is not good."""
SETTLED = 20
"""Iterations that a member follows its return before it is judged a copy or not; twice as many before it is judged
good or not: a copy that has not caught up yet passes for something else."""
RUNNER_UP = 3
"""The best copy has so many times as long, counted from its birth, while two others look elsewhere: it may still
become the best of all. On HalfCheetah, whoever is best after `SETTLED` iterations often is not in the end."""
LONGEST_AWAY, FAR = 8, 3 * LENGTH_SCALE
"""A newborn goes away for at most so many iterations, and until it is so far from all that is known."""
LONGEST_OUTSIDE, NICHE = 30, 2 * LENGTH_SCALE
"""Then, for so many iterations, it is not to be nearer than this to a fitter member or elite. As long as only one good
place is known, every second life of a member stays twice as far away: at the edge of a narrow niche, the return may
lead back into it, as it does in front of Point's widest wall. Where several are known, wide niches leave no room."""
HALFWAY = 0.5
"""Of the straight way from the start to a fitter member. What is nearer to that member is the same place. What a
learner with a reward for each step is paid beyond this does not count, while it follows its return outside."""
BESIDE = LENGTH_SCALE * math.sqrt(-math.log(1 - LEAST_SHARE))
"""At this distance from one fitter member, the share is just `LEAST_SHARE`."""
SMOOTHING = 0.3
"""The weight of an iteration in what a member is judged by."""

Returns = Float[Array, "M n"]


class Rules(NamedTuple):
    """What may be chosen."""

    least_return: float | None = None
    """The least quality that counts as good; None: `LEAST_GAIN` of the way from the start to the best."""
    relevance: bool = True
    """Whether coordinates count by how much of the return they explain. If not, all count alike."""
    renewal: bool = True
    """Whether worse copies begin anew."""
    order: bool = True
    """Whether a member is compared with fitter ones only. If not, with all."""
    settled: int = SETTLED
    longest_away: int = LONGEST_AWAY
    longest_outside: int = LONGEST_OUTSIDE
    """Iterations in each stage. The defaults are for niche-ES, in whose iterations every member makes one step."""


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
    """`FOLLOW`, `AWAY` or `OUTSIDE`."""
    age: Int[Array, "M"]
    """Iterations in this stage."""
    num_seen: Int[Array, "M"]
    """Iterations since the member began anew."""
    num_lives: Int[Array, "M"]
    """How often the member has begun anew."""
    stays_far: Bool[Array, "M"]
    """Whether niches are twice as wide for it in this life."""
    behaviours: Float[Array, "M D"]
    quality: Float[Array, "M"]
    """Means over a member's perturbations, smoothed over iterations."""
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


class Guidance(NamedTuple):
    """What each member does, for a learner that is given a reward for every step."""

    stage: Int[Array, "M"]
    """`FOLLOW` also where there is nothing to be led away from."""
    origin: Float[Array, "M D"]
    """Where the way out begins."""
    direction: Float[Array, "M D"]
    """The way out: (b - origin) . direction is 1 at its end. That is far away for members that go away, and outside the
    niche for those that follow their return outside."""


class Niches(NamedTuple):
    """The pure functions."""

    init: Callable[[Any], State]
    score: Callable[[State, Behaviours, Returns], Float[Array, "M n"]]
    update: Callable[[State, Behaviours, Returns, Any], tuple[State, Report]]
    elites: Callable[[State], tuple[Elites, Bool[Array, "e"], Float[Array, "e"]]]
    """All that is kept, who of it is distinct, and the share of each given the fitter ones.

    First those that are distinct, then what is good and different so far but has not settled, then worse copies; each
    by quality. A run ends with the first M, or with all that are distinct.
    """
    guide: Callable[[State, Float[Array, "D"]], Guidance]
    """The same as `score`, for learners that are given a reward for every step.

    The second argument is by what coordinates of single steps are multiplied to vary alike, as in an observation
    filter. Single steps vary more than behaviours, which are means, and each coordinate does so by another factor. With
    these scales, the ways out go along those coordinates in which a single step already tells one mode from another.
    """


def niches(population: int, num_coordinates: int, rules: Rules = Rules()) -> Niches:  # noqa: B008 - immutable
    """The controller for so many members, whose behaviours have so many coordinates.

    Args:
        population: M.
        num_coordinates: D.
        rules: what may be chosen.
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
            num_lives=whole,
            stays_far=jnp.zeros(M, bool),
            behaviours=jnp.zeros((M, D)),
            quality=jnp.zeros(M),
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
        # Inside a fitter niche, a return counts as the worst. If all perturbations are inside, they count as they are.
        outside = _distance_to_fitter(state, behaviours) >= _niche(state)[:, None]
        worst = jnp.min(returns, axis=1, keepdims=True)
        pays_outside = standardize(jnp.where(outside | ~jnp.any(outside, axis=1, keepdims=True), returns, worst))
        stage = state.stage[:, None]
        return jnp.select([stage == AWAY, stage == OUTSIDE], [apart, pays_outside], pays)

    def update(state: State, behaviours: Behaviours, returns: Returns, agents: Any) -> tuple[State, Report]:
        """Judge all members, and say who begins anew. `agents`: the unperturbed members, (M, ...)."""
        before = state
        state = _observed(state, behaviours, returns, agents)
        state, shares, distinct, renewed, alone = _judged(state)

        arrived = _distance_to_known(before, jnp.mean(behaviours, axis=1, keepdims=True))[:, 0] > FAR
        num_lives = state.num_lives + renewed
        leaves = (state.stage == AWAY) & (arrived | (state.age >= rules.longest_away))
        free = (state.stage == OUTSIDE) & (state.age >= rules.longest_outside)
        state = state._replace(
            iteration=state.iteration + 1,
            stage=jnp.select([renewed, leaves, free], [AWAY, OUTSIDE, FOLLOW], state.stage),
            age=jnp.where(renewed | leaves | free, 0, state.age),
            num_seen=jnp.where(renewed, 0, state.num_seen),
            num_lives=num_lives,
            stays_far=jnp.where(renewed, (num_lives % 2 == 0) & alone, state.stays_far),
            records_are_old=state.records_are_old | renewed,
        )
        return state, Report(renewed, shares, distinct)

    def _distance_to_known(state: State, behaviours: Behaviours) -> Float[Array, "M n"]:
        """Of each behaviour to the nearest of the other members and the elites; 0 where there are none."""
        elites = jnp.broadcast_to(_exists(state.archive), (M, E))
        nearest = _nearest(state, behaviours, elites, ~jnp.eye(M, dtype=bool))
        return jnp.where(jnp.isfinite(nearest), nearest, 0.0)

    def _distance_to_fitter(state: State, behaviours: Behaviours) -> Float[Array, "M n"]:
        """The same to the nearest settled member or elite that is fitter; infinite where there are none."""
        members, elites = _fitter(state)
        return _nearest(state, behaviours, elites, members)

    def _fitter(state: State) -> tuple[Bool[Array, "M M"], Bool[Array, "M e"]]:
        """The settled members, and the elites, that are fitter than each member."""
        settled = (state.stage == FOLLOW) & (state.age >= rules.settled)
        fitter = settled[None] & (state.quality[None] > state.quality[:, None])
        return fitter, state.archive.quality[None] > state.quality[:, None]

    def _nearest(
        state: State, behaviours: Behaviours, elites: Bool[Array, "M e"], members: Bool[Array, "M M"]
    ) -> Float[Array, "M n"]:
        """The distance of each behaviour to the nearest of those elites and members that count for its member."""
        known = jnp.concatenate([state.behaviours, state.archive.behaviours])
        factors = weighting(state.coordinates, relevant=rules.relevance)
        squared = jax.vmap(squared_distances, in_axes=(0, None, None))(behaviours, known, factors)
        counts = jnp.concatenate([members, elites], axis=1)
        return jnp.sqrt(jnp.min(jnp.where(counts[:, None], squared, jnp.inf), axis=-1))

    def _observed(state: State, behaviours: Behaviours, returns: Returns, agents: Any) -> State:
        """With what this iteration says of the members, of coordinates, and of who has a new record."""
        rate = jnp.maximum(SMOOTHING, 1.0 / (1.0 + state.num_seen))
        quality = state.quality + rate * (jnp.mean(returns, axis=1) - state.quality)
        smooth = state.behaviours + rate[:, None] * (jnp.mean(behaviours, axis=1) - state.behaviours)
        follows = state.stage == FOLLOW
        settled = follows & (
            (state.age >= rules.settled) | (state.age == state.iteration)
        )  # or has done nothing else yet
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
        """(state with its archive, shares, who is distinct, who is renewed, whether only one good place is known)."""
        follows = state.stage == FOLLOW
        # Who has not settled stands behind all others: it has a share, and takes none. It may lose again what it seems
        # to have gained, and must not end the life of the one that it is a copy of.
        settled = follows & (state.age >= rules.settled)
        quality = jnp.where(settled, state.quality, jnp.finfo(state.quality.dtype).min)
        present = Elites(quality, state.behaviours, None)
        elites, least = state.archive._replace(agents=None), floor(rules, state)
        shares, different = _compared(rules, state, _join(present, elites))
        shares, different = shares[:M], different[:M]
        good = state.quality >= least
        poor = follows & (state.age >= 2 * rules.settled) & ~good
        # A good elite ends no life: it learns nothing any more, and somebody must go on from where it was.
        elites = elites._replace(quality=jnp.where(elites.quality < least, elites.quality, -jnp.inf))
        copy = settled & ~_compared(rules, state, _join(present, elites))[1][:M]
        # Who will be best often shows late. So the best copy goes on for longer, while two others look elsewhere.
        runner_up = copy & (quality == jnp.max(jnp.where(copy, quality, -jnp.inf)))
        spared = runner_up & (jnp.sum(copy | ~settled) > 2) & (state.num_seen < RUNNER_UP * rules.settled)
        ended = ((copy & ~spared) | poor) & rules.renewal
        distinct = follows & (state.age >= 2 * rules.settled) & different & good

        # Records of lives that end join the archive; there stays what is no worse copy of a record or another elite.
        # Old records have joined before.
        current = jnp.where(state.records_are_old, -jnp.inf, state.records.quality)
        everyone = _join(state.records._replace(quality=current), state.archive)
        _, kept = _compared(rules, state, everyone)
        ends_now = jnp.concatenate([ended, jnp.ones(E, bool)])
        worth = jnp.where(kept & ends_now, everyone.quality, -jnp.inf)
        best = jnp.argsort(-worth, stable=True)[:E]
        archive: Elites = jax.tree.map(lambda leaf: leaf[best], everyone._replace(quality=worth))
        alone = _alone(state, everyone, kept & (everyone.quality >= least))
        return state._replace(archive=archive), shares, distinct, ended, alone

    def _alone(state: State, some: Elites, good: Bool[Array, "e"]) -> Bool[Array, ""]:
        """Whether all that are good are nearly where the best one is, for the way that it has come from the start."""
        factors = weighting(state.coordinates, relevant=rules.relevance)
        best = jnp.argmax(jnp.where(good, some.quality, -jnp.inf))
        way = jnp.linalg.norm((some.behaviours[best] - state.origin) * factors)
        from_best = jnp.linalg.norm((some.behaviours - some.behaviours[best][None]) * factors[None], axis=1)
        return ~jnp.any(good & (from_best > HALFWAY * way))

    def elites(state: State) -> tuple[Elites, Bool[Array, "e"], Float[Array, "e"]]:
        everyone = _join(state.records, state.archive)
        shares, different = _compared(rules, state, everyone)
        different &= everyone.quality >= floor(rules, state)
        settled = state.records_are_old | ((state.stage == FOLLOW) & (state.age >= 2 * rules.settled))
        distinct = different & jnp.concatenate([settled, jnp.ones_like(state.archive.quality, bool)])
        order = jnp.lexsort((-everyone.quality, ~different, ~distinct))
        ordered: Elites = jax.tree.map(lambda leaf: leaf[order], everyone)
        return ordered, distinct[order], shares[order]

    def guide(state: State, scales: Float[Array, "D"]) -> Guidance:
        factors = weighting(state.coordinates, relevant=rules.relevance)
        known = jnp.concatenate([state.behaviours, state.archive.behaviours])
        # Nobody has seen yet where a newborn is: probably where all began.
        own = jnp.where((state.num_seen == 0)[:, None], state.origin[None], state.behaviours)
        members, elites = _fitter(state)
        others = jnp.concatenate([~jnp.eye(M, dtype=bool), jnp.broadcast_to(_exists(state.archive), (M, E))], axis=1)
        counts = jnp.where((state.stage == OUTSIDE)[:, None], jnp.concatenate([members, elites], axis=1), others)
        squared = jnp.where(counts, squared_distances(own, known, factors), jnp.inf)
        nearest = known[jnp.argmin(squared, axis=1)]

        start = state.origin[None]
        # A slow copy is on the straight way from the start to the nearest. So a member is led back, and then as far to
        # the other side of the start. Who has come far, but beside that way, is led further away from it.
        way, came = (nearest - start) * factors[None], (own - start) * factors[None]
        passed = jnp.clip(jnp.sum(came * way, axis=1) / _or_one(jnp.sum(way * way, axis=1)), 0.0, 1.0)[:, None]
        distance = jnp.linalg.norm(came - passed * way, axis=1, keepdims=True)
        beside, goes = (passed > HALFWAY) & (distance > BESIDE), (state.stage == AWAY)[:, None]
        begin = jnp.where(beside, passed, jnp.where(goes, 0.0, HALFWAY))
        origin = start + begin * (nearest - start)
        end = origin + (own - origin) * jnp.where(goes, FAR, NICHE) / _or_one(distance)
        back = jnp.where(goes, 2.0 * start - nearest, start)
        out = jnp.where(beside, end, back) - origin
        weights = (jnp.square(scales) * (state.coordinates.relevance if rules.relevance else 1.0))[None]
        length = jnp.sum(jnp.square(out) * weights, axis=1)
        led = (state.stage != FOLLOW) & jnp.any(counts, axis=1) & (length > 0)
        direction = out * weights / _or_one(length)[:, None]
        origin, direction = (jnp.where(led[:, None], each, 0.0) for each in (origin, direction))
        return Guidance(jnp.where(led, state.stage, FOLLOW), origin, direction)

    return Niches(init, score, update, elites, guide)


class Known(NamedTuple):
    """What is known about elites, in their order, and about the coordinates of their behaviours."""

    agents: Any
    quality: Float[Array, "e"]
    """Minus infinity where nothing is kept."""
    behaviours: Float[Array, "e D"]
    distinct: Bool[Array, "e"]
    shares: Float[Array, "e"]
    relevance: Float[Array, "D"]
    units: Float[Array, "D"]


@functools.partial(jax.jit, static_argnums=0)
def known(controller: Niches, state: State) -> Known:
    """What a run ends with: the first M of these, or all that are distinct."""
    best, distinct, shares = controller.elites(state)
    coordinates = state.coordinates
    return Known(
        best.agents, best.quality, best.behaviours, distinct, shares, coordinates.relevance, units(coordinates)
    )


def floor(rules: Rules, state: State) -> Float[Array, ""]:
    """The least quality that counts as good."""
    if rules.least_return is not None:
        return jnp.asarray(rules.least_return)
    best = jnp.maximum(jnp.max(state.records.quality), jnp.max(state.archive.quality))
    gained = jnp.where(jnp.isfinite(best), best - state.start, 0.0)
    return state.start + LEAST_GAIN * gained


def _niche(state: State) -> Float[Array, "M"]:
    """How far each member is to stay away from fitter ones when it follows its return outside."""
    return jnp.where(state.stays_far, 2 * NICHE, NICHE)


def _compared(rules: Rules, state: State, some: Elites) -> tuple[Float[Array, "e"], Bool[Array, "e"]]:
    """(shares, who is different from all fitter ones); 0 and no for those that do not exist.

    Who is where a fitter one came by, on the straight way from the start, is a slow copy of it, however far behind.
    """
    factors = weighting(state.coordinates, relevant=rules.relevance)
    exists = _exists(some)
    both_exist = exists[:, None] & exists[None]
    K = jnp.where(
        both_exist, _kernel(squared_distances(some.behaviours, some.behaviours, factors)), jnp.eye(len(exists))
    )
    if not rules.order:
        shares = jax.vmap(lambda last: ordered_shares(K, -last))(jnp.eye(len(exists)))  # each given all others
        shares = jnp.diagonal(shares)
        return jnp.where(exists, shares, 0.0), exists & (shares >= LEAST_SHARE)
    shares = ordered_shares(K, some.quality)

    came = (some.behaviours - state.origin[None]) * factors[None]
    inner = came @ came.T
    squared = jnp.diagonal(inner)
    part = jnp.clip(inner / jnp.where(squared > 0, squared, 1.0)[None], 0.0, 1.0)
    beside = jnp.sum(jnp.square(came[:, None] - part[..., None] * came[None]), axis=-1)
    fitter = both_exist & (inner > 0) & (some.quality[None] > some.quality[:, None])  # on the same side
    behind = jnp.any(fitter & (1.0 - jnp.square(_kernel(beside)) < LEAST_SHARE), axis=1)
    return jnp.where(exists, shares, 0.0), exists & (shares >= LEAST_SHARE) & ~behind


def _or_one(length: Float[Array, "..."]) -> Float[Array, "..."]:
    """A divisor: what is 0 is divided by 1."""
    return jnp.where(length > 0, length, 1.0)


def _exists(elites: Elites) -> Bool[Array, "e"]:
    return elites.quality > -jnp.inf


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
