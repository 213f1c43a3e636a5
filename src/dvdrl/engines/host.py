"""The host engine: many simulations of one task on all cores, as a gymnasium.vector.VectorEnv.

mujoco.batch runs the physics. Observation, reward and termination are array operations over all simulations. The only
Python loop over simulations draws initial states, because each simulation has its own generator, as in Gymnasium.
"""

import os
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from mujoco.batch import Batch, SimulationError
from numpy.typing import ArrayLike, NDArray

from dvdrl.engines import post_constraint
from dvdrl.errors import DvdrlError
from dvdrl.tasks import perturbations
from dvdrl.tasks.draws import GeneratorDraws
from dvdrl.tasks.perturbations import UNPERTURBED, Perturb
from dvdrl.tasks.task import Data, Task, compiled

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ids = NDArray[np.intp]
Step = tuple[Floats, Floats, Bools, Bools, dict[str, Any]]

# MuJoCo's counters for positions, velocities or accelerations that are huge or not finite, after which it resets the
# simulation. They are a range, so that indexing gives a live view.
_UNSTABLE = slice(mujoco.mjtWarning.mjWARN_BADQPOS.value, mujoco.mjtWarning.mjWARN_BADQACC.value + 1)


def num_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class HostVectorEnv(VectorEnv[Floats, NDArray[Any], NDArray[Any]]):
    """num_envs simulations of a task. Each may be perturbed in its own way.

    `info` has the parts of the reward by name, and `unstable`: the simulations that MuJoCo gave up on in this step.
    Their episodes are terminated; the last observation is repeated and the reward of the step is 0.

    With autoreset off, an ended episode rests until it is reset: it is not stepped, its reward is 0, and its last
    observation and flags stay.
    """

    def __init__(
        self,
        task: Task,
        num_envs: int,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        num_threads: int | None = None,
        perturb: Perturb | Sequence[Perturb] = UNPERTURBED,
    ):
        self.task, self.num_envs = task, num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode}

        _ = task.model  # compile it without the additions below, to refuse actuators that have no bounds
        spec = task.spec()
        if post_constraint.FIELDS.intersection(task.fields):
            post_constraint.add_to(spec)
        model = compiled(spec)
        self.batch = Batch(model, num_envs, num_threads or min(num_cores(), num_envs))
        """The simulations; see mujoco.batch."""
        self._qpos, self._qvel, self._ctrl = (self.batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._num_warnings = self.batch.warning[:, _UNSTABLE, 1]
        changed, self._noise, self._delay = perturbations.applied(task.id, model, perturb, num_envs)
        self.set_parameters(**changed)

        low, high = model.actuator_ctrlrange.astype(np.float32).T
        self.single_action_space = Box(low, high, dtype=np.float32)
        self.single_observation_space = Box(-np.inf, np.inf, (task.observation_size,), np.float64)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)

        self._generators: list[np.random.Generator] = []
        self._carry = np.zeros((num_envs, 0))
        self._observation = np.zeros((num_envs, task.observation_size))
        # The actions of the last steps, the latest first; before the first step, 0.
        self._sent = np.zeros((num_envs, 1 + self._delay.max(), model.nu))
        self._late = bool(self._delay.any())
        self._elapsed = np.zeros(num_envs, np.int64)
        self._terminated = np.zeros(num_envs, bool)
        self._truncated = np.zeros(num_envs, bool)

    def __repr__(self) -> str:
        """E.g. HostVectorEnv(HalfCheetah-v5, num_envs=1000)."""
        return f"HostVectorEnv({self.task.id}, num_envs={self.num_envs})"

    def set_parameters(self, **values: ArrayLike) -> None:
        """Set fields of MjModel for each simulation, (num_envs, ...), and update the constants derived from them.

        Examples are body_mass, geom_friction and actuator_gear. Fields of MjOption are **{"opt.gravity": ...}.
        """
        for name, value in values.items():
            self.batch.expand(name)[...] = value
        if any(name in mujoco.MjModel._setconst_inputs or name.startswith("opt.") for name in values):
            self.batch.set_const()
        self._fields = self._bind()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin new episodes in all simulations, or in those of options["reset_mask"].

        Seeds work as in Gymnasium: an integer seeds simulation i with seed + i; None continues with the present
        generators. The same seed gives the same initial state as in Gymnasium.
        """
        mask = reset_mask(options, self.num_envs)
        ids = np.arange(self.num_envs) if mask is None else np.flatnonzero(mask)
        seeds = seeds_of(seed, self.num_envs)
        if not self._generators:
            if mask is not None and not mask.all():
                raise ResetNeeded("the first reset must include all simulations, but it has a reset_mask")
            self._generators = [seeding.np_random(seed)[0] for seed in seeds]
        else:
            for i in ids.tolist():
                if seeds[i] is not None:
                    self._generators[i] = seeding.np_random(seeds[i])[0]
        self._begin(ids)
        return self._observation.copy(), {}

    def step(self, actions: NDArray[Any]) -> Step:
        """Take one control step in every simulation; see VectorEnv."""
        if not self._generators:
            raise ResetNeeded("step was called before the first reset; call reset first")
        actions = self._checked(actions)
        resting = self._terminated | self._truncated
        reward = np.zeros(self.num_envs)
        parts, unstable = self._advance(np.flatnonzero(~resting), actions, reward)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and resting.any():
            self._begin(np.flatnonzero(resting))
        terminated, truncated = self._terminated.copy(), self._truncated.copy()

        info: dict[str, Any] = {"unstable": unstable, "_unstable": np.ones(self.num_envs, bool)}
        told = ~resting  # the simulations whose parts of the reward are in info
        if self.autoreset_mode is AutoresetMode.SAME_STEP and (ended := terminated | truncated).any():
            info |= self._final(ended, parts)
            self._begin(np.flatnonzero(ended))
            told, parts = ~ended, {name: np.where(ended, 0, values) for name, values in parts.items()}
        for name, values in parts.items():
            info[name], info["_" + name] = values, told
        return self._observation.copy(), reward, terminated, truncated, info

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """The complete state of the simulations, generators included; one row per simulation."""
        if not self._generators:
            raise ResetNeeded("snapshot was called before the first reset; call reset first")
        return {
            "physics": self.batch.state.copy(),
            "warnings": self.batch.warning.copy().reshape(self.num_envs, -1),
            "generators": np.stack([_generator_words(generator) for generator in self._generators]),
            "carry": self._carry.copy(),
            "observation": self._observation.copy(),
            "elapsed": self._elapsed.copy(),
            "ended": np.stack([self._terminated, self._truncated], axis=1),
            **({"sent": self._sent.copy()} if self._late else {}),
        }

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> Floats:
        """Continue from a `snapshot`, to the bit; returns the observation."""
        self.batch.state[...] = snapshot["physics"]
        self.batch.warning[...] = snapshot["warnings"].reshape(self.batch.warning.shape)
        self._generators = [_generator(words) for words in snapshot["generators"]]
        self._carry = snapshot["carry"].copy()
        self._observation[...] = snapshot["observation"]
        if self._late:
            self._sent[...] = snapshot["sent"]
        self._elapsed[...] = snapshot["elapsed"]
        self._terminated[...], self._truncated[...] = snapshot["ended"].T
        return self._observation.copy()

    def _bind(self) -> dict[str, NDArray[Any]]:
        """The task's fields over all simulations, as live arrays."""
        shared = self.batch.model
        arrays = {}
        for name in self.task.fields:
            if hasattr(shared, name):
                own = self.batch.expanded(name)
                value = getattr(shared, name)
                arrays[name] = np.broadcast_to(value, (self.num_envs, *value.shape)) if own is None else own
            else:
                arrays[name] = self.batch.bind(name)
        return arrays

    def _data(self, ids: Ids) -> dict[str, NDArray[Any]]:
        if ids.size == self.num_envs:
            return dict(self._fields)
        return {name: array[ids] for name, array in self._fields.items()}

    def _begin(self, ids: Ids) -> None:
        """Start new episodes in these simulations."""
        draws = GeneratorDraws([self._generators[i] for i in ids])
        qpos, qvel = self.task.reset(draws)
        self.batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE)
        self._qpos[ids], self._qvel[ids] = qpos, qvel
        self.batch.forward(ids)
        data = self._data(ids)
        for name in post_constraint.FIELDS.intersection(data):
            data[name] = np.zeros_like(data[name])  # threads share an MjData: it may hold other forces
        carry = self.task.begin(draws, data)
        if carry.shape[1] != self._carry.shape[1]:
            self._carry = np.zeros((self.num_envs, carry.shape[1]))
        self._carry[ids] = carry
        self._observation[ids] = self._sensed(ids, self.task.observe(data))
        self._sent[ids] = 0
        self._elapsed[ids] = 0
        self._terminated[ids] = self._truncated[ids] = False

    def _advance(self, ids: Ids, actions: NDArray[Any], reward: Floats) -> tuple[dict[str, NDArray[Any]], Bools]:
        """Step these simulations; write observations, rewards and whether episodes ended."""
        unstable = np.zeros(self.num_envs, bool)
        if not ids.size:
            return {}, unstable
        whole = ids.size == self.num_envs
        rows: Any = slice(None) if whole else ids
        arrived = self._arrived(rows, actions[rows])
        self._ctrl[rows] = arrived
        try:
            self.batch.step(None if whole else ids, nstep=self.task.frame_skip)
        except SimulationError as error:
            unstable[error.ids] = True
        unstable[rows] |= self._num_warnings[rows].any(axis=1)
        # MuJoCo would only find a failure in the last physics step during the next one.
        unstable[rows] |= ~(np.isfinite(self._qpos[rows]).all(axis=1) & np.isfinite(self._qvel[rows]).all(axis=1))

        data: Data = self._data(ids)
        # A copy: parts of the reward may be views of what is carried, which changes below.
        paid, parts, carry = self.task.reward(self._carry[rows].copy(), arrived, data)
        terminated = self.task.terminated(data)
        observation = self._sensed(ids, self.task.observe(data))
        self._elapsed[rows] += 1
        truncated = self._elapsed[rows] >= self.task.horizon
        if unstable.any():
            lost = unstable[rows]
            terminated = terminated | lost
            truncated = truncated & ~lost
            paid = np.where(lost, 0.0, paid)
            parts = {name: np.where(lost, 0.0, values) for name, values in parts.items()}
            observation = np.where(lost[:, None], self._observation[rows], observation)
        finite = np.isfinite(paid) & np.isfinite(observation).all(axis=1)
        if not finite.all():
            lost = int(ids[np.argmin(finite)])
            raise DvdrlError(
                f"{self.task.id}: reward or observation is not finite in simulation {lost}, step {self._elapsed[lost]}"
            )
        self._carry[rows], self._observation[rows], reward[rows] = carry, observation, paid
        self._terminated[rows], self._truncated[rows] = terminated, truncated
        # Copies: parts may be views of the simulations, which go on.
        parts = {name: _of_all(values, rows, self.num_envs) for name, values in parts.items()}
        return parts, unstable

    def _arrived(self, rows: Any, actions: NDArray[Any]) -> NDArray[Any]:
        """The actions that reach these simulations now: the given ones, or earlier ones where they are late."""
        if not self._late:
            return actions
        self._sent[rows] = np.concatenate([actions[:, None], self._sent[rows, :-1]], axis=1)
        arrived: NDArray[Any] = self._sent[rows][np.arange(len(actions)), self._delay[rows]].astype(actions.dtype)
        return arrived

    def _sensed(self, ids: Ids, observation: Floats) -> Floats:
        """What sensors with noise observe."""
        if not self._noise[ids].any():
            return observation
        noisy = observation.copy()
        for row, i in enumerate(ids.tolist()):
            if self._noise[i]:
                noisy[row] += self._generators[i].normal(0.0, self._noise[i], noisy.shape[1])
        return noisy

    def _final(self, ended: Bools, parts: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """The true last observation and info of ended episodes, as in Gymnasium's same-step autoreset."""
        observations = np.full(self.num_envs, None, object)
        for i in np.flatnonzero(ended):
            observations[i] = self._observation[i].copy()
        info: dict[str, Any] = {}
        for name, values in parts.items():
            info[name], info["_" + name] = np.where(ended, values, 0), ended
        return {"final_obs": observations, "_final_obs": ended, "final_info": info, "_final_info": ended}

    def _checked(self, actions: NDArray[Any]) -> NDArray[Any]:
        actions = np.asarray(actions)
        expected = self.action_space.shape
        if actions.shape != expected:
            raise ValueError(
                f"{self.task.id}: expected actions of shape {expected}, one row per simulation; got {actions.shape}"
            )
        if not np.isfinite(actions).all():
            bad = np.flatnonzero(~np.isfinite(actions).all(axis=1))
            raise ValueError(
                f"{self.task.id}: actions must be finite; {len(bad)} of {self.num_envs} simulations got NaN or Inf,"
                f" the first is {bad[0]} with {actions[bad[0]]}"
            )
        return actions


_WORD = 2**64


def _generator_words(generator: np.random.Generator) -> NDArray[np.uint64]:
    """The state of a PCG64, Gymnasium's generator: two numbers of 128 bits, and half of a draw that was kept."""
    state = generator.bit_generator.state
    numbers = (state["state"]["state"], state["state"]["inc"])
    words = [word for number in numbers for word in divmod(number, _WORD)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def _generator(words: NDArray[np.uint64]) -> np.random.Generator:
    """The inverse of `_generator_words`."""
    state_high, state_low, inc_high, inc_low, has_uint32, uinteger = (int(word) for word in words)
    bits = np.random.PCG64()
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": state_high * _WORD + state_low, "inc": inc_high * _WORD + inc_low},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
    return np.random.Generator(bits)


def _of_all(values: NDArray[Any], rows: Any, n: int) -> NDArray[Any]:
    """A new array with these values in these rows, and 0 in all others."""
    full = np.zeros(n, values.dtype)
    full[rows] = values
    return full


def seeds_of(seed: int | Sequence[int | None] | None, num_envs: int) -> Sequence[int | None]:
    """One seed per simulation, derived as in Gymnasium."""
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, int | np.integer):
        return range(int(seed), int(seed) + num_envs)
    if len(seed) != num_envs:
        raise ValueError(f"expected one seed, or {num_envs} of them; got {len(seed)}")
    return seed


def reset_mask(options: dict[str, Any] | None, num_envs: int) -> Bools | None:
    """The mask in options, with the same checks as in Gymnasium; None for all."""
    if options is None or "reset_mask" not in options:
        return None
    mask = options["reset_mask"]
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        raise TypeError(
            f"options['reset_mask'] must be a NumPy array of bool, got {getattr(mask, 'dtype', type(mask))}"
        )
    if mask.shape != (num_envs,):
        raise ValueError(f"options['reset_mask'] must have shape ({num_envs},), got {mask.shape}")
    if not mask.any():
        raise ValueError("options['reset_mask'] must select at least one simulation, got none")
    return mask
