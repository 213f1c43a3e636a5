"""Evolution strategies in the training loop: ask, evaluate, tell.

The rollouts of all seeds are one batch. `ask` and `tell` are separate calls for each seed, of the same compiled
functions. An episode does not depend on its batch, so each seed gives the same bits as if it were trained alone.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Never

import jax
import jax.numpy as jnp
import numpy as np

from dvdrl import bandits, es
from dvdrl.diversity import KERNELS
from dvdrl.engines import engines_of, imported, is_jax, named
from dvdrl.engines.host import HostVectorEnv
from dvdrl.errors import DvdrlError
from dvdrl.interfaces import Ask, Executor, Rollouts
from dvdrl.niches import Rules, niches
from dvdrl.policies import Agents, Policy, Population
from dvdrl.policies import filter as observation_filter
from dvdrl.policies.heads import Categorical
from dvdrl.rollouts.measures import Measure, Measures, checked
from dvdrl.runs import fields, metrics, standing
from dvdrl.runs.memory import NUMBER, Need, refuse_what_cannot_fit
from dvdrl.runs.options import ES, NSRES, DvDES, NicheES, parse_measure
from dvdrl.runs.trainer import (
    NotFinite,
    Outcome,
    make_controller,
    make_envs,
    make_local,
    make_policy,
    observation_names,
)
from dvdrl.tasks import registry

_NONE = Measures()
FIRST_HELD_OUT = 2_000_000
"""The seed of the first start of an evaluation during training. `dvdrl evaluate` has others, so that its returns are
not those by which a population was chosen."""
_BEHAVIOURS: dict[str, es.Behaviour] = {
    "actions": es.actions,
    "visits": es.standardized_visits,
    "measures": es.measures,
}


class Evolution:
    """A trainer of evolution strategies."""

    replay_capacity = 0

    def __init__(
        self,
        options: ES[Never],
        policy: Policy,
        executor: Executor,
        measures: Measures = _NONE,
        evaluation: Executor | None = None,
    ):
        self._options, self._policy, self._executor, self._measures = options, policy, executor, measures
        self._algorithm = make_algorithm(options, policy, measures.size)
        self._evaluation = evaluation
        """Each executor keeps simulations for the number of episodes that it runs. None: do not evaluate."""
        self._held_out = held_out(self._algorithm.members, options.evaluation_episodes)

    @property
    def simulation_seconds(self) -> float:
        """See Trainer."""
        return sum(each.simulation_seconds for each in (self._executor, self._evaluation) if each is not None)

    def init(self, seed: int) -> es.State:
        """See Trainer."""
        return self._algorithm.init(jax.random.key(seed))

    def started_from(self, state: es.State, agents: Agents) -> es.State:
        """See Trainer. A filter counts for as many observations as that of a newborn in niche-ES."""
        moments = observation_filter.as_of(agents.shift, agents.scale, observation_filter.BORROWED)
        return state._replace(params=jnp.asarray(agents.params), moments=moments)

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
            if not (finite := np.isfinite(results.measures)).all():
                row, column = np.argwhere(~finite)[0]
                member = int(self._algorithm.ask(state).member[row])
                raise NotFinite(f"measure {self._measures.names[column]} of member {member}", run)
            new, info = self._algorithm.tell(state, results)
            if not (finite := np.isfinite(np.asarray(new.params)).all(axis=1)).all():
                raise NotFinite(f"parameters of member {np.flatnonzero(~finite)[0]}", run)
            modes = {mode: np.asarray(paid[:M]) for mode, paid in results.modes.items()}
            line = _line(results.returns[:M], modes, info)
            outcomes.append(Outcome(new, int(results.lengths.sum()), line))
        return self._evaluated(outcomes)

    def _evaluated(self, outcomes: list[Outcome]) -> list[Outcome]:
        """With the returns of the members from new starts, for runs that are due."""
        interval = self._options.evaluation_interval
        due = [
            run
            for run, each in enumerate(outcomes)
            if each.state.iteration == 1 or each.state.iteration % interval == 0
        ]
        if self._evaluation is None or not due:
            return outcomes
        episodes = self._evaluation.evaluate(self._held_out, [outcomes[run].state for run in due])
        for run, results in zip(due, episodes, strict=True):
            returns = np.asarray(results.returns, np.float64).reshape(self._options.population, -1)
            if not (finite := np.isfinite(returns).all(axis=1)).all():
                raise NotFinite(f"return of member {np.flatnonzero(~finite)[0]} in its evaluation", run)
            of_members = returns.mean(axis=1)
            line = {"held_out_return": float(of_members.mean()), "held_out_returns": of_members.tolist()}
            kept = None if self._options.keeps_its_best else of_members
            outcomes[run] = outcomes[run]._replace(line=outcomes[run].line | line, evaluated=kept)
        return outcomes

    def population(self, state: es.State) -> Population:
        """See Trainer."""
        members = Population(self._options.task, self._policy, jax.tree.map(np.asarray, self._algorithm.members(state)))
        known = self._algorithm.elites(state)
        if known is None:
            return members
        distinct_only = fields.values(self._options, "part")["distinct_only"]
        return standing.of_known(members, known, self._coordinates, distinct_only=distinct_only)

    @functools.cached_property
    def _coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates of behaviours."""
        kind = fields.values(self._options, "part")["behaviour"]
        if kind == "measures":
            return self._measures.names
        if kind == "visits":
            return observation_names(self._options, self._policy.num_observed)
        states = self._options.num_states
        each = _num_actions(self._policy, 1)
        return tuple(f"action {action} in state {state}" for state in range(states) for action in range(each))

    def close(self) -> None:
        """See Trainer."""
        self._executor.close()
        if self._evaluation is not None:
            self._evaluation.close()


