"""TD3, E-TD3 and DvD-TD3 in the training loop: collect, update, evaluate, for all seeds as one program.

A step of the loop: the actions are asked for, then the accelerator is given the updates for the transitions so far, and
while it computes those, the simulations take the actions. Nothing else waits for it within an iteration. An iteration
begins from the states alone, those of the simulations included, whether they come from memory or from disk: so resumed
runs are equal to uninterrupted ones.
"""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Never

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dvdrl import bandits, td3
from dvdrl.diversity import KERNELS
from dvdrl.errors import DvdrlError
from dvdrl.policies import MLP, Agents, Layers, Policy, Population
from dvdrl.policies.heads import head_for
from dvdrl.rollouts.collect import Collector, Snapshot, Steps, bounds, episode_returns
from dvdrl.runs import fields, metrics
from dvdrl.runs.options import TD3, DvDTD3
from dvdrl.runs.trainer import NotFinite, Outcome, make_controller, make_envs

_TRAINING, _EVALUATION, _COMPARISON, _EXPLORATION, _ROUNDS = range(5)
"""What random numbers are for, but for the learner's."""
_RECALLED_AT_ONCE = 50_000
"""Transitions."""


class Round(NamedTuple):
    """The controller and its current round, which ends when every member has finished an episode in it."""

    controller: Any
    num_begun: Int[np.ndarray, ""]
    """Rounds so far; 0 while actions are random."""
    lambda_: Float[np.ndarray, "M"]
    finished: Bool[np.ndarray, "M"]
    returns: Float[np.ndarray, "M"]
    """Of the members' latest episodes in this round."""


class State(NamedTuple):
    """Everything that changes in a run, but for the replay buffer."""

    seed: Int[np.ndarray, ""]
    env_steps: Int[np.ndarray, ""]
    learner: td3.Learner
    round: Round
    simulations: Snapshot
    states: Float[np.ndarray, "s obs"]
    """On which behaviours were compared last."""


