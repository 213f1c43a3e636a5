"""Any other Gymnasium environment, on all cores: each worker process runs a share of the environments.

Gymnasium's AsyncVectorEnv starts a process for every environment, which is too many for hundreds of rollouts. With
autoreset off, it also cannot leave ended episodes alone while others continue. Here they rest, as in the host engine.

An environment is faulty if it raises, hangs, ends its process, or returns values that are not finite or not in its
space. The error then names the episode and the step.
"""

import contextlib
import functools
import multiprocessing
import os
import signal
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper, batch_space
from numpy.typing import NDArray

from dvdrl.engines.host import Step, num_cores, reset_mask, seeds_of
from dvdrl.engines.spaces import names, with_vectors
from dvdrl.engines.worker import AT_ONCE, Environments, Places, Queue, gather, work
from dvdrl.errors import DvdrlError, explained
from dvdrl.imports import safe_children
from dvdrl.process import UNGUARDED, refuse_script_without_a_file, refuse_unguarded_script
from dvdrl.tasks import registry

TIME_LIMIT = 300.0
"""Seconds after which a worker hangs that has neither answered, nor made, reset or stepped an environment."""
SERVER_GONE = 255
"""The exit code that a process seems to have if the server that forked it is gone."""
OWN_SIGNAL = 1.0
"""Seconds to wait for a signal of this process's own, if a worker has been terminated. Whoever terminates all processes
of a command, as service managers do, may reach the workers first."""
Result = TypeVar("Result")
Wrappers = Sequence[Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]]


