"""Evolution strategies in the training loop: ask, evaluate, tell.

The rollouts of all seeds are one batch. `ask` and `tell` are separate calls for each seed, of the same compiled
functions. An episode does not depend on its batch, so each seed gives the same bits as if it were trained alone.
"""

import functools
from collections.abc import Sequence
from typing import Any, Never

import jax
import numpy as np

from dvdrl import bandits, es
from dvdrl.diversity import KERNELS
from dvdrl.engines import engines_of, imported
from dvdrl.errors import DvdrlError
from dvdrl.es import niche
from dvdrl.interfaces import Executor
from dvdrl.niches import Report, niches
from dvdrl.policies import Places, Policy, Population, Standing
from dvdrl.rollouts import Local
from dvdrl.runs import fields, metrics, standing
from dvdrl.runs.options import ES, NSRES, DvDES, NicheES
from dvdrl.runs.trainer import NotFinite, Outcome, make_controller, make_envs, make_policy, observation_names
from dvdrl.tasks import registry


class Evolution:
    """A trainer of evolution strategies."""

    replay_capacity = 0

    def __init__(self, options: ES[Never], policy: Policy, executor: Executor):
        self._options, self._policy, self._executor = options, policy, executor
        self._algorithm = make_algorithm(options, policy)

    @property
    def simulation_seconds(self) -> float:
        """See Trainer."""
        return self._executor.simulation_seconds

    def init(self, seed: int) -> es.State:
        """See Trainer."""
        return self._algorithm.init(jax.random.key(seed))

    def like(self) -> es.State:
        """See Trainer."""
        state: es.State = jax.eval_shape(self._algorithm.init, jax.random.key(0))
        return state

    def recall(self, states: Sequence[es.State], transitions: Sequence[np.ndarray]) -> None:
        """Do nothing, because there is no replay buffer."""

    def iterate(self, states: Sequence[es.State]) -> list[Outcome]:
        """Do one iteration of each run: the rollouts of all runs together, everything else for each run alone."""
        episodes = self._executor.evaluate(self._algorithm.ask, states)
        outcomes, M = [], self._options.population
        for run, (state, results) in enumerate(zip(states, episodes, strict=True)):
            if not (finite := np.isfinite(results.returns)).all():
                member = int(np.asarray(self._algorithm.ask(state).member)[~finite][0])
                raise NotFinite(f"return of member {member}", run)
            new, info = self._algorithm.tell(state, results)
            if not (finite := np.isfinite(np.asarray(new.params)).all(axis=1)).all():
                raise NotFinite(f"parameters of member {np.flatnonzero(~finite)[0]}", run)
            modes = {mode: np.asarray(paid[:M]) for mode, paid in results.modes.items()}
            line = _line(results.returns[:M], modes, info)
            outcomes.append(Outcome(new, int(results.lengths.sum()), line))
        return outcomes

    def population(self, state: es.State) -> Population:
        """See Trainer."""
        agents = jax.tree.map(np.asarray, self._algorithm.population(state))
        standing = self._standing(state, len(agents.params)) if isinstance(self._options, NicheES) else None
        return Population(self._options.task, self._policy, agents, standing)

    @functools.cached_property
    def _coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates of behaviours."""
        return observation_names(self._options, self._policy.num_observed)

    def close(self) -> None:
        """See Trainer."""
        self._executor.close()

    def _standing(self, state: es.State, members: int) -> Standing | None:
        """How the members with which niche-ES would end now compare; None before the first iteration."""
        known = jax.tree.map(np.asarray, niche.known(state.niches))
        if not np.isfinite(known.quality[:members]).all():
            return None
        behaviours = known.behaviours[:members]
        places = Places(known.quality[:members], behaviours, self._coordinates, known.relevance, known.units)
        return Standing(known.shares[:members], known.distinct[:members], places)


def make_trainer(options: ES[Never], num_runs: int) -> Evolution:  # noqa: ARG001 - works for any number of runs
    """The trainer for resolved options, with the executor that they name."""
    policy = make_policy(options)
    return Evolution(options, policy, make_executor(options, policy))


def make_algorithm(options: ES[Never], policy: Policy) -> es.Algorithm:
    """The algorithm for resolved options. Runs share the compiled one if they differ only in options of other parts."""
    values, parts = (tuple(fields.values(options, role).items()) for role in ("algorithm", "part"))
    return _algorithm(options.algorithm, policy, values, parts)


@functools.lru_cache(maxsize=8)
def _algorithm(
    name: str, policy: Policy, items: tuple[tuple[str, Any], ...], of_parts: tuple[tuple[str, Any], ...]
) -> es.Algorithm:
    values, parts = dict(items), dict(of_parts)
    kernel = KERNELS[parts["kernel"]](length_scale=parts["length_scale"])
    controller = bandits.fixed(0.0)
    diversity: es.Diversity = es.no_diversity
    if name == NSRES.algorithm:
        controller = bandits.fixed(parts["novelty_weight"])
        diversity = es.novelty(values["normalization"])
    elif name == DvDES.algorithm:
        controller = make_controller(parts["controller"], values["population"], parts["arms"], parts["patience"])
        diversity = es.determinants(kernel, parts["objective"], values["normalization"])
    elif name == NicheES.algorithm:
        values["niches"] = niches(values["population"], policy.num_observed)
    return es.evolution_strategy(policy, kernel=kernel, controller=controller, diversity=diversity, **values)


def require_executor(name: str) -> None:
    """Check that the executor is installed, before the first iteration needs it.

    Raises:
        DvdrlError: it is not installed.
    """
    if name == "ray":
        import dvdrl.rollouts.ray  # noqa: F401 - raises DvdrlError if Ray is missing
    elif name == "device":
        from dvdrl.engines.device import libraries

        libraries()


def make_executor(options: ES[Never], policy: Policy) -> Executor:
    """The executor that runs the rollouts of a run."""
    require_executor(options.executor)
    if options.executor == "ray":
        from dvdrl.rollouts.ray import Ray

        return Ray(make_envs(options), policy, options.ray_address, options.ray_time_limit)
    if options.executor == "device":
        from dvdrl.rollouts.device import Device

        task_options: dict[str, Any] = options.task_options
        task = registry.make(imported(options.task), **task_options)
        if "device" not in engines_of(task):
            raise DvdrlError(
                f"{task.id}: MuJoCo Warp has no PGS solver, which this task's model requires; use --executor local"
            )
        return Device(task, policy)
    return Local(make_envs(options), policy)


def _line(returns: np.ndarray, modes: dict[str, np.ndarray], info: es.Info) -> dict[str, Any]:
    """The metrics of an iteration, from the returns of the unperturbed members, in total and by mode."""
    diversity = metrics.plain(info.diversity)
    return {
        "best_return": float(returns.max()),
        "mean_return": float(returns.mean()),
        "member_returns": returns.tolist(),
        **{f"mode_{mode}": paid.tolist() for mode, paid in modes.items()},
        "lambda": float(info.lambda_),
        "arm_alpha": np.asarray(info.successes).tolist(),
        "arm_beta": np.asarray(info.failures).tolist(),
        "det": float(np.exp(diversity["log_det"])),
        **diversity,
        **(
            {"shares": standing.shares(diversity["similarities"], returns.tolist())}
            if info.niches is None
            else _of_niches(info.niches)
        ),
    }


def _of_niches(report: Report) -> dict[str, Any]:
    """Of each member: its share of the determinant, whether it is good and different, whether it begins anew."""
    return {
        **metrics.plain({"shares": report.shares}),
        "distinct": np.asarray(report.distinct).tolist(),
        "renewed": np.asarray(report.renewed).tolist(),
    }
