"""What runs in a worker process: its environments, and the loop that answers the main process.

The worker writes the progress of each environment to memory that the main process reads. So an error names the episode
and the step, even if the process hangs or dies.
"""

import math
import signal
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from dvdrl.errors import DvdrlError, explained
from dvdrl.imports import unsafe_again

AT_ONCE = 8
"""How many episodes a worker runs side by side. NumPy evaluates their policies together, which costs little more than
one alone."""

Result = tuple[Any, float, bool, bool, dict[str, Any]]
"""What a step of one environment returns."""


class Places:
    """Shared memory: the environment that a worker is stepping or resetting; and seed, episode and step of each."""

    def __init__(self, shared: Any):
        numbers = np.frombuffer(shared, np.int64)
        self._numbers, self.current, self.of_each = numbers, numbers[:1], numbers[1:].reshape(-1, 3)

    @staticmethod
    def length(num_envs: int) -> int:
        """How many numbers are shared for so many environments."""
        return 1 + 3 * num_envs

    def copied(self) -> bytes:
        """What differs as soon as the worker goes on."""
        return self._numbers.tobytes()

    def __str__(self) -> str:
        """Where the worker is."""
        seed, episode, step = self.of_each[self.current[0]].tolist()
        return f"seed {seed if seed >= 0 else 'None'}, episode {episode}, step {step}"


class Queue:
    """Hands out the numbers 0 to num - 1, each to one worker.

    A worker that has many is given no more if the others would then go without. So workers finish together, although
    they do not know how long anything takes.
    """

    def __init__(self, counter: Any, num: int, num_workers: int):
        self._counter, self._num, self._num_workers = counter, num, num_workers

    def take(self, having: int) -> int | None:
        """The next number for a worker that is busy with so many; None if it should not take another one now."""
        with self._counter.get_lock():
            number: int = self._counter.value
            if having * self._num_workers >= self._num - number:
                return None
            self._counter.value = number + 1
            return number


class Environments:
    """The environments of one worker, made when they are first needed."""

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        autoreset_mode: AutoresetMode,
        places: Places,
        pipe: Connection,
    ):
        self._make, self._autoreset_mode, self._places, self._pipe = make, autoreset_mode, places, pipe
        places.of_each[:] = -1, 0, 0
        self.envs: list[gymnasium.Env[Any, Any]] = []
        # The last observation, terminated and truncated of each environment.
        self._last: list[tuple[Any, bool, bool] | None] = []

    def make(self, num_envs: int) -> None:
        """Have at least so many environments."""
        for i in range(len(self.envs), num_envs):
            self._places.current[0] = i
            self.envs.append(self._make())
            self._last.append(None)
        self._shape = self.envs[0].observation_space.shape

    def reset(self, wanted: Sequence[dict[str, Any] | None]) -> list[tuple[Any, dict[str, Any]]]:
        """Begin new episodes in the wanted environments."""
        self.make(len(wanted))
        results = [
            self._reset(i, **how) if how is not None else (self._last_of(i)[0], {}) for i, how in enumerate(wanted)
        ]
        self._check(range(len(results)), [observation for observation, _ in results], [0.0] * len(results))
        return results

    def step(self, actions: NDArray[Any]) -> list[Result]:
        """Take one step in each environment."""
        self.make(len(actions))
        return self.step_in(range(len(actions)), actions)

    def begin(self, i: int, seed: int) -> Any:
        """Begin a new episode in one environment; returns its first observation."""
        observation, _ = self._reset(i, seed=seed, options=None)
        self._check([i], [observation], [0.0])
        return observation

    def step_in(self, which: Sequence[int], actions: NDArray[Any]) -> list[Result]:
        """Take one step in some of the environments."""
        results = [self._step(i, action) for i, action in zip(which, actions, strict=True)]
        self._check(which, [result[0] for result in results], [result[1] for result in results])
        return results

    def given_up(self) -> bool:
        """Whether the main process no longer waits for an answer: it has closed its end, or is gone."""
        return self._pipe.poll()

    def close(self) -> None:
        """Close all environments."""
        for env in self.envs:
            env.close()

    def _last_of(self, i: int) -> tuple[Any, bool, bool]:
        last = self._last[i]
        if last is None:
            raise ResetNeeded("step was called before the first reset; call reset first")
        return last

    def _reset(self, i: int, **how: Any) -> tuple[Any, dict[str, Any]]:
        self._places.current[0] = i
        seed, place = how.get("seed"), self._places.of_each[i]
        place[:] = (place[0], place[1] + 1, 0) if seed is None else (seed, 1, 0)
        observation, info = self.envs[i].reset(**how)
        self._last[i] = observation, False, False
        return observation, info

    def _step(self, i: int, action: NDArray[Any]) -> Result:
        observation, terminated, truncated = self._last_of(i)
        if terminated or truncated:
            if self._autoreset_mode is AutoresetMode.DISABLED:
                return observation, 0.0, terminated, truncated, {}
            observation, info = self._reset(i)
            return observation, 0.0, False, False, info
        self._places.current[0] = i
        self._places.of_each[i, 2] += 1
        observation, reward, terminated, truncated, info = self.envs[i].step(action)
        self._last[i] = observation, terminated, truncated
        if (terminated or truncated) and self._autoreset_mode is AutoresetMode.SAME_STEP:
            self._check([i], [observation], [_number(reward)])
            final = {"final_obs": observation, "final_info": info}
            observation, info = self._reset(i)
            info = {**final, **info}
        return observation, _number(reward), terminated, truncated, info

    def _check(self, which: Sequence[int], observations: list[Any], rewards: list[float]) -> None:
        """Check all results at once, which is cheap. Bad values would cause wrong numbers or errors later."""
        shape = self._shape
        alike = all(np.shape(observation) == shape for observation in observations)
        if alike and np.isfinite(np.asarray(observations)).all() and np.isfinite(rewards).all():
            return
        for i, observation, reward in zip(which, observations, rewards, strict=True):
            self._places.current[0] = i
            if np.shape(observation) != shape:
                raise ValueError(f"expected an observation of shape {shape}, got {np.shape(observation)}")
            if not np.isfinite(observation).all():
                raise ValueError(f"the observation is not finite: {observation}")
            if not math.isfinite(reward):
                raise ValueError(f"the reward is not finite: {reward}")