class WorkersVectorEnv(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """num_envs environments of one Gymnasium id, each with the wrappers around it."""

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        wrappers: Wrappers = (),
        num_workers: int | None = None,
        **options: Any,
    ):
        refuse_unguarded_script()
        refuse_script_without_a_file()
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        example = make_one(env_id, wrappers, **options)
        make = functools.partial(_make, find_spec(env_id), wrappers, options)
        self.spec = example.spec
        self.metadata = {**example.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_action_space = example.action_space
        self.single_observation_space = example.observation_space
        example.close()
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)

        # Do not fork: JAX has threads, and a forked process inherits their locks.
        context = multiprocessing.get_context("forkserver")
        num_workers = min(num_workers or num_cores(), num_envs)
        self._shares = np.array_split(np.arange(num_envs), num_workers)
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._places = []
        self._end = weakref.finalize(self, _end, self._pipes, self._processes)  # also if `close` is never called
        with safe_children():  # the first lock starts a process that looks after it
            self._counter = context.Value("q", 0)
        for share in self._shares:
            ours, theirs = context.Pipe()
            shared = context.RawArray("q", Places.length(max(AT_ONCE, len(share))))
            arguments = (theirs, CloudpickleWrapper(make), self.autoreset_mode, shared, self._counter)
            process = context.Process(target=work, args=arguments, daemon=True)
            # The first one starts the server that forks all of them, with `python -c`.
            with safe_children(), _one_thread(), _interrupts_blocked():
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
            self._places.append(Places(shared))

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin new episodes in all environments, or in those of options["reset_mask"]; seeds as in Gymnasium."""
        mask = reset_mask(options, self.num_envs)
        others = {name: value for name, value in (options or {}).items() if name != "reset_mask"} or None
        seeds = seeds_of(seed, self.num_envs)
        wanted = [
            {"seed": seeds[i], "options": others} if mask is None or mask[i] else None for i in range(self.num_envs)
        ]
        results = self._ask("reset", wanted)
        return np.stack([observation for observation, _ in results]), gather([info for _, info in results])

    def step(self, actions: NDArray[Any]) -> Step:
        """Take one step in every environment; see VectorEnv."""
        actions = np.asarray(actions)
        if actions.shape != self.action_space.shape or not np.isfinite(actions).all():
            raise ValueError(
                f"expected finite actions of shape {self.action_space.shape}; got shape {actions.shape}"
                f" with {np.count_nonzero(~np.isfinite(actions))} values that are NaN or Inf"
            )
        observations, rewards, terminated, truncated, infos = zip(*self._ask("step", actions), strict=True)
        return (
            np.stack(observations),
            np.array(rewards, np.float64),
            np.array(terminated, bool),
            np.array(truncated, bool),
            gather(infos),
        )

    def run(self, function: Callable[[Environments, Queue], Result], num: int) -> list[Result]:
        """Have every worker call `function(environments, queue)` at the same time; returns one result per worker.

        The queue hands out the numbers 0 to num - 1. Workers import the function. After an error all are ended.
        """
        self._counter.value = 0
        sent: Any = function  # the wrapper's type expects a function that makes an environment
        command = "run", (CloudpickleWrapper(sent), (num, len(self._pipes)))
        results: dict[int, Result] = {}
        try:
            for worker, result, error in self._answers([command] * len(self._pipes)):
                if error is not None:
                    raise error
                results[worker] = result
        except BaseException:
            self.close()
            raise
        return [results[worker] for worker in range(len(results))]

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """End the workers."""
        self._end()

    def _ask(self, command: str, arguments: Any) -> list[Any]:
        """Have all workers execute the same command in parallel; returns one result per environment."""
        results: dict[int, list[Any]] = {}
        errors: dict[int, Exception] = {}
        shares = [(command, arguments[share[0] : share[-1] + 1]) for share in self._shares]
        for worker, result, error in self._answers(shares):
            if error is None:
                results[worker] = result
            else:  # go on: the answers of the others must not be taken for those to the next command
                errors[worker] = error
        if errors:
            raise errors[min(errors)]
        return [result for worker in range(len(results)) for result in results[worker]]

    def _answers(self, commands: Sequence[tuple[str, Any]]) -> Iterator[tuple[int, Any, Exception | None]]:
        """Send each worker its command; yields (worker, result, error) when it has answered."""
        for pipe, command in zip(self._pipes, commands, strict=True):
            try:
                pipe.send(command)
            except OSError:  # its process is gone; the code below reports it
                continue
        waiting = dict(enumerate(self._pipes))
        places: dict[int, bytes] = {}
        while waiting:
            ready = wait(list(waiting.values()), TIME_LIMIT)
            for worker in [worker for worker, pipe in waiting.items() if pipe in ready]:
                del waiting[worker]
                yield worker, *self._received(worker)
            for worker in [] if ready else list(waiting):
                before, places[worker] = places.get(worker), self._places[worker].copied()
                if before == places[worker]:
                    self._processes[worker].kill()
                    del waiting[worker]
                    yield worker, None, self._failure(worker, f"no answer in {TIME_LIMIT:g} seconds")

    def _received(self, worker: int) -> tuple[Any, Exception | None]:
        """The answer of a worker, or of its process's end: (result, error)."""
        try:
            result, error = self._pipes[worker].recv()
        except (EOFError, OSError):
            process = self._processes[worker]
            process.join(timeout=10)
            code = process.exitcode
            if code in (-signal.SIGTERM, SERVER_GONE):
                time.sleep(OWN_SIGNAL)
            if code == UNGUARDED:
                cure = 'its worker imports your script; put what runs there below `if __name__ == "__main__":`'
                return None, self._failure(worker, cure)
            how = f"of {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit code {code}"
            return None, self._failure(worker, f"its process died {how}")
        return result, self._failure(worker, *error) if isinstance(error, tuple) else error

    def _failure(self, worker: int, what: str, trace: str = "") -> DvdrlError:
        """The error of an environment, with its place."""
        name = self.spec.id if self.spec else "the environment"
        failure = DvdrlError(f"{name} failed: {what}; in {self._places[worker]}")
        if trace:
            failure.add_note(trace)
        return failure