class ActorCritic:
    """A trainer of TD3, E-TD3 or DvD-TD3."""

    def __init__(self, options: TD3[Never], num_runs: int):
        make = make_envs(options)
        self._options, self._num_runs = options, num_runs
        self._per_run = options.simulations * options.population
        """Simulations of a run; the i-th is member i mod M's."""
        self._collector = Collector(make, num_runs * self._per_run)
        self._evaluation = make(num_runs * options.population * options.evaluation_episodes)
        self._low, self._high = bounds(self._evaluation)
        observed: Any = self._evaluation.single_observation_space
        self._policy = td3.make_policy(observed.shape[0], len(self._low), options.hidden)
        self._algorithm = make_algorithm(options, self._policy)
        self._num_steps = options.whole_iteration() // self._per_run
        """Of each simulation, in an iteration."""
        self._say_what_may_not_be_meant()
        self.replay_capacity = self._algorithm.capacity
        try:
            _refuse_more_than_memory(num_runs, self.replay_capacity, td3.row_size(observed.shape[0], len(self._low)))
        except DvdrlError:
            self.close()
            raise
        self._replay = self._algorithm.empty(num_runs)
        interval = options.pull_interval if isinstance(options, DvDTD3) else 1
        self._begin_round = _rounds(_controller(options), options.population, interval)
        self._act = jax.jit(functools.partial(_deterministic, self._policy))

    def _say_what_may_not_be_meant(self) -> None:
        options, spec = self._options, self._evaluation.spec
        if options.steps <= options.random_steps:
            print(
                f"dvdrl: nothing will be learned: all {options.steps:,} steps are random; --random-steps says how many"
                " of them are",
                file=sys.stderr,
            )
        longest = (spec.max_episode_steps if spec is not None else None) or 0
        if not self._collector.continues and longest > self._num_steps:
            print(
                f"dvdrl: episodes of {options.task} have up to {longest} steps and are cut short after the"
                f" {self._num_steps} that a simulation makes in an iteration, as they cannot be saved on the way;"
                f" --iteration-steps {longest * self._per_run} lets them end",
                file=sys.stderr,
            )

    @property
    def simulation_seconds(self) -> float:
        """See Trainer; without evaluations."""
        return self._collector.simulation_seconds

    def init(self, seed: int) -> State:
        """See Trainer."""
        M = self._options.population
        # All simulations begin, of which those of one run are taken: each has a generator of its own.
        self._collector.begin(_integers(seed, _TRAINING, 0, self._per_run) * self._num_runs)
        return State(
            seed=np.asarray(seed, np.int64),
            env_steps=np.asarray(0, np.int64),
            learner=self._algorithm.init(jax.random.key(seed)),
            round=Round(
                controller=_on_host(_controller(self._options).init),
                num_begun=np.asarray(0, np.int64),
                lambda_=np.zeros(M, np.float32),
                finished=np.zeros(M, bool),
                returns=np.zeros(M),
            ),
            simulations={name: rows[: self._per_run] for name, rows in self._collector.snapshot().items()},
            states=np.zeros((self._options.num_states or self._options.batch_size, self._policy.sizes[0]), np.float32),
        )

    def like(self) -> State:
        """See Trainer."""
        return self.init(0)

    def recall(self, states: Sequence[State], transitions: Sequence[np.ndarray]) -> None:
        """See Trainer."""
        num_added, (_, capacity, row_size) = int(states[0].env_steps), self._replay.rows.shape
        rows = self._replay.rows
        for run, stored in enumerate(transitions):
            if stored.shape[1] != row_size:
                raise ValueError(f"expected rows of {row_size} numbers, got {stored.shape[1]}")
            latest = stored[-capacity:]
            place, begin = (num_added - len(latest)) % capacity, 0
            while begin < len(latest):  # in parts, each up to the ring's end at most: there need not be memory for two
                end = begin + min(_RECALLED_AT_ONCE, len(latest) - begin, capacity - place)
                rows = _put(rows, latest[None, begin:end], run, place)
                place, begin = (place + end - begin) % capacity, end
        self._replay = td3.Replay(rows, jnp.asarray(num_added, jnp.int32))

    def iterate(self, states: Sequence[State]) -> list[Outcome]:
        """Steps of all simulations with their updates, then an evaluation of all members."""
        algorithm, M, per_run = self._algorithm, self._options.population, self._per_run
        env_steps = int(states[0].env_steps)
        learner: td3.Learner = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(state.learner for state in states))
        sums = algorithm.no_sums(len(states))
        rounds = [jax.tree.map(np.copy, state.round) for state in states]
        lambda_ = self._by_run(*(each.lambda_ for each in rounds))
        lambdas = np.zeros(len(states))
        returns: list[list[float]] = [[] for _ in states]
        noise, random = self._exploration(states)
        obs = self._start(states)
        rows = np.zeros((self._num_steps, len(obs), self._replay.rows.shape[-1]), np.float32)
        now = self._by_run(np.concatenate([rows[0], obs], axis=1))
        pending: list[td3.Step] = []

        for step in range(self._num_steps):
            learning = env_steps >= self._options.random_steps
            if learning and not rounds[0].num_begun:
                rounds = [self._begin_round(state.seed, each, None) for state, each in zip(states, rounds, strict=True)]
                lambda_ = self._by_run(*(each.lambda_ for each in rounds))
            lambdas += [float(each.lambda_.mean()) / self._num_steps for each in rounds]
            asked = algorithm.act(learner.policies, now) if learning else None
            if len(pending) == algorithm.steps_per_update:
                learner, sums = self._learn(learner, sums, pending, lambda_, env_steps)
                pending = []
            if asked is None:
                chosen = random[step]
            else:  # waits for the actions, not for the updates
                chosen = np.clip(np.asarray(asked).reshape(len(obs), -1) + noise[step], -1.0, 1.0)
            if not (finite := np.isfinite(chosen).all(axis=1)).all():
                run, simulation = divmod(int(np.argmin(finite)), per_run)
                raise NotFinite(f"action of member {simulation % M}", run)
            result = self._collector.step(chosen)
            rows[step] = td3.pack(_transitions(obs, chosen, result))
            obs = result.obs
            now = self._by_run(np.concatenate([rows[step], obs], axis=1))
            pending.append(now)
            env_steps += per_run
            for ended in np.flatnonzero(result.ended).tolist():
                run, member, value = ended // per_run, ended % per_run % M, float(result.returns[ended])
                returns[run].append(value)
                if learning:
                    rounds[run].finished[member], rounds[run].returns[member] = True, value
            # After all of the step's episodes: several of a member may have ended in it, and are of one round.
            if any(each.finished.all() for each in rounds):
                rounds = [
                    self._begin_round(state.seed, each, each.returns) if each.finished.all() else each
                    for state, each in zip(states, rounds, strict=True)
                ]
                lambda_ = self._by_run(*(each.lambda_ for each in rounds))
        learner, sums = self._learn(learner, sums, pending, lambda_, env_steps)

        refuse_divergence(learner, sums)
        evaluated = self._evaluate(learner.policies, states)
        _refuse_what_is_not_finite("return of member", np.isfinite(evaluated).all(axis=-1))
        simulations = self._collector.snapshot()
        outcomes = []
        for run, state in enumerate(states):
            mine = slice(run * per_run, (run + 1) * per_run)
            added = rows[:, mine].reshape(-1, rows.shape[-1])
            after = State(
                seed=state.seed,
                env_steps=np.asarray(env_steps, np.int64),
                learner=_of_run(learner, run),
                round=rounds[run],
                simulations={name: values[mine] for name, values in simulations.items()},
                states=self._choose_states(state, added),
            )
            line = self._line(state, after, evaluated[run], returns[run], float(lambdas[run]), _of_run(sums, run))
            outcomes.append(Outcome(after, env_steps - int(state.env_steps), line, added))
        return outcomes

    def population(self, state: State) -> Population:
        """See Trainer."""
        params = self._policy.ravel(jax.tree.map(np.asarray, state.learner.policies))
        shift = np.zeros((len(params), self._policy.sizes[0]), np.float32)
        head = head_for(self._evaluation.single_action_space)
        return Population(self._options.task, Policy(self._policy, head), Agents(params, shift, shift + 1))

    def close(self) -> None:
        """See Trainer."""
        self._collector.close()
        self._evaluation.close()

    def _start(self, states: Sequence[State]) -> Float[np.ndarray, "n obs"]:
        """What to act on first. Simulations that cannot be saved begin new episodes in every iteration."""
        if self._collector.continues:
            return self._collector.restore(
                {name: np.concatenate([state.simulations[name] for state in states]) for name in states[0].simulations}
            )
        return self._collector.begin(
            [seed for state in states for seed in _integers(state.seed, _TRAINING, state.env_steps, self._per_run)]
        )

    def _exploration(
        self, states: Sequence[State]
    ) -> tuple[Float[np.ndarray, "k n act"], Float[np.ndarray, "k n act"]]:
        """Noise on the actions of an iteration, and random actions. From the host, which has time for it."""
        shape = (self._num_steps, self._per_run, len(self._low))
        generators = [np.random.default_rng((int(each.seed), _EXPLORATION, int(each.env_steps))) for each in states]
        noise = [self._options.exploration_noise * each.standard_normal(shape, np.float32) for each in generators]
        random = [2 * each.random(shape, np.float32) - 1 for each in generators]
        return np.concatenate(noise, axis=1), np.concatenate(random, axis=1)

    def _by_run(self, *arrays: np.ndarray) -> Float[Array, "seeds n ..."]:
        """Rows of all simulations, or one array a run, on the accelerator with the axis of seeds."""
        joined = np.concatenate(arrays).astype(np.float32, copy=False)
        # Not by jnp.asarray, which takes more than twice as long.
        placed: Array = jax.device_put(joined.reshape(self._num_runs, -1, *joined.shape[1:]))
        return placed

    def _learn(
        self,
        learner: td3.Learner,
        sums: td3.Sums,
        steps: list[td3.Step],
        lambda_: Float[Array, "seeds M"],
        env_steps: int,
    ) -> tuple[td3.Learner, td3.Sums]:
        """Store the latest steps, and learn unless they were random; returns before that is computed."""
        if env_steps <= self._options.random_steps:
            self._replay = self._algorithm.add(self._replay, steps)
        else:
            learner, self._replay, sums = self._algorithm.update(learner, self._replay, sums, steps, lambda_)
        return learner, sums

    def _evaluate(self, policies: Layers, states: Sequence[State]) -> Float[np.ndarray, "seeds M episodes"]:
        """Returns of each member without exploration; those of a run start alike."""
        M, episodes = self._options.population, self._options.evaluation_episodes
        seeds = [_integers(state.seed, _EVALUATION, state.env_steps, episodes) for state in states]
        returns = episode_returns(
            self._evaluation,
            lambda obs: np.asarray(self._act(policies, obs.astype(np.float32))),
            [seed for of_run in seeds for seed in of_run * M],
        )
        return returns.reshape(len(states), M, episodes)

    def _choose_states(self, state: State, added: Float[np.ndarray, "n row"]) -> Float[np.ndarray, "s obs"]:
        """States of the iteration on which to compare behaviours, for the metrics."""
        num_states, num_observed = state.states.shape
        generator = np.random.default_rng((int(state.seed), _COMPARISON, int(state.env_steps)))
        return added[generator.choice(len(added), num_states, replace=len(added) < num_states), :num_observed]

    def _line(
        self,
        before: State,
        after: State,
        evaluated: Float[np.ndarray, "M episodes"],
        returns: list[float],
        lambda_: float,
        sums: td3.Sums,
    ) -> dict[str, Any]:
        by_member = evaluated.mean(axis=1)
        measured = metrics.plain(self._algorithm.assess(after.learner.policies, jnp.asarray(after.states)))
        num_updates = int(after.learner.num_updates - before.learner.num_updates)
        alpha, beta = bandits.posterior(after.round.controller)
        line = {
            "best_return": float(by_member.max()),
            "mean_return": float(by_member.mean()),
            "member_returns": by_member.tolist(),
            "lambda": lambda_,
            "arm_alpha": np.asarray(alpha).tolist(),
            "arm_beta": np.asarray(beta).tolist(),
            "det": float(np.exp(measured["log_det"])),
            **measured,
            "rounds": int(after.round.num_begun),
            "updates": int(after.learner.num_updates),
        }
        if returns:
            line |= {"training_return": float(np.mean(returns)), "training_episodes": len(returns)}
        if num_updates:
            line |= {
                # In double precision: numbers near the greatest have a mean too.
                "critic_loss": float(np.asarray(sums.squared_errors, np.float64).mean(axis=-1).sum()) / num_updates,
                "value": float(np.asarray(sums.values, np.float64).mean()) / num_updates,
            }
        return line


