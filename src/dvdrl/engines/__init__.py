"""Engines run tasks: MuJoCo on the cores of the host, Gymnasium's own environments in worker processes, or JAX."""

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mujoco
from gymnasium import Env
from gymnasium.vector import AutoresetMode, VectorEnv

from dvdrl.engines.gymnasium import WorkersVectorEnv, Wrappers, make_one, observed_names
from dvdrl.engines.host import HostVectorEnv
from dvdrl.engines.jax import JaxEngine, JaxEnvironment
from dvdrl.engines.jax_libraries import load_gymnax, load_playground
from dvdrl.engines.perturbed import Perturbed, known_of
from dvdrl.errors import DvdrlError, expect
from dvdrl.imports import import_named
from dvdrl.tasks import registry
from dvdrl.tasks.names import generic_name
from dvdrl.tasks.perturbations import UNPERTURBED, Perturb, Perturbation, of_model
from dvdrl.tasks.task import Task

Engine = Callable[..., VectorEnv[Any, Any, Any]]
"""(name, num_envs, *, autoreset_mode, wrappers, num_threads, **options) -> the environments."""
ENGINES: dict[str, Engine] = {"gymnax": JaxEngine(load_gymnax), "playground": JaxEngine(load_playground)}
"""Further engines, by the prefix of the ids that they run: `prefix:name`."""


def register_engine(prefix: str, engine: Engine) -> None:
    """Have an engine run the ids that begin with `prefix:`."""
    ENGINES[prefix] = engine


def is_jax(task: str) -> bool:
    """Whether JAX compiles the environments of this id."""
    return isinstance(ENGINES.get(task.partition(":")[0]), JaxEngine)


def jax_environment(task: str, **options: Any) -> JaxEnvironment | None:
    """The environment of such an id; None for any other."""
    prefix, _, name = task.partition(":")
    engine = ENGINES.get(prefix)
    return engine.load(name, **options) if isinstance(engine, JaxEngine) else None


LONGEST = 100_000
"""The most steps of an episode that has no other limit."""


def make_vec(
    task: str | Task,
    num_envs: int = 1,
    *,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    wrappers: Wrappers = (),
    num_threads: int | None = None,
    perturb: Perturb | Sequence[Perturb] = UNPERTURBED,
    **options: Any,
) -> VectorEnv[Any, Any, Any]:
    """Make many environments of a task.

    Args:
        task: an id that `dvdrl tasks` lists, `gymnax:NAME` or `playground:NAME`, `prefix:name` for an engine that was
            registered with that prefix, any other Gymnasium id (`module:Id-v0` imports the module first), or your own
            Task.
        num_envs: the number of environments.
        autoreset_mode: as in Gymnasium. With "Disabled", ended episodes rest, at no cost, until they are reset.
        wrappers: Gymnasium wrappers around each environment; the environments then run in worker processes.
        num_threads: the number of cores to use; default: all.
        perturb: what is changed in the environments, such as {"friction": 0.5} (docs/adapt.md). On the host engine,
            also one mapping for each environment.
        **options: options of the task: the fields of its dataclass, or arguments of gymnasium.make.
    """
    expect("task", task, str, Task)
    expect("num_envs", num_envs, int)
    if num_envs < 1:
        raise DvdrlError(f"num_envs must be at least 1, got {num_envs}")
    if isinstance(task, str):
        prefix, _, name = task.partition(":")
        if prefix in ENGINES:
            _refuse_to_perturb(task, perturb)
            more: dict[str, Any] = {"autoreset_mode": autoreset_mode, "wrappers": wrappers, "num_threads": num_threads}
            return ENGINES[prefix](name, num_envs, **more, **options)
        task = imported(task)
    if isinstance(task, str) and (task not in registry.TASKS or wrappers):
        around = (*perturbing(task, perturb), *wrappers)
        return WorkersVectorEnv(task, num_envs, autoreset_mode, around, num_threads, **options)
    if isinstance(task, str):
        task = registry.make(task, **options)
    elif options or wrappers:
        raise DvdrlError(f"options and wrappers need the id of a task; {task} is a Task, which has its options already")
    return HostVectorEnv(task, num_envs, autoreset_mode, num_threads, perturb)