def _end(pipes: Sequence[Connection], processes: Sequence[BaseProcess]) -> None:
    """End workers: each ends when its pipe is closed, or is killed."""
    for pipe in pipes:
        pipe.close()
    for process in processes:
        process.join(timeout=10)
        process.kill()


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Start processes in which NumPy has one thread, unless the user says otherwise: each core has a process."""
    if "OMP_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        del os.environ["OMP_NUM_THREADS"]


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Keep Ctrl-C from processes that are started here, also before they can ignore it; this one gets it afterwards."""
    resource_tracker.ensure_running()  # multiprocessing starts it with the first process, and then unblocks Ctrl-C
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def find_spec(env_id: str) -> Any:
    """The gymnasium.envs.registration.EnvSpec of an id; the error for an unknown id suggests similar ones."""
    if env_id not in gymnasium.registry:
        if env_id in registry.TASKS:
            raise DvdrlError(
                f"{env_id} is not one of Gymnasium's environments, so wrappers cannot go around single simulations;"
                " wrap all of them, with gymnasium.wrappers.vector"
            )
        raise registry.unknown(env_id, [*registry.TASKS, *gymnasium.registry])
    return gymnasium.spec(env_id)


def make_one(env_id: str, wrappers: Wrappers = (), **options: Any) -> gymnasium.Env[Any, Any]:
    """One environment, with the wrappers around it, and with observations that are vectors."""
    spec = find_spec(env_id)
    try:
        return _make(spec, wrappers, options)
    except DvdrlError:
        raise
    except Exception as error:  # other people's code may raise anything
        box2d = isinstance(error, DependencyNotInstalled) and "box2d" in str(spec.entry_point)
        advice = "; pip install 'dvdrl[box2d]'" if box2d else ""
        raise DvdrlError(f"{env_id} cannot be made: {explained(error)}{advice}") from error


def make_rendered(env_id: str, wrappers: Wrappers = (), **options: Any) -> gymnasium.Env[Any, Any]:
    """The same, with a `render()` that returns a picture."""
    try:
        env = make_one(env_id, wrappers, render_mode="rgb_array", **options)
    except DvdrlError as error:
        raise DvdrlError(f"{env_id} cannot be rendered: {error}") from error
    if "rgb_array" not in env.metadata.get("render_modes", ()):
        raise DvdrlError(f'{env_id} cannot be rendered: it has no render mode "rgb_array"')
    return env


def observed_names(env_id: str, wrappers: Wrappers = (), **options: Any) -> tuple[str, ...]:
    """The names of the observed values; none if Gymnasium does not know the id."""
    if env_id not in gymnasium.registry:
        return ()
    with contextlib.closing(make_one(env_id, wrappers, **options)) as env:
        return names(env)


class _NewWorld(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives BipedalWalker's episodes a world of their own.

    Gymnasium 1.x uses one world of Box2D for all episodes of an environment, and empties it between them. What remains
    of earlier episodes changes how later ones are rounded, and a walker's next steps.
    """

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        """See Env."""
        walker: Any = self.unwrapped
        walker.terrain = []  # the bodies in the old world need not be destroyed
        walker.world = type(walker.world)()
        return self.env.reset(**how)


def of_seed_alone(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment, with episodes that depend on nothing but their seed and actions."""
    walks = type(env.unwrapped).__module__ == "gymnasium.envs.box2d.bipedal_walker"
    return _NewWorld(env) if walks else env


def _make(spec: Any, wrappers: Wrappers, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    env = of_seed_alone(gymnasium.make(spec, **_whole(options)))
    for wrapper in wrappers:
        env = wrapper(env)
        if not isinstance(env, gymnasium.Env):
            raise DvdrlError(f"{spec.id}: expected an environment from the wrapper {wrapper!r}, got {env!r}")
    return with_vectors(spec.id, env)


def _whole(options: dict[str, Any]) -> dict[str, Any]:
    """Options for `gymnasium.make`. Whole numbers become integers: runs of earlier versions have floats for all."""
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in options.items()
    }
