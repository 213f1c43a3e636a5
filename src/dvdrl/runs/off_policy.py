"""Off-policy learners in the training loop: collect, learn, evaluate, with all seeds in one program.

The trainer knows a learner only as its record (`dvdrl.off_policy.record`). An iteration begins from the states
alone, which include those of the simulations. It does not matter whether they come from memory or from disk, so a
resumed run equals an uninterrupted one.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Never

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dvdrl import bandits, niches
from dvdrl.diversity import KERNELS, Normalization, gram, measure, normalize
from dvdrl.errors import DvdrlError
from dvdrl.niches import Niches, Report, known
from dvdrl.off_policy import Guided, Learner, Step, Transitions, pack, pack_step, unpack
from dvdrl.policies import Agents, Head, Population
from dvdrl.rollouts.collect import Collector, Snapshot, Steps, episode_returns
from dvdrl.runs import fields, metrics, rounds, standing
from dvdrl.runs.memory import NUMBER, Need, bytes_of, refuse_what_cannot_fit
from dvdrl.runs.options import ControlledInRounds, OffPolicyTraining
from dvdrl.runs.pipeline import Pipeline
from dvdrl.runs.rounds import Round, Rounds
from dvdrl.runs.trainer import NotFinite, Outcome, make_controller, make_envs, observation_names

if TYPE_CHECKING:  # importing it needs Ray
    from dvdrl.rollouts.ray import RayCollector

_TRAINING, _EVALUATION, _COMPARISON, _EXPLORATION = range(4)
"""Purposes of random numbers, except those of learners and controllers."""
_PARTS = 10
"""Of an iteration, for the behaviours that niches compare."""


class State(NamedTuple):
    """Everything that changes in a run, except the replay buffer."""

    seed: Int[np.ndarray, ""]
    env_steps: Int[np.ndarray, ""]
    learner: Any
    round: Round
    simulations: Snapshot
    states: Float[np.ndarray, "s obs"]
    """The states on which behaviours were compared last."""
    niches: Any = None
    """The state of the niches; None without them."""


class Collected(NamedTuple):
    """The results of all runs' simulations in an iteration."""

    rows: Float[np.ndarray, "k n row"]
    """The transitions of k steps."""
    returns: list[list[float]]
    """For each run, the returns of the episodes that ended. They include exploration."""
    rounds: Rounds
    env_steps: int
    """Environment steps of each run since it began."""