def perturbing(task: str, perturb: Perturb | Sequence[Perturb]) -> Wrappers:
    """The innermost wrapper of perturbed environments that run in worker processes; none if nothing is changed."""
    if not perturb:
        return ()
    if not isinstance(perturb, Mapping):
        raise DvdrlError(f"perturb: environments of {task} run in worker processes, where all are perturbed alike")
    return (functools.partial(Perturbed, perturb=dict(perturb)),)


def perturbations(task: str, wrappers: Wrappers = (), **options: Any) -> dict[str, Perturbation]:
    """The perturbations of a task, by name. Task, wrappers and options are as for `make_vec`."""
    if task.partition(":")[0] in ENGINES:
        _refuse_to_perturb(task, {"": 0})
    name = imported(task)
    if name in registry.TASKS and not wrappers:
        return of_model(registry.make(name, **options).model)
    with contextlib.closing(make_one(name, **options)) as env:
        return known_of(env)


def _refuse_to_perturb(task: str, perturb: Perturb | Sequence[Perturb]) -> None:
    if perturb:
        raise DvdrlError(f"perturb: {task} runs on another engine, and only tasks on MuJoCo and Gymnasium's can change")


def module_of(task_id: str) -> str:
    """The module that an id names before its colon; empty if it names none, or an engine instead."""
    return "" if task_id.partition(":")[0] in ENGINES else task_id.rpartition(":")[0]


def imported(task_id: str) -> str:
    """Import the module that the id names, if any, and return the id without it."""
    module, _, name = task_id.rpartition(":")
    if module:
        import_named(module, task_id, "; the part before the colon is a module to import")
    return name


def named(option: str, text: str) -> Callable[..., Any]:
    """What `module:callable` names, imported; `option` is where the user wrote it."""
    name = imported(text)
    module = text.removesuffix(f":{name}")
    if not callable(found := getattr(sys.modules[module], name, None)):
        raise DvdrlError(f"{option}: {module} has no function {name}")
    return found  # type: ignore[no-any-return]


def observation_names(task: str | Task, size: int, *, wrappers: Wrappers = (), **options: Any) -> tuple[str, ...]:
    """The names of the `size` values that environments of a task observe; see `Task.observation_names`.

    Task, wrappers and options are as for `make_vec`. Gymnasium's environments have names of their own for what is not
    one vector, such as `desired_goal[0]`. All others have generic names, and so has every environment that observes
    another number of values.
    """
    names: tuple[str, ...] = ()
    if isinstance(task, str):
        name = task.removeprefix(f"{module_of(task)}:")
        if name in registry.TASKS and not wrappers:
            task = registry.make(name, **options)
        else:
            names = observed_names(name, wrappers, **options)
    if isinstance(task, Task):
        names = task.observation_names
    return names if len(names) == size else tuple(map(generic_name, range(size)))


def refuse_endless(envs: VectorEnv[Any, Any, Any] | Env[Any, Any], num_steps: int) -> None:
    """Stop waiting for episodes of an environment that has no time limit.

    Raises:
        DvdrlError: the episodes have had `LONGEST` steps.
    """
    if num_steps >= LONGEST and envs.spec is not None and envs.spec.max_episode_steps is None:
        raise DvdrlError(
            f"{envs.spec.id}: an episode has not ended after {LONGEST:,} steps, and the environment has no time limit;"
            " register it with max_episode_steps"
        )


def engines_of(task: Task) -> tuple[str, ...]:
    """The engines that run a task. MuJoCo Warp has no PGS solver, which Gymnasium's humanoids need."""
    return ("host",) if task.model.opt.solver == mujoco.mjtSolver.mjSOL_PGS else ("host", "device")