def _refuse_more_than_memory(num_runs: int, capacity: int, row_size: int) -> None:
    """Refuse replay buffers that cannot be held, instead of being killed when they have filled up."""
    needed = num_runs * capacity * row_size * np.dtype(np.float32).itemsize
    limits = jax.devices()[0].memory_stats() or {}  # of an accelerator
    there = limits.get("bytes_limit") or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise DvdrlError(
            f"buffer_size: {capacity:,} transitions of {num_runs} seeds take {needed / 1e9:,.0f} GB, and there are"
            f" {there / 1e9:,.0f}; keep fewer of them or train fewer seeds at once"
        )


def make_algorithm(options: TD3[Never], policy: MLP) -> td3.Algorithm:
    """The algorithm that resolved options describe; compiled once for all runs that differ in other options."""
    values = fields.values(options, "algorithm")
    # More is never filled: a run is whole iterations.
    iteration = options.whole_iteration()
    values["buffer_size"] = min(options.buffer_size, -(-options.steps // iteration) * iteration)
    kernel = (options.kernel, options.length_scale)
    return _algorithm(policy, kernel, tuple(values.items()))


@functools.lru_cache(maxsize=8)
def _algorithm(policy: MLP, kernel: tuple[str, float], items: tuple[tuple[str, Any], ...]) -> td3.Algorithm:
    return td3.td3(policy, kernel=KERNELS[kernel[0]](length_scale=kernel[1]), **dict(items))


def _controller(options: TD3[Never]) -> bandits.Controller:
    if not isinstance(options, DvDTD3):
        return bandits.fixed(0.0)
    return make_controller(options.controller, options.population, options.arms, options.patience)


def _rounds(controller: bandits.Controller, population: int, interval: int) -> Callable[..., Round]:
    """What begins the next round, given the returns of the one that ended, or None before the first.

    The controller sees every `interval`-th round's returns, and then chooses.
    """

    @jax.jit
    def select(seed: Any, num_begun: Any, state: Any) -> tuple[Any, Float[Array, "M"]]:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), _ROUNDS), num_begun)
        state, lambda_ = controller.select(key, state)
        return state, jnp.broadcast_to(lambda_, population)

    update = jax.jit(controller.update)

    def begin(seed: Int[np.ndarray, ""], before: Round, returns: Float[np.ndarray, "M"] | None) -> Round:
        state, lambda_ = before.controller, before.lambda_
        if before.num_begun % interval == 0:
            if returns is not None:
                state = _on_host(update, state, returns.astype(np.float32))
            state, lambda_ = _on_host(select, seed, before.num_begun, state)
        return Round(state, before.num_begun + 1, lambda_, np.zeros(population, bool), np.zeros(population))

    return begin


