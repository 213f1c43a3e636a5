"""Any other Gymnasium environment, on all cores: each worker process runs a share of the environments.

Gymnasium's AsyncVectorEnv starts a process for every environment, which is too many for hundreds of rollouts. With
autoreset off, it also cannot leave ended episodes alone while others continue. Here they rest, as in the host engine.

An environment is faulty if it raises, hangs, ends its process, or returns values that are not finite or not in its
space. The error then names the episode and the step.
"""

import contextlib
import functools
import math
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import DependencyNotInstalled, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import CloudpickleWrapper, batch_space
from numpy.typing import NDArray

from dvdrl.engines.host import Step, num_cores, reset_mask, seeds_of
from dvdrl.engines.spaces import names, with_vectors
from dvdrl.errors import DvdrlError, explained
from dvdrl.imports import safe_children, unsafe_again
from dvdrl.process import UNGUARDED, refuse_unguarded_script
from dvdrl.tasks import registry

TIME_LIMIT = 300.0
"""Time limit in seconds for a step or a reset of all environments of a worker together."""
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
        self._processes = []
        self._places = []
        for share in self._shares:
            ours, theirs = context.Pipe()
            self._places.append(context.RawArray("q", 1 + 3 * len(share)))
            arguments = (theirs, CloudpickleWrapper(make), len(share), self.autoreset_mode, self._places[-1])
            process = context.Process(target=_work, args=arguments, daemon=True)
            # The first one starts the server that forks all of them, with `python -c`.
            with safe_children(), _interrupts_blocked():
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

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
        return np.stack([observation for observation, _ in results]), self._gather([info for _, info in results])

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
            self._gather(infos),
        )

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """End the workers."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=10)
            process.kill()

    def __del__(self) -> None:
        """End the workers if `close` was not called."""
        if hasattr(self, "_processes"):
            self.close()

    def _ask(self, command: str, arguments: Any) -> list[Any]:
        """Have all workers execute the same command in parallel; returns one result per environment."""
        for worker, share in enumerate(self._shares):
            try:
                self._pipes[worker].send((command, arguments[share[0] : share[-1] + 1]))
            except OSError:  # its process is gone; the code below reports it
                continue
        end = time.monotonic() + TIME_LIMIT
        answers = [self._answer(worker, max(0.0, end - time.monotonic())) for worker in range(len(self._shares))]
        for worker, (_, error) in enumerate(answers):
            if isinstance(error, ResetNeeded):
                raise error
            if error is not None:
                said, trace = error
                current, places = _as_places(self._places[worker])
                seed, episode, step = places[current[0]].tolist()
                where = f"seed {seed if seed >= 0 else 'None'}, episode {episode}, step {step}"
                failure = DvdrlError(f"{self.spec.id if self.spec else 'the environment'} failed: {said}; in {where}")
                if trace:
                    failure.add_note(trace)
                raise failure
        return [result for results, _ in answers for result in results]

    def _answer(self, worker: int, seconds: float) -> tuple[list[Any], Any]:
        """Returns (results, None), or ([], error)."""
        pipe, process = self._pipes[worker], self._processes[worker]
        try:
            if pipe.poll(seconds):
                answer: tuple[list[Any], Any] = pipe.recv()
                return answer
            process.kill()
            return [], (f"no answer in {TIME_LIMIT:g} seconds", "")
        except (EOFError, OSError):
            process.join(timeout=10)
            code = process.exitcode
            if code == UNGUARDED:
                return [], (
                    'its worker imports your script; put what runs there below `if __name__ == "__main__":`',
                    "",
                )
            how = f"of {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit code {code}"
            return [], (f"its process died {how}", "")

    def _gather(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        gathered: dict[str, Any] = {}
        for name in dict.fromkeys(name for info in infos for name in info):
            having = [i for i, info in enumerate(infos) if name in info]
            try:
                for i in having:
                    gathered = self._add_info(gathered, {name: infos[i][name]}, i)
            except ValueError:  # Gymnasium cannot stack arrays of different shapes: keep them as they are
                gathered[name] = np.full(self.num_envs, None, object)
                gathered["_" + name] = np.isin(np.arange(self.num_envs), having)
                for i in having:
                    gathered[name][i] = infos[i][name]
        return gathered


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


def _make(spec: Any, wrappers: Wrappers, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    env: gymnasium.Env[Any, Any] = gymnasium.make(spec, **_whole(options))
    for wrapper in wrappers:
        env = wrapper(env)
        if not isinstance(env, gymnasium.Env):
            raise DvdrlError(f"{spec.id}: expected an environment from the wrapper {wrapper!r}, got {env!r}")
    return with_vectors(spec.id, env)


def _whole(options: dict[str, Any]) -> dict[str, Any]:
    """Options for `gymnasium.make`. On the command line all values are floats; whole numbers become integers."""
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in options.items()
    }


def _as_places(shared: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The environment that a worker is stepping or resetting; and seed, episode and step of each."""
    numbers = np.frombuffer(shared, np.int64)
    return numbers[:1], numbers[1:].reshape(-1, 3)


