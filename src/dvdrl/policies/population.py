"""A trained population, ready for use: `population.act(obs)` for all members, `population[i].act(obs)` for one."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, SupportsIndex, overload

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dvdrl.documented import documented
from dvdrl.errors import DvdrlError
from dvdrl.policies.policy import Agents, Policy


@documented
class Places(NamedTuple):
    """Where members are, in the coordinates by which niche-ES compares them."""

    quality: NDArray[np.float32]
    """What each is judged by: its mean return over its perturbations, smoothed over iterations, (M,)."""
    behaviours: NDArray[np.float32]
    """(M, D)"""
    coordinates: tuple[str, ...]
    """Their D names."""
    relevance: NDArray[np.float32]
    """How much of the return each explains, (D,)."""
    noise: NDArray[np.float32]
    """The unit of each in which differences count, (D,): its deviation over the perturbations of one member, or a tenth
    of the largest deviation between members if that is more. 0 where it never varied."""


@documented
class Standing(NamedTuple):
    """How members compare with each other."""

    shares: NDArray[np.float32]
    """The share of each in the determinant, given the fitter ones, (M,)."""
    distinct: NDArray[np.bool_]
    """Whether each is good and different, (M,)."""
    places: Places | None = None
    """Only in niche-ES."""

    def of(self, rows: NDArray[np.intp]) -> "Standing":
        """That of some of the members: as they were found to compare among all of them."""
        places = self.places
        if places is not None:
            places = places._replace(quality=places.quality[rows], behaviours=places.behaviours[rows])
        return Standing(self.shares[rows], self.distinct[rows], places)


@documented
@dataclass(frozen=True, repr=False)
class Population:
    """M policies of one architecture.

    `population[i]` is one of them, a `Member`. `population[1:3]`, `population[[0, 2]]` and
    `population[population.distinct]` are populations of some of them.
    """

    task: str
    policy: Policy
    agents: Agents
    """NumPy arrays with a leading axis M."""
    standing: Standing | None = None
    """None before the first iteration, and if an earlier version of dvdrl trained it."""

    @property
    def distinct(self) -> NDArray[np.bool_] | None:
        """Whether each member is good and different, (M,); None if that is not known (see `standing`)."""
        return None if self.standing is None else self.standing.distinct

    @property
    def shares(self) -> NDArray[np.float32] | None:
        """The share of each member in the determinant, given the fitter ones, (M,); None if that is not known."""
        return None if self.standing is None else self.standing.shares

    def __len__(self) -> int:
        return len(self.agents.params)

    def __repr__(self) -> str:
        distinct = f", {int(self.distinct.sum())} distinct" if self.distinct is not None else ""
        return f"<{len(self)} policies for {self.task}{distinct}>"

    @overload
    def __getitem__(self, which: int) -> "Member": ...
    @overload
    def __getitem__(self, which: slice | Sequence[int] | NDArray[Any]) -> "Population": ...
    def __getitem__(self, which: int | slice | Sequence[int] | NDArray[Any]) -> "Member | Population":
        """A member, or a population of some members: by a slice, by their numbers, or by a flag for each.

        Raises:
            IndexError: there is no such member, or none is chosen.
        """
        everyone = np.arange(len(self))
        if isinstance(which, SupportsIndex) and not isinstance(which, np.ndarray):
            if not -len(self) <= (number := operator.index(which)) < len(self):
                raise IndexError(f"member: expected an index into {len(self)} members, got {number}")
            return Member(self, int(everyone[number]))
        try:
            rows: NDArray[np.intp] = everyone[which if isinstance(which, slice) else np.asarray(which)]
        except IndexError as error:
            raise IndexError(f"members: expected numbers or flags of {len(self)} members, got {which!r}") from error
        if rows.ndim != 1 or not rows.size:
            raise IndexError(f"members: expected some of {len(self)}, got {which!r}")
        agents = Agents(*(array[rows] for array in self.agents))
        return replace(self, agents=agents, standing=None if self.standing is None else self.standing.of(rows))

    def act(self, obs: ArrayLike) -> NDArray[Any]:
        """Each member's actions for the same observations: (..., obs) -> (M, ..., act)."""
        return self._act(self.agents, obs)

    def act_each(self, obs: ArrayLike) -> NDArray[Any]:
        """Each member's action for an observation of its own: (M, obs) -> (M, act).

        Raises:
            DvdrlError: an action is not finite; no simulator accepts it.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            outputs = self.policy.outputs(self.agents, np.asarray(obs)[:, None])[:, 0]
        finite = np.isfinite(outputs).all(axis=1)
        if not finite.all():
            raise DvdrlError(f"actions of members {np.flatnonzero(~finite).tolist()} are not finite")
        actions: NDArray[Any] = self.policy.head.actions(outputs)
        return actions

    def _act(self, agents: Agents, obs: ArrayLike) -> NDArray[Any]:
        x, num_observed = np.asarray(obs), self.policy.num_observed
        if x.shape[-1:] != (num_observed,):
            raise ValueError(f"obs: expected shape (..., {num_observed}), got {x.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            actions = self.policy.act(agents, x.reshape(1, -1, num_observed))
        shaped: NDArray[Any] = actions.reshape(len(agents.params), *x.shape[:-1], *actions.shape[2:])
        return shaped


@dataclass(frozen=True, repr=False)
class Member:
    """One member of a population."""

    population: Population
    index: int

    def __repr__(self) -> str:
        return f"<member {self.index} of {len(self.population)} policies for {self.population.task}>"

    def act(self, obs: ArrayLike) -> NDArray[Any]:
        """Its actions for the observations: (..., obs) -> (..., act). The other members are not computed."""
        alone = jax.tree.map(lambda array: array[self.index : self.index + 1], self.population.agents)
        action: NDArray[Any] = self.population._act(alone, obs)[0]
        return action
