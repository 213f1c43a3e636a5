"""What runs tasks: MuJoCo on the cores of the host, or Gymnasium's own environments in worker processes."""

from importlib import import_module
from typing import Any

import mujoco
from gymnasium.vector import AutoresetMode, VectorEnv

from dvdrl.engines.gymnasium import WorkersVectorEnv, Wrappers
from dvdrl.engines.host import HostVectorEnv
from dvdrl.errors import DvdrlError
from dvdrl.tasks import registry
from dvdrl.tasks.task import Task

LONGEST = 100_000
"""Steps of an episode that has no other limit."""


def make_vec(
    task: str | Task,
    num_envs: int = 1,
    *,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    wrappers: Wrappers = (),
    num_threads: int | None = None,
    **options: Any,
) -> VectorEnv[Any, Any, Any]:
    """Many environments of a task at once.

    Args:
        task: an id that `dvdrl tasks` lists, any other Gymnasium id (`module:Id-v0` imports the module first), or a
            Task of your own.
        num_envs: how many.
        autoreset_mode: Gymnasium's. With "Disabled", ended episodes rest, at no cost, until they are reset.
        wrappers: Gymnasium wrappers around each environment; the environments then run in worker processes.
        num_threads: how many cores to use; default: all that there are.
        **options: of the task: the fields of its dataclass, or what gymnasium.make takes.
    """
    if num_envs < 1:
        raise DvdrlError(f"num_envs must be at least 1, got {num_envs}")
    if isinstance(task, str):
        task = imported(task)
    if isinstance(task, str) and (task not in registry.TASKS or wrappers):
        return WorkersVectorEnv(task, num_envs, autoreset_mode, wrappers, num_threads, **options)
    if isinstance(task, str):
        task = registry.make(task, **options)
    elif options or wrappers:
        raise DvdrlError(f"options and wrappers go with an id; {task} is a task that has its options already")
    return HostVectorEnv(task, num_envs, autoreset_mode, num_threads)


def imported(task_id: str) -> str:
    """The id alone, after its module, if it names one, has been imported."""
    module, _, name = task_id.rpartition(":")
    if module:
        if not all(part.isidentifier() for part in module.split(".")):
            raise DvdrlError(
                f"{task_id}: {module!r} is no module's name; the part before the colon is a module to import"
            )
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            raise DvdrlError(f"{task_id}: {error}; the part before the colon is a module to import") from error
    return name


def refuse_endless(envs: VectorEnv[Any, Any, Any], num_steps: int) -> None:
    """Refuse to wait any longer for episodes of an environment that has no time limit.

    Raises:
        DvdrlError: they have had `LONGEST` steps.
    """
    if num_steps >= LONGEST and envs.spec is not None and envs.spec.max_episode_steps is None:
        raise DvdrlError(
            f"{envs.spec.id}: an episode has not ended after {LONGEST:,} steps, and the environment has no time limit;"
            " register it with max_episode_steps"
        )


def engines_of(task: Task) -> tuple[str, ...]:
    """The engines that run a task: MuJoCo Warp has no PGS solver, which Gymnasium's humanoids ask for."""
    return ("host",) if task.model.opt.solver == mujoco.mjtSolver.mjSOL_PGS else ("host", "device")