class _Episodes:
    """The environments of one worker. It writes the progress of each to `shared`."""

    def __init__(
        self, make: Callable[[], gymnasium.Env[Any, Any]], num_envs: int, autoreset_mode: AutoresetMode, shared: Any
    ):
        self.current, self.places = _as_places(shared)
        self.places[:] = -1, 0, 0
        self.envs = [make() for _ in range(num_envs)]
        self.shape = self.envs[0].observation_space.shape
        self.autoreset_mode = autoreset_mode
        # The last observation, terminated and truncated of each environment.
        self.last: list[tuple[Any, bool, bool] | None] = [None] * num_envs

    def reset(self, wanted: Sequence[dict[str, Any] | None]) -> list[tuple[Any, dict[str, Any]]]:
        """Begin new episodes in the wanted environments."""
        results = [self._reset(i, **how) if how is not None else (self._last(i)[0], {}) for i, how in enumerate(wanted)]
        self._check([observation for observation, _ in results], [0.0] * len(results))
        return results

    def step(self, actions: NDArray[Any]) -> list[tuple[Any, float, bool, bool, dict[str, Any]]]:
        """Take one step in each environment."""
        results = [self._step(i, action) for i, action in enumerate(actions)]
        self._check([result[0] for result in results], [result[1] for result in results])
        return results

    def _last(self, i: int) -> tuple[Any, bool, bool]:
        last = self.last[i]
        if last is None:
            raise ResetNeeded("step was called before the first reset; call reset first")
        return last

    def _reset(self, i: int, **how: Any) -> tuple[Any, dict[str, Any]]:
        self.current[0] = i
        seed, place = how.get("seed"), self.places[i]
        place[:] = (place[0], place[1] + 1, 0) if seed is None else (seed, 1, 0)
        observation, info = self.envs[i].reset(**how)
        self.last[i] = observation, False, False
        return observation, info

    def _step(self, i: int, action: NDArray[Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, terminated, truncated = self._last(i)
        if terminated or truncated:
            if self.autoreset_mode is AutoresetMode.DISABLED:
                return observation, 0.0, terminated, truncated, {}
            observation, info = self._reset(i)
            return observation, 0.0, False, False, info
        self.current[0] = i
        self.places[i, 2] += 1
        observation, reward, terminated, truncated, info = self.envs[i].step(action)
        self.last[i] = observation, terminated, truncated
        if (terminated or truncated) and self.autoreset_mode is AutoresetMode.SAME_STEP:
            self._check_one(observation, float(reward))
            final = {"final_obs": observation, "final_info": info}
            observation, info = self._reset(i)
            info = {**final, **info}
        return observation, float(reward), terminated, truncated, info

    def _check(self, observations: list[Any], rewards: list[float]) -> None:
        """Check all results at once, which is cheap. Bad values would cause wrong numbers or errors later."""
        alike = all(np.shape(observation) == self.shape for observation in observations)
        if alike and np.isfinite(np.asarray(observations)).all() and np.isfinite(rewards).all():
            return
        for i, (observation, reward) in enumerate(zip(observations, rewards, strict=True)):
            self.current[0] = i
            self._check_one(observation, reward)

    def _check_one(self, observation: Any, reward: float) -> None:
        if np.shape(observation) != self.shape:
            raise ValueError(f"expected an observation of shape {self.shape}, got {np.shape(observation)}")
        if not np.isfinite(observation).all():
            raise ValueError(f"the observation is not finite: {observation}")
        if not math.isfinite(reward):
            raise ValueError(f"the reward is not finite: {reward}")


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Keep Ctrl-C from processes that are started here, also before they can ignore it; this one gets it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(
    pipe: Connection,
    make: Callable[[], gymnasium.Env[Any, Any]],
    num_envs: int,
    autoreset_mode: AutoresetMode,
    shared: Any,
) -> None:
    """The loop of a worker process, until its pipe is closed. It answers (results, None) or ([], error)."""
    unsafe_again()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C and closes the pipe
    episodes: _Episodes | None = None
    answer: tuple[list[Any], Any]
    while True:
        try:
            command, argument = pipe.recv()
        except (EOFError, OSError):
            break
        try:
            # The environments are made here, so that an error in making them becomes an answer too.
            episodes = episodes or _Episodes(make, num_envs, autoreset_mode, shared)
            answer = getattr(episodes, command)(argument), None
        except ResetNeeded as error:
            answer = [], error
        except Exception as error:
            answer = [], (explained(error), traceback.format_exc())
        try:
            pipe.send(answer)
        except OSError:  # the main process has been stopped, and wants no answer any more
            break
    for env in episodes.envs if episodes else ():
        env.close()