def _on_host(function: Callable[..., Any], *arguments: Any) -> Any:
    """Computed on the host, where it does not wait for the accelerator's updates, and as NumPy arrays."""
    try:
        device = jax.devices("cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS allows the accelerator alone: it waits, and is as right
        device = jax.devices()[0]
    with jax.default_device(device):
        return jax.tree.map(np.asarray, function(*arguments))


def _deterministic(policy: MLP, policies: Layers, obs: Float[Array, "n obs"]) -> Float[Array, "n act"]:
    """The members' actions, without noise; the observations are in order of seed, member, episode."""
    seeds, members = policies[0][0].shape[:2]
    actions: Float[Array, "n act"] = policy.apply_layers(policies, obs.reshape(seeds, members, -1, obs.shape[-1]))
    return actions.reshape(len(obs), -1)


def refuse_divergence(learner: td3.Learner, sums: td3.Sums) -> None:
    """Raise NotFinite where that is what training has come to."""
    _refuse_what_is_not_finite("parameters of member", _is_finite(learner.policies))
    _refuse_what_is_not_finite("parameters of critic", _is_finite(learner.critics))
    _refuse_what_is_not_finite("loss of critic", np.isfinite(np.asarray(sums.squared_errors)).all(axis=-1))


def _refuse_what_is_not_finite(what: str, finite: Any) -> None:
    """`finite`: whether it is, by seed and number."""
    if not finite.all():
        run, number = np.argwhere(~finite)[0]
        raise NotFinite(f"{what} {number}", int(run))


def _is_finite(layers: Layers) -> Bool[np.ndarray, "seeds networks"]:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(layers)]
    finite: Bool[np.ndarray, "seeds networks"] = np.logical_and.reduce(
        [np.isfinite(leaf).all(axis=tuple(range(2, leaf.ndim))) for leaf in leaves]
    )
    return finite


def _transitions(
    obs: Float[np.ndarray, "n obs"], actions: Float[np.ndarray, "n act"], result: Steps
) -> td3.Transitions:
    terminated = result.terminated.astype(np.float32)
    return td3.Transitions(obs, actions, result.reward, terminated, result.next_obs)


@functools.partial(jax.jit, donate_argnums=0)
def _put(rows: Float[Array, "seeds capacity row"], new: Float[Array, "1 n row"], run: Any, place: Any) -> Array:
    return jax.lax.dynamic_update_slice(rows, new, (run, place, 0))


def _of_run(tree: Any, run: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[run], tree)


def _integers(seed: Any, purpose: int, position: Any, count: int) -> list[int]:
    """Random integers that follow from a run's seed and where it is."""
    return [int(word) for word in np.random.SeedSequence((int(seed), purpose, int(position))).generate_state(count)]
