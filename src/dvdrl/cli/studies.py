"""The commands that need no run: `dvdrl reproduce`, `bench` and `tasks`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from dvdrl.errors import DvdrlError
from dvdrl.studies.names import ExperimentName, Scale


@dataclass(frozen=True)
class Reproduce:
    """Reproduce an experiment of the paper: print its tables, and save the numbers and the figure.

    `dvdrl reproduce --list` describes each experiment and estimates its cost on this machine. Ctrl-C stops it and
    makes the tables of what is finished. The same command then continues it: its runs are in runs/EXPERIMENT.
    """

    experiment: Positional[ExperimentName | None] = None
    """The experiment to reproduce."""
    scale: Scale = "paper"
    """How much of it to run. smoke: just to see that it runs. small: about an hour on two cores.
    medium: at most a fifth of the paper's rollouts, for a GPU. paper: as in the paper.
    Experiments that are small anyway have no medium."""
    setting: str | None = None
    """Only one task, such as Swimmer-v5, or one wall, such as "half width 4". Default: all of the scale."""
    seeds: str | None = None
    """First and last seed to train, such as 0..9. Default: as many as in the paper; fewer at smaller scales."""
    executor: Literal["local", "ray", "device"] = "local"
    """Where the rollouts of ES run, as in `dvdrl train`."""
    processes: int = 1
    """Number of trainings that run at once, each in its own process."""
    tables_only: bool = False
    """Train nothing. Make the tables and the figure from what is finished, and report which cells are not."""
    out: Path | None = None
    """Directory for the tables, the figure, their data and a record of how they were made.
    Results that are already there are not trained again.
    Default: results/EXPERIMENT; with --setting, results/EXPERIMENT/SETTING. That of modes-qd is that of modes."""
    list: bool = False
    """Only list the experiments and their costs."""

    def __call__(self) -> None:
        """Run the experiment."""
        from importlib import import_module

        if self.list:
            import_module("dvdrl.studies.costs").print_costs()
            return
        if self.experiment is None:
            raise DvdrlError("reproduce: name an experiment; `dvdrl reproduce --list` lists them")
        options = {name: value for name, value in vars(self).items() if name not in ("experiment", "list")}
        import_module("dvdrl.studies.reproduce").reproduce(self.experiment, **options)


@dataclass(frozen=True)
class Bench:
    """Measure speed, as ratios to a reference that is timed in the same run.

    - diversity: Gram matrix, log determinant and gradient, compared to an actor-critic update on the same batch.
    - tasks: environment steps per second of an engine, compared to the physics alone and to Gymnasium (minutes).
    - es: DvD-ES on HalfCheetah, compared to a bare mj_step loop; how Ray scales; ten seeds on a GPU (minutes).
    - td3: an update by population size, compared to one agent and to sbx-rl; all of DvD-TD3 on Humanoid (minutes).
    - off-policy: an update of XQC by population size, compared to TD3 and to CrossQ and TD3 of sbx-rl (minutes).
    - adapt: no speed, but what rules choose among made-up arms, and how many trials they need.
    """

    subject: Positional[Literal["diversity", "tasks", "es", "td3", "off-policy", "adapt"]]
    """What to measure."""
    engine: Literal["host", "device", "jax"] = "host"
    """For tasks and es. host: this machine's cores. device: its GPU. jax, only for tasks: whole episodes of JAX
    environments, compared to gymnax's and Playground's own rollouts, on whatever JAX runs on."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def __call__(self) -> None:
        """Measure and print."""
        from importlib import import_module

        others = {"device": {"tasks": "device", "es": "es_device"}, "jax": {"tasks": "jax"}}
        modules = others.get(self.engine, {self.subject: self.subject})
        if self.subject not in modules:
            raise DvdrlError(f"bench {self.subject}: --engine {self.engine} is for {' and '.join(modules)}")
        module = modules[self.subject].replace("-", "_")
        import_module(f"dvdrl.benchmarks.{module}").bench(as_json=self.json)


@dataclass(frozen=True)
class Tasks:
    """List the tasks, with their sizes, their horizon and the engines that run them."""

    task: Positional[str | None] = None
    """List only this one, which may be any id that can be trained on."""
    perturbations: bool = False
    """List what `--perturb` can change in the task, with the ranges of values."""

    def __call__(self) -> None:
        """Print the table."""
        from rich.console import Console
        from rich.table import Table

        from dvdrl.engines import engines_of, perturbations
        from dvdrl.imports import search_working_directory
        from dvdrl.tasks.registry import TASKS, make

        if self.task is not None:
            search_working_directory(named=":" in self.task)
        if self.perturbations:
            if self.task is None:
                raise DvdrlError("tasks: --perturbations needs a task, as in `dvdrl tasks Ant-v5 --perturbations`")
            table = Table("perturbation", "from", "to", "as it is", "what", box=None, header_style="bold")
            for each in perturbations(self.task).values():
                table.add_row(each.name, *(f"{x:g}" for x in (each.low, each.high, each.unchanged)), each.about)
            Console().print(table)
            return
        table = Table("task", "observation", "action", "horizon", "engines", box=None, header_style="bold")
        if self.task is not None and self.task not in TASKS:
            table.add_row(self.task, *_sizes_of(self.task))
            Console().print(table)
            return
        for task in map(make, [self.task] if self.task else TASKS):
            sizes = map(str, (task.observation_size, task.action_size, task.horizon))
            table.add_row(task.id, *sizes, ", ".join(engines_of(task)))
        if self.task is None:
            table.add_row("gymnax:NAME, playground:NAME", "", "", "", "jax")
            table.add_row("any other Gymnasium id", "", "", "", "gymnasium")
        Console().print(table)


def _sizes_of(task: str) -> tuple[str, str, str, str]:
    """The numbers of an observation, the actions, the horizon and the engine of a task that is not one of ours."""
    from contextlib import closing

    from gymnasium.spaces import Box, flatdim

    from dvdrl.engines import make_vec
    from dvdrl.engines.gymnasium import WorkersVectorEnv
    from dvdrl.engines.host import HostVectorEnv
    from dvdrl.engines.jax import JaxVectorEnv

    with closing(make_vec(task, 1)) as envs:
        observation, action = envs.single_observation_space, envs.single_action_space
        horizon = envs.spec and envs.spec.max_episode_steps
        if isinstance(envs, HostVectorEnv):
            engine, horizon = "host", envs.task.horizon
        elif isinstance(envs, JaxVectorEnv):
            engine, horizon = "jax", envs.env.horizon
        else:
            engine = "gymnasium" if isinstance(envs, WorkersVectorEnv) else task.partition(":")[0]
    actions = action.shape[0] if isinstance(action, Box) else action
    return str(flatdim(observation)), str(actions), "" if horizon is None else str(horizon), engine