def make_trainer(options: ES[Never], num_runs: int) -> Evolution:
    """The trainer for resolved options, with the executor that they name."""
    policy = make_policy(options)
    refuse_what_cannot_fit(_needs(options, num_runs, policy))
    sampled = options.choices == "sampled"
    if sampled and not isinstance(policy.head, Categorical):
        raise DvdrlError(f"choices: expected greedy, because the actions of {options.task} are no choices; got sampled")
    measures = make_measures(options)
    in_training = dataclasses.replace(policy, sampled=sampled)
    executors = make_executor(options, in_training, measures), make_executor(options, policy)
    return Evolution(options, policy, executors[0], measures, executors[1])


def _needs(options: ES[Never], num_runs: int, policy: Policy) -> list[Need]:
    """What is in memory while the rollouts of an iteration run, or those of an evaluation, if these take more."""
    M, d, num_observed = options.population, policy.network.num_params, policy.num_observed
    agent = NUMBER * (d + 2 * num_observed)
    seen = NUMBER * 3 * num_observed  # one state, and the mean and the deviation of all
    rollouts = 2 * agent + seen  # as they are asked for, and in the batch of all runs
    compared = options.episodes() if fields.values(options, "part").get("behaviour") == "actions" else M
    copies = 3 if options.step_rule == "adam" else 1
    pool = max(options.num_states, min(options.state_pool, options.episodes()))
    kernel = pool if options.state_rule == "k-dpp" else 0
    on_states = NUMBER * options.num_states * (num_observed + compared * policy.head.num_outputs)
    needs = [
        Need("members and their optimizers", ("hidden", "population"), M * copies * NUMBER * d),
        max(
            Need("the rollouts of an iteration", ("sensings", "hidden", "population"), options.episodes() * rollouts),
            Need(
                "the rollouts of an evaluation",
                ("evaluation_episodes", "hidden", "population"),
                M * options.evaluation_episodes * rollouts,
            ),
            key=lambda need: need.size,
        ),
        Need("states and what policies do in them", ("num_states", "sensings", "population"), on_states),
        Need("the states to choose from", ("state_pool", "sensings"), NUMBER * pool * (num_observed + kernel)),
    ]
    seeds = ("seeds",) if num_runs > 1 else ()
    return [Need(each.what, (*each.options, *seeds), num_runs * each.size) for each in needs]


def held_out(members: Callable[[es.State], Agents], episodes: int) -> Ask:
    """What asks for so many episodes of each member from starts on which nothing is trained."""

    @jax.jit
    def ask(state: es.State) -> Rollouts:
        agents = members(state)
        M = agents.params.shape[0]
        each: Agents = jax.tree.map(lambda leaf: jnp.repeat(leaf, episodes, axis=0), agents)
        starts = jnp.tile(FIRST_HELD_OUT + jnp.arange(episodes, dtype=jnp.uint32), M)
        return Rollouts(jnp.repeat(jnp.arange(M), episodes), each, starts, jnp.zeros((M * episodes, 2), jnp.uint32))

    return ask