class OffPolicy:
    """A trainer for any off-policy learner."""

    def __init__(
        self, options: OffPolicyTraining[Never], num_runs: int, learner: Learner, controller: Niches | None = None
    ):
        refuse_what_cannot_fit(_needs(options, num_runs, learner))
        make = make_envs(options)
        self._niches = controller
        """Who is a worse copy of whom, if the options ask for niches."""
        self._options, self._num_runs, self._learner = options, num_runs, learner
        self._per_run = options.simulations * options.population
        """Simulations per run. Simulation i belongs to member i mod M."""
        self._num_steps = options.whole_iteration() // self._per_run
        """Steps of each simulation per iteration."""
        self._collector = _make_collector(options, num_runs * self._per_run, learner.policy.head)
        self._evaluation = make(num_runs * options.population * options.evaluation_episodes)
        self.replay_capacity = learner.capacity
        self._say_what_may_not_be_meant()
        self._pipeline = Pipeline(learner, num_runs)
        interval = options.pull_interval if isinstance(options, ControlledInRounds) else 1
        self._begin_round = rounds.beginning(_controller(options), options.population, interval)

    def _say_what_may_not_be_meant(self) -> None:
        options, spec = self._options, self._evaluation.spec
        if options.steps <= options.random_steps:
            print(
                f"dvdrl: nothing will be learned: all {options.steps:,} steps are random; choose fewer with"
                " --random-steps",
                file=sys.stderr,
            )
        longest = (spec.max_episode_steps if spec is not None else None) or 0
        if not self._collector.continues and longest > self._num_steps:
            print(
                f"dvdrl: episodes of {options.task} can have {longest} steps, but are cut short after the"
                f" {self._num_steps} that a simulation makes per iteration, because this environment cannot save its"
                f" state; --iteration-steps {longest * self._per_run} lets them end",
                file=sys.stderr,
            )

    @property
    def simulation_seconds(self) -> float:
        """See Trainer. Evaluations are not included."""
        return self._collector.simulation_seconds

    def init(self, seed: int) -> State:
        """See Trainer."""
        options = self._options
        # Begin all simulations, and keep those of one run. Each has its own generator, so the others do not matter.
        self._collector.begin(_integers(seed, _TRAINING, 0, self._per_run) * self._num_runs)
        learner = self._learner.init(jax.random.key(seed))
        return State(
            seed=np.asarray(seed, np.int64),
            env_steps=np.asarray(0, np.int64),
            learner=learner,
            round=rounds.none_yet(_controller(options), options.population),
            simulations={name: rows[: self._per_run] for name, rows in self._collector.snapshot().items()},
            states=np.zeros((options.num_states or options.batch_size, self._learner.policy.num_observed), np.float32),
            niches=None if self._niches is None else self._niches.init(self._learner.agents(learner)),
        )

    def started_from(self, state: State, agents: Agents) -> State:
        """See Trainer. Critics and the replay buffer start as always."""
        if self._learner.started_from is None:
            raise DvdrlError(f"from: {self._options.algorithm} cannot start from policies")
        try:
            return state._replace(learner=self._learner.started_from(state.learner, agents))
        except ValueError as error:
            raise DvdrlError(f"from: {error}") from error

    def like(self) -> State:
        """See Trainer."""
        return self.init(0)

    def recall(self, states: Sequence[State], transitions: Sequence[np.ndarray]) -> None:
        """See Trainer."""
        self._pipeline.recall(int(states[0].env_steps), transitions)

    def iterate(self, states: Sequence[State]) -> list[Outcome]:
        """Do the steps of all simulations with their updates, then evaluate all members."""
        collected = self._collect(states)
        for what, finite in self._learner.finite(self._pipeline.state, self._pipeline.statistics).items():
            _refuse_what_is_not_finite(what, finite)
        evaluated = self._evaluate(states)
        _refuse_what_is_not_finite("return of member", np.isfinite(evaluated).all(axis=-1))
        simulations = self._collector.snapshot()
        return [self._outcome(run, state, collected, simulations, evaluated[run]) for run, state in enumerate(states)]

    def population(self, state: State) -> Population:
        """See Trainer."""
        members = Population(self._options.task, self._learner.policy, self._learner.agents(state.learner))
        if self._niches is None:
            return members
        names = observation_names(self._options, self._learner.policy.num_observed)
        distinct_only = fields.values(self._options, "part")["distinct_only"]
        return standing.of_known(members, known(self._niches, state.niches), names, distinct_only=distinct_only)

    def close(self) -> None:
        """See Trainer."""
        self._collector.close()
        self._evaluation.close()

    def _collect(self, states: Sequence[State]) -> Collected:
        """Do the steps of an iteration and start all its updates. The pipeline holds the results of the updates."""
        pipeline, random_steps = self._pipeline, self._options.random_steps
        env_steps = int(states[0].env_steps)
        pipeline.begin([state.learner for state in states])
        of_runs = Rounds(
            self._begin_round, [state.seed for state in states], [state.round for state in states], self._num_steps
        )
        noise, random = self._exploration(states)
        obs = self._start(states)
        rows = np.zeros((self._num_steps, len(obs), self._learner.row_size), np.float32)
        latest = self._by_run(pack_step(rows[0], np.zeros(len(obs), bool), obs))
        returns: list[list[float]] = [[] for _ in states]
        for step in range(self._num_steps):
            acting = env_steps >= random_steps
            if acting:
                of_runs.begin_first()
            of_runs.count()
            asked = pipeline.ask(latest, of_runs.lambda_, act=acting, learn=env_steps > random_steps)
            outputs = random[step] if asked is None else self._explored(asked, noise[step])
            result = self._collector.step(outputs)
            terminated = result.terminated.astype(np.float32)
            rows[step] = pack(Transitions(obs, outputs, result.reward, terminated, result.next_obs))
            obs = result.obs
            latest = self._by_run(pack_step(rows[step], result.ended, obs))
            pipeline.collected(latest)
            env_steps += self._per_run
            for run, member, value in self._ended(result):
                returns[run].append(value)
                if acting:
                    of_runs.finish(run, member, value)
            of_runs.begin_next()
        pipeline.finish(of_runs.lambda_, learn=env_steps > random_steps)
        return Collected(rows, returns, of_runs, env_steps)

    def _start(self, states: Sequence[State]) -> Float[np.ndarray, "n obs"]:
        """The first observations. Simulations that cannot be saved begin new episodes in every iteration."""
        if self._collector.continues:
            return self._collector.restore(
                {name: np.concatenate([state.simulations[name] for state in states]) for name in states[0].simulations}
            )
        return self._collector.begin(
            [seed for state in states for seed in _integers(state.seed, _TRAINING, state.env_steps, self._per_run)]
        )

    def _exploration(
        self, states: Sequence[State]
    ) -> tuple[Float[np.ndarray, "k n ..."], Float[np.ndarray, "k n out"]]:
        """The exploration noise of an iteration, and random outputs. The host draws both, because it has time."""
        shape, num_outputs = (self._num_steps, self._per_run), self._learner.policy.head.num_outputs
        generators = [np.random.default_rng((int(each.seed), _EXPLORATION, int(each.env_steps))) for each in states]
        noise = [self._learner.draw_noise(each, shape) for each in generators]
        random = [2 * each.random((*shape, num_outputs), np.float32) - 1 for each in generators]
        return np.concatenate(noise, axis=1), np.concatenate(random, axis=1)

    def _explored(self, asked: Array, noise: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n out"]:
        """The outputs with exploration. Waits until the accelerator has computed actions, but not for its updates."""
        outputs = self._learner.explore(np.asarray(asked).reshape(len(noise), -1), noise)
        if not (finite := np.isfinite(outputs).all(axis=1)).all():
            run, simulation = divmod(int(np.argmin(finite)), self._per_run)
            raise NotFinite(f"action of member {simulation % self._options.population}", run)
        return outputs

    def _ended(self, result: Steps) -> Iterator[tuple[int, int, float]]:
        """Run, member and return of each episode that ended in a step."""
        for ended in np.flatnonzero(result.ended).tolist():
            run, simulation = divmod(ended, self._per_run)
            yield run, simulation % self._options.population, float(result.returns[ended])

    def _by_run(self, step: Float[np.ndarray, "n row_and_ended_and_obs"]) -> Step:
        """Put a step on the accelerator, with an axis for seeds."""
        # jnp.asarray would take more than twice as long.
        placed: Step = jax.device_put(step.reshape(self._num_runs, self._per_run, -1))
        return placed

    def _evaluate(self, states: Sequence[State]) -> Float[np.ndarray, "seeds M episodes"]:
        """Returns of each member without exploration. All members of a run get the same starts."""
        M, episodes = self._options.population, self._options.evaluation_episodes
        seeds = [_integers(state.seed, _EVALUATION, state.env_steps, episodes) for state in states]

        def act(obs: np.ndarray) -> np.ndarray:
            by_member = obs.astype(np.float32).reshape(len(states), M, episodes, -1)
            outputs = np.asarray(self._learner.greedy(self._pipeline.state, by_member)).reshape(len(obs), -1)
            return np.asarray(self._learner.policy.head.actions(outputs))

        returns = episode_returns(self._evaluation, act, [seed for of_run in seeds for seed in of_run * M])
        return returns.reshape(len(states), M, episodes)

    def _outcome(
        self,
        run: int,
        before: State,
        collected: Collected,
        simulations: Snapshot,
        evaluated: Float[np.ndarray, "M episodes"],
    ) -> Outcome:
        mine = slice(run * self._per_run, (run + 1) * self._per_run)
        added = collected.rows[:, mine].reshape(-1, collected.rows.shape[-1])
        after = State(
            seed=before.seed,
            env_steps=np.asarray(collected.env_steps, np.int64),
            learner=_of_run(self._pipeline.state, run),
            round=collected.rounds.current[run],
            simulations={name: values[mine] for name, values in simulations.items()},
            states=self._choose_states(before, added),
            niches=before.niches,
        )
        line = self._line(run, before, after, collected, evaluated)
        steps = collected.env_steps - int(before.env_steps)
        if self._niches is None:
            return Outcome(after, steps, line, added, evaluated=evaluated.mean(axis=1))
        after, report = self._judged(self._niches, after, collected.rows[:, mine], evaluated)
        return Outcome(after, steps, line | standing.of_niches(report), added)

    def _judged(
        self, controller: Niches, state: State, rows: Float[np.ndarray, "k n row"], evaluated: Float[np.ndarray, "M e"]
    ) -> tuple[State, Report]:
        """The state after the niches have said who begins anew, and what members are to do.

        A behaviour is the mean observation in a part of the iteration. The parts of an iteration show how much a
        member's behaviour varies by itself, and which of its coordinates go with the reward.
        """
        M, num_observed = self._options.population, self._learner.policy.num_observed
        parts = np.array_split(rows.reshape(len(rows), -1, M, rows.shape[-1]), min(_PARTS, len(rows)))
        means = np.stack([part.mean(axis=(0, 1)) for part in parts], axis=1)  # (M, parts, row)
        seen = unpack(means, num_observed)
        # Who is fitter is decided by evaluations; in them, all members have the same starts and no exploration.
        returns = evaluated.mean(axis=1, keepdims=True) + seen.reward - seen.reward.mean(axis=1, keepdims=True)
        agents, observed = self._learner.agents(state.learner), (seen.next_obs, returns.astype(np.float32))
        found, report = _update(controller, state.niches, *observed, agents)
        num_steps = jnp.asarray(int(state.env_steps) // M, jnp.int32)
        assert self._learner.guided is not None
        guidance = controller.guide(found, jnp.asarray(agents.scale[0]))
        learner = self._learner.guided(state.learner, Guided(report.renewed, num_steps, guidance))
        return state._replace(learner=learner, niches=found), report

    def _choose_states(self, state: State, added: Float[np.ndarray, "n row"]) -> Float[np.ndarray, "s obs"]:
        """Choose states of the iteration, on which the metrics compare behaviours."""
        num_states, num_observed = state.states.shape
        generator = np.random.default_rng((int(state.seed), _COMPARISON, int(state.env_steps)))
        return added[generator.choice(len(added), num_states, replace=len(added) < num_states), :num_observed]

    def _line(
        self, run: int, before: State, after: State, collected: Collected, evaluated: Float[np.ndarray, "M episodes"]
    ) -> dict[str, Any]:
        options, learner, returns = self._options, self._learner, collected.returns[run]
        by_member = evaluated.mean(axis=1)
        measured = metrics.plain(
            _measured(
                after.learner,
                jnp.asarray(after.states),
                behaviours=learner.behaviours,
                kernel=(options.kernel, options.length_scale),
                normalization=options.normalization,
            )
        )
        alpha, beta = bandits.posterior(after.round.controller)
        num_updates = learner.num_updates(after.learner)
        line = {
            "best_return": float(by_member.max()),
            "mean_return": float(by_member.mean()),
            "member_returns": by_member.tolist(),
            "lambda": float(collected.rounds.mean_lambda[run]),
            "arm_alpha": np.asarray(alpha).tolist(),
            "arm_beta": np.asarray(beta).tolist(),
            "det": float(np.exp(measured["log_det"])),
            **measured,
            "shares": standing.shares(measured["similarities"], by_member),
            "rounds": int(after.round.num_begun),
            "updates": num_updates,
        }
        if returns:
            line |= {"training_return": float(np.mean(returns)), "training_episodes": len(returns)}
        if new_updates := num_updates - learner.num_updates(before.learner):
            line |= learner.metrics(_of_run(self._pipeline.statistics, run), new_updates)
        return line


@functools.partial(jax.jit, static_argnums=0)
def _update(
    controller: Niches,
    state: niches.State,
    behaviours: Float[Array, "M n obs"],
    returns: Float[Array, "M n"],
    agents: Agents,
) -> tuple[niches.State, Report]:
    return controller.update(state, behaviours, returns, agents)


@functools.partial(jax.jit, static_argnames=("behaviours", "kernel", "normalization"))
def _measured(
    state: Any,
    states: Float[Array, "s obs"],
    *,
    behaviours: Callable[[Any, Float[Array, "s obs"]], Float[Array, "M l"]],
    kernel: tuple[str, float],
    normalization: Normalization,
) -> dict[str, Array]:
    """Diversity metrics of the members of one run on the given states."""
    embeddings = normalize(behaviours(state, states), normalization)
    K = gram(KERNELS[kernel[0]](length_scale=kernel[1]), embeddings)
    return measure(K, embeddings)


def _needs(options: OffPolicyTraining[Never], num_runs: int, learner: Learner) -> list[Need]:
    """What is in memory when the last update of an iteration begins."""
    state = jax.eval_shape(learner.init, jax.random.key(0))
    steps, M, size = options.whole_iteration(), options.population, NUMBER * learner.row_size
    activations = NUMBER * options.batch_size * M * sum(options.hidden)
    needs = [
        Need("networks and their optimizers", ("hidden", "population"), bytes_of(state)),
        Need("the transitions of an iteration", ("iteration_steps", "simulations"), steps * size),
        Need("replay buffers", ("buffer_size",), learner.capacity * size),
        Need("the hidden layers of policies on a batch", ("batch_size", "hidden", "population"), activations),
        Need(
            "the observations of an evaluation",
            ("evaluation_episodes", "population"),
            NUMBER * options.evaluation_episodes * M * learner.policy.num_observed,
        ),
    ]
    seeds = ("seeds",) if num_runs > 1 else ()
    return [Need(each.what, (*each.options, *seeds), num_runs * each.size) for each in needs]


def _make_collector(options: OffPolicyTraining[Never], num_envs: int, head: Head) -> "Collector | RayCollector":
    """What steps the simulations for training."""
    if options.executor == "local":
        return Collector(make_envs(options), num_envs, head)
    from dvdrl.rollouts.ray import RayCollector

    return RayCollector(make_envs(options), num_envs, head, options.ray_address, options.ray_time_limit)


def _controller(options: OffPolicyTraining[Never]) -> bandits.Controller:
    if not isinstance(options, ControlledInRounds):
        return bandits.fixed(0.0)
    return make_controller(options.controller, options.population, options.arms, options.patience)


def _refuse_what_is_not_finite(what: str, finite: Bool[np.ndarray, "seeds k"]) -> None:
    """Raise NotFinite unless all values are finite. `finite[run, number]` is of the quantity called `what number`."""
    if not finite.all():
        run, number = np.argwhere(~finite)[0]
        raise NotFinite(f"{what} {number}", int(run))


def _of_run(tree: Any, run: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[run], tree)


def _integers(seed: Any, purpose: int, position: Any, count: int) -> list[int]:
    """Random integers that depend on a run's seed, their purpose, and the position in the run."""
    return [int(word) for word in np.random.SeedSequence((int(seed), purpose, int(position))).generate_state(count)]
