"""The costs of the experiments: environment steps, and roughly the time that this machine needs for them."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from dvdrl.engines import make_vec
from dvdrl.errors import DvdrlError
from dvdrl.off_policy import make_critic, make_policy
from dvdrl.off_policy.replay import empty
from dvdrl.runs.config import ES, TD3, Training, resolve, runs_of
from dvdrl.runs.td3 import make_learner
from dvdrl.studies.experiments import EXPERIMENTS, HUMANOID, Experiment
from dvdrl.tasks import registry

SIMULATIONS = 64
SECONDS = 0.5
"""Seconds of simulation, or of updates, for measuring their speed."""


class Speed(NamedTuple):
    """The speed of a task on this machine, and its sizes."""

    env_steps: float
    """Environment steps per second; NaN if the task is not installed."""
    num_observed: int
    num_actions: int


def env_steps(experiment: Experiment, scale: str) -> dict[str, int]:
    """Environment steps by task. They are upper bounds, because episodes may end early."""
    totals: dict[str, int] = {}
    for config, num_seeds in _cells(experiment, scale):
        totals[config.task] = totals.get(config.task, 0) + num_seeds * _steps(config)
    return totals


def multiply_adds(config: TD3, num_observed: int, num_actions: int) -> float:
    """Multiply-adds in the matrix products of one update. They are an upper bound: first layers save some.

    Each of the two derivatives of a product costs as much as the product. Both critics need the targets' actions and
    values, and their own values with all derivatives. In every `policy_delay`-th update, each member needs its actions
    with all derivatives, and the first critic's values with the derivatives for the actions only.
    """
    policy = make_policy(num_observed, num_actions, config.hidden).network.num_params
    critic = make_critic(num_observed, num_actions, config.hidden).num_params
    of_critics = policy + 2 * critic + 2 * 3 * critic
    of_member = 3 * policy + 2 * critic
    return config.batch_size * (of_critics + config.population * of_member / config.policy_delay)


def print_costs() -> None:
    """Print a table of all experiments and scales."""
    from rich.console import Console
    from rich.table import Table

    table = Table("experiment", "of the paper", "claim", "scale", "env steps", "time here")
    table.add_row("tabular", "figure 2", "The determinant singles out the five optimal policies.", "", "", "seconds")
    table.add_row("theory", "figure 1", "The determinant detects what the mean distance misses.", "", "", "seconds")
    print("timing an update and every task, half a second each ...", file=sys.stderr)
    speeds: dict[str, Speed] = {}
    rate = _multiply_adds_a_second()
    for name, experiment in EXPERIMENTS.items():
        for scale in experiment.scales:
            steps = env_steps(experiment, scale)
            for task in steps.keys() - speeds.keys():
                speeds[task] = _speed(task)
            seconds = sum(count / speeds[task].env_steps for task, count in steps.items())
            for config, num_seeds in _cells(experiment, scale):
                if isinstance(config, TD3):  # one update per step
                    seconds += num_seeds * config.steps * multiply_adds(config, *speeds[config.task][1:]) / rate
            first = scale == next(iter(experiment.scales))
            about = (name, experiment.figure, experiment.claim) if first else ("", "", "")
            table.add_row(*about, scale, f"{sum(steps.values()):.1e}", _said(seconds))
    Console(width=130).print(table)
    learned = "there too" if jax.default_backend() == "cpu" else f"on its {jax.devices()[0].device_kind}"
    print(f"Times are rough: simulation on this machine's cores at their present speed, and updates of TD3 {learned}.")


def _cells(experiment: Experiment, scale: str) -> Iterator[tuple[Training, int]]:
    """The options of each cell, and its number of seeds."""
    size = experiment.scales[scale]
    for setting in size.length:
        for variant in experiment.variants:
            config = resolve(experiment.config(setting, variant, scale))
            yield config, len(runs_of(replace(config, seeds=size.seeds)))


def _steps(config: Training) -> int:
    """Environment steps of one run, including evaluations."""
    if isinstance(config, TD3):
        assert config.iterations is not None
        evaluated = config.iterations * config.population * config.evaluation_episodes
        return config.steps + evaluated * _horizon(config)
    assert isinstance(config, ES)
    assert config.iterations is not None
    assert config.population is not None
    assert config.sensings is not None
    updated = 1 if getattr(config, "members", "all") == "one" else config.population
    return config.iterations * (config.population + 2 * config.sensings * updated) * _horizon(config)


def _horizon(config: Training) -> int:
    if config.task not in registry.TASKS:
        return gymnasium.spec(config.task).max_episode_steps or 0
    options: dict[str, Any] = config.task_options
    return registry.make(config.task, **options).horizon


def _speed(task: str) -> Speed:
    try:
        envs = make_vec(task, SIMULATIONS)
    except DvdrlError:
        return Speed(float("nan"), 0, 0)
    envs.reset(seed=0)
    actions = np.zeros(envs.action_space.shape or (), np.float32)
    speed = SIMULATIONS / _seconds(lambda: envs.step(actions))
    envs.close()
    num_observed = (envs.single_observation_space.shape or (0,))[0]
    return Speed(speed, num_observed, actions.shape[1])


def _multiply_adds_a_second() -> float:
    """The speed of TD3's updates. It is timed on the largest, DvD-TD3 on Humanoid, and used for all others."""
    config = resolve(HUMANOID.config("Humanoid-v5", "dvd-td3", "paper"))
    assert isinstance(config, TD3)
    task = registry.make(config.task)
    shapes = task.observation_size, task.action_size
    learner = make_learner(replace(config, buffer_size=1000), make_policy(*shapes, config.hidden))
    per_step = config.simulations * config.population
    rows = jnp.zeros((1, per_step, learner.row_size + 1 + shapes[0]))
    first = jax.vmap(learner.init)(jax.random.split(jax.random.key(0), 1))
    state: list[Any] = [first, empty((1, learner.capacity), learner.row_size), learner.no_statistics(1)]
    steps, lambda_ = [rows] * learner.steps_per_update, jnp.full((1, config.population), 0.5)

    def update() -> None:
        state[:] = learner.update(state[0], state[1], state[2], steps, lambda_)
        jax.block_until_ready(state)

    return learner.steps_per_update * per_step * multiply_adds(config, *shapes) / _seconds(update)


def _seconds(call: Callable[[], Any]) -> float:
    """Seconds per call, after a first call."""
    call()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() < begin + SECONDS:
        call()
        count += 1
    return (time.perf_counter() - begin) / count


def _said(seconds: float) -> str:
    if not seconds < float("inf"):
        return "a task that is not installed"
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