def _number(reward: Any) -> float:
    """The reward of a step. Some environments have several rewards."""
    if np.size(reward) != 1:
        raise ValueError(
            f"the reward is not one number: {reward}; a wrapper can make one of it: --wrapper module:callable"
        )
    return float(np.reshape(reward, ()))


class _Infos(VectorEnv[Any, Any, Any]):
    """Gymnasium's way to gather what single environments say."""

    def __init__(self, infos: Sequence[dict[str, Any]]):
        self.num_envs = len(infos)
        self.gathered: dict[str, Any] = {}
        for name in dict.fromkeys(name for info in infos for name in info):
            having = [i for i, info in enumerate(infos) if name in info]
            try:
                for i in having:
                    self.gathered = self._add_info(self.gathered, {name: infos[i][name]}, i)
            except (ValueError, TypeError, AttributeError):
                # Gymnasium cannot stack arrays of different shapes, or values of different types: they stay apart.
                self.gathered[name] = np.full(self.num_envs, None, object)
                self.gathered["_" + name] = np.isin(np.arange(self.num_envs), having)
                for i in having:
                    self.gathered[name][i] = infos[i][name]


def gather(infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The infos of single environments as that of a vector environment."""
    return _Infos(infos).gathered if any(infos) else {}


def work(
    pipe: Connection,
    make: Callable[[], gymnasium.Env[Any, Any]],
    autoreset_mode: AutoresetMode,
    shared: Any,
    counter: Any,
) -> None:
    """The loop of a worker process, until its pipe is closed. It answers (result, None) or (None, error).

    A command is "reset" or "step" with its argument; or "run" with a function and the arguments of a `Queue`. The
    function receives the environments and the queue.
    """
    unsafe_again()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C and closes the pipe
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # for programs that an environment starts
    environments = Environments(make, autoreset_mode, Places(shared), pipe)
    while True:
        try:
            command, argument = pipe.recv()
        except (EOFError, OSError):
            break
        answer: tuple[Any, Any]
        try:
            if command == "run":
                function, numbers = argument
                answer = function.fn(environments, Queue(counter, *numbers)), None
            else:
                answer = getattr(environments, command)(argument), None
        except (ResetNeeded, DvdrlError) as error:
            answer = None, error
        except Exception as error:  # other people's code may raise anything
            answer = None, (explained(error), traceback.format_exc())
        try:
            pipe.send(answer)
        except OSError:  # nobody waits for it any more
            break
    environments.close()
