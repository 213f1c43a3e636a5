"""What the experiments cost: environment steps, and the time that this machine needs to simulate them."""

import time
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from dvdrl.engines import make_vec
from dvdrl.errors import DvdrlError
from dvdrl.runs.config import ES, TD3, Training, resolve, runs_of
from dvdrl.studies.experiments import EXPERIMENTS, Experiment
from dvdrl.tasks import registry

SIMULATIONS = 64
SECONDS = 0.5
"""Of simulation, to know a task's speed."""


def env_steps(experiment: Experiment, scale: str) -> dict[str, int]:
    """By task; at most, since episodes may end early."""
    totals: dict[str, int] = {}
    for setting in experiment.scales[scale].length:
        for variant in experiment.variants:
            config = resolve(experiment.config(setting, variant, scale))
            num_seeds = len(runs_of(replace(config, seeds=experiment.scales[scale].seeds)))
            totals[config.task] = totals.get(config.task, 0) + num_seeds * _steps(config)
    return totals


def print_costs() -> None:
    """A table of all experiments and scales."""
    from rich.console import Console
    from rich.table import Table

    table = Table("experiment", "of the paper", "claim", "scale", "env steps", "simulated here in")
    table.add_row("tabular", "figure 2", "The determinant singles out the five optimal policies.", "", "", "seconds")
    table.add_row("theory", "figure 1", "The determinant sees what the mean distance does not.", "", "", "seconds")
    speeds: dict[str, float] = {}
    for name, experiment in EXPERIMENTS.items():
        for scale in experiment.scales:
            steps = env_steps(experiment, scale)
            for task in steps.keys() - speeds.keys():
                speeds[task] = _speed(task)
            seconds = sum(count / speeds[task] for task, count in steps.items())
            first = scale == next(iter(experiment.scales))
            about = (name, experiment.figure, experiment.claim) if first else ("", "", "")
            table.add_row(*about, scale, f"{sum(steps.values()):.1e}", _said(seconds))
    Console(width=130).print(table)
    print("On this machine's cores; TD3 makes an update for each step besides.")


def _steps(config: Training) -> int:
    if isinstance(config, TD3):
        return config.steps
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


def _speed(task: str) -> float:
    """Environment steps a second."""
    try:
        envs = make_vec(task, SIMULATIONS)
    except DvdrlError:
        return float("nan")
    envs.reset(seed=0)
    actions = np.zeros(envs.action_space.shape or (), np.float32)
    envs.step(actions)
    begin, count = time.perf_counter(), 0
    while time.perf_counter() < begin + SECONDS:
        envs.step(actions)
        count += SIMULATIONS
    speed = count / (time.perf_counter() - begin)
    envs.close()
    return speed


def _said(seconds: float) -> str:
    if not seconds < float("inf"):
        return "a task that is not installed"
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