def make_measures(options: ES[Never]) -> Measures:
    """What is measured of each episode, as one step of an environment shows it; nothing if it is not compared.

    Raises:
        DvdrlError: nothing is named, a module or function does not exist, or as in `rollouts.measures.checked`.
    """
    parts = fields.values(options, "part")
    if parts.get("behaviour") != "measures":
        return _NONE
    with contextlib.closing(make_envs(options)(2)) as envs:  # two, to see that each gets its own row
        names = parts["measures"] or (envs.task.measures if isinstance(envs, HostVectorEnv) else ())
        if not names:
            raise DvdrlError(f"measures: {options.task} has none of its own; --measures names those to compare by")
        measures = tuple(_measure(name) for name in names)
        envs.reset(seed=options.seed)
        envs.action_space.seed(options.seed)
        obs, _, _, _, info = envs.step(envs.action_space.sample())
    return checked(measures, info, obs.astype(np.float64))


def _measure(text: str) -> Measure:
    last, module, name = parse_measure(text)
    if not module:
        return Measure(text, last, name)
    return Measure(text, last, name, named("measures", f"{module}:{name}"))


def make_algorithm(options: ES[Never], policy: Policy, num_measures: int = 0) -> es.Algorithm:
    """The algorithm for resolved options. Runs share the compiled one if they differ only in options of other parts."""
    values, parts = (tuple(fields.values(options, role).items()) for role in ("algorithm", "part"))
    return _algorithm(options.algorithm, policy, num_measures, values, parts)


@functools.lru_cache(maxsize=8)
def _algorithm(
    name: str,
    policy: Policy,
    num_measures: int,
    items: tuple[tuple[str, Any], ...],
    of_parts: tuple[tuple[str, Any], ...],
) -> es.Algorithm:
    values, parts = dict(items), dict(of_parts)
    kernel = KERNELS[parts["kernel"]](length_scale=parts["length_scale"])
    controller = bandits.fixed(0.0)
    diversity: es.Diversity = es.no_diversity
    kind = parts.get("behaviour", "actions")
    behaviour = _BEHAVIOURS[kind]
    if name == NSRES.algorithm:
        controller = bandits.fixed(parts["novelty_weight"])
        diversity = es.novelty(values["normalization"])
    elif name == DvDES.algorithm:
        controller = make_controller(parts["controller"], values["population"], parts["arms"], parts["patience"])
        diversity = es.determinants(kernel, parts["objective"], values["normalization"])
    elif name == NicheES.algorithm:
        if kind == "actions":
            values["state_interval"] = None  # members and elites are compared on the same states for the whole run
        elif kind == "visits":
            behaviour = es.visits  # niches have units of their own
        num_coordinates = {
            "actions": _num_actions(policy, values["num_states"]),
            "visits": policy.num_observed,
            "measures": num_measures,
        }
        left_out = dict.fromkeys(parts["without"], False)
        rules = Rules(least_return=parts["least_return"], **left_out)
        values["niches"] = niches(values["population"], num_coordinates[kind], rules)
    return es.evolution_strategy(
        policy, kernel=kernel, controller=controller, diversity=diversity, behaviour=behaviour, **values
    )


def _num_actions(policy: Policy, num_states: int) -> int:
    """The length of the behaviour that consists of the actions in so many states."""
    agent = Agents(np.zeros(policy.network.num_params), *np.zeros((2, policy.num_observed)))
    return int(jax.eval_shape(policy.behaviour, agent, np.zeros((num_states, policy.num_observed))).size)


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


def make_executor(options: ES[Never], policy: Policy, measures: Measures = _NONE) -> Executor:
    """The executor that runs the rollouts of a run, and measures them."""
    if options.executor != "local" and is_jax(options.task):
        raise DvdrlError(
            f"{options.task} is one program that JAX compiles for this machine's GPU or cores; leave --executor out"
        )
    require_executor(options.executor)
    if options.executor == "ray":
        from dvdrl.rollouts.ray import Ray

        return Ray(make_envs(options), policy, options.ray_address, options.ray_time_limit, measures)
    if options.executor == "device":
        from dvdrl.rollouts.device import Device

        if options.wrappers:
            raise DvdrlError("wrappers: they go around environments in worker processes; use --executor local")
        if options.perturb:
            raise DvdrlError("perturb: all worlds on a GPU have the task's own model; use --executor local")
        task = registry.make(imported(options.task), **options.task_options)
        if "device" not in engines_of(task):
            raise DvdrlError(
                f"{task.id}: MuJoCo Warp has no PGS solver, which this task's model requires; use --executor local"
            )
        return Device(task, policy, measures=measures)
    return make_local(options, policy, measures)


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
            else standing.of_niches(info.niches)
        ),
    }
