"""The costs of the experiments: environment steps, and an estimate of the time that this machine needs for them."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Never

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from dvdrl.engines import make_vec
from dvdrl.errors import DvdrlError
from dvdrl.off_policy import make_policy
from dvdrl.off_policy.replay import empty
from dvdrl.runs.directory import planned
from dvdrl.runs.learners import make_learner
from dvdrl.runs.options import DvDTD3
from dvdrl.runs.presets import resolve
from dvdrl.runs.training import Training
from dvdrl.studies.experiment import Experiment
from dvdrl.studies.experiments import EXPERIMENTS
from dvdrl.tasks import registry

SIMULATIONS = 64
SECONDS = 0.5
"""Seconds for which simulation, or updates, are timed."""


class Speed(NamedTuple):
    """The speed of a task on this machine, and its sizes."""

    env_steps: float
    """Environment steps per second; NaN if the task is not installed."""
    num_observed: int
    num_actions: int


def env_steps(experiment: Experiment, scale: str) -> dict[str, int]:
    """Environment steps by task. They are upper bounds, to an iteration, because episodes may end early."""
    totals: dict[str, int] = {}
    for config, num_seeds in _cells(experiment, scale):
        totals[config.task] = totals.get(config.task, 0) + num_seeds * config.env_steps(_horizon(config))
    return totals


def print_costs() -> None:
    """Print a table of all experiments and scales."""
    from rich.console import Console
    from rich.table import Table

    table = Table("experiment", "of the paper", "claim", "scale", "env steps", "time here")
    table.add_row("tabular", "figure 2", "The determinant singles out the five optimal policies.", "", "", "seconds")
    table.add_row("theory", "figure 1", "The determinant detects what the mean distance misses.", "", "", "seconds")
    modes = "Not in the paper: how many modes CMA-MAE finds, which knows the tasks' measures (pyribs)."
    table.add_row("modes-qd", "", modes, "paper", "", "half a minute per seed")
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
                seconds += num_seeds * config.multiply_adds(*speeds[config.task][1:]) / rate
            first = scale == next(iter(experiment.scales))
            about = (name, experiment.figure, experiment.claim) if first else ("", "", "")
            table.add_row(*about, scale, f"{sum(steps.values()):.1e}", _said(seconds))
    Console(width=130).print(table)
    learned = "there too" if jax.default_backend() == "cpu" else f"on its {jax.devices()[0].device_kind}"
    print(f"Times are rough: simulation is timed on this machine's cores as they are now, updates of TD3 {learned}.")


def _cells(experiment: Experiment, scale: str) -> Iterator[tuple[Training[Never], int]]:
    """The options of each cell, and its number of seeds."""
    size = experiment.scales[scale]
    for setting in size.length:
        for variant in experiment.variants:
            config = resolve(experiment.config(setting, variant, scale))
            yield config, len(planned(replace(config, seeds=size.seeds)))


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
    envs.action_space.seed(0)
    actions = envs.action_space.sample()
    speed = SIMULATIONS / _seconds(lambda: envs.step(actions))
    envs.close()
    num_observed = (envs.single_observation_space.shape or (0,))[0]
    return Speed(speed, num_observed, int(np.prod(envs.single_action_space.shape or ())))


def _multiply_adds_a_second() -> float:
    """The speed of TD3's updates. It is timed on the largest ones, DvD-TD3's on Humanoid, and used for all others."""
    config = resolve(DvDTD3(task="Humanoid-v5", simulations=4, steps=1_000_000, iteration_steps=40_000))
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

    return learner.steps_per_update * per_step * config.multiply_adds(*shapes) / config.steps / _seconds(update)


def _seconds(call: Callable[[], Any]) -> float:
    """Seconds per call; the first call is not timed."""
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
