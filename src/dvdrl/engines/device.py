"""The device engine: thousands of worlds of one task on an NVIDIA GPU, with MuJoCo Warp. Their state never leaves it.

All physics steps of a control step are one captured CUDA graph. Policy, observation and reward, which come between two
graphs, are one jitted JAX function of the simulation's own buffers; JAX and Warp share these without copies. Each has
its own stream. DLPack makes each wait for the other on the GPU, so the host only queues work.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from dvdrl.engines import post_constraint
from dvdrl.errors import DvdrlError
from dvdrl.tasks.key_draws import KeyDraws
from dvdrl.tasks.task import MODE, Data, Task, compiled

MOST_CONSTRAINTS, MOST_CONTACTS = 64, 48
"""The room for constraint rows per world, and for contacts per world on average. It is twice the largest need observed
(28 rows, in Ant and Point); more room costs time."""


class Episode(NamedTuple):
    """The progress of the episodes of n worlds, on the GPU."""

    carry: Float[Array, "n carry"]
    observation: Float[Array, "n obs"]
    length: Int[Array, " n"]
    """The number of steps so far."""
    returned: Float[Array, " n"]
    """The sum of rewards."""
    modes: dict[str, Float[Array, " n"]]
    """The sum of the rewards of each mode of the task."""
    terminated: Bool[Array, " n"]
    truncated: Bool[Array, " n"]
    unstable: Bool[Array, " n"]
    """Which terminated episodes ended because their simulation was lost."""

    @property
    def ended(self) -> Bool[Array, " n"]:
        """Terminated or truncated."""
        return self.terminated | self.truncated


def draw_starts(task: Task, seeds: UInt32[Array, " n"]) -> tuple[Float[Array, "n nq"], Float[Array, "n nv"]]:
    """Initial positions and velocities of episodes, one seed for each."""

    def of_one(seed: UInt32[Array, ""]) -> tuple[Float[Array, "1 nq"], Float[Array, "1 nv"]]:
        return task.reset(KeyDraws(jax.random.key(seed), 1))

    qpos, qvel = jax.vmap(of_one)(seeds)
    return qpos[:, 0], qvel[:, 0]


def begin(task: Task, seeds: UInt32[Array, " n"], data: Data) -> Episode:
    """New episodes in worlds that are in their initial states. All other random draws of the task follow the seeds."""

    def carry_of_one(seed: UInt32[Array, ""], own: Data) -> Float[Array, "1 carry"]:
        draws = KeyDraws(jax.random.fold_in(jax.random.key(seed), 1), 1)
        carry: Float[Array, "1 carry"] = task.begin(draws, {name: value[None] for name, value in own.items()})
        return carry

    n = seeds.shape[0]
    none = jnp.zeros(n, bool)
    return Episode(
        carry=jax.vmap(carry_of_one)(seeds, data)[:, 0],
        observation=task.observe(data),
        length=jnp.zeros(n, jnp.int32),
        returned=jnp.zeros(n),
        modes={mode: jnp.zeros(n) for mode in task.modes},
        terminated=none,
        truncated=none,
        unstable=none,
    )


def advance(
    task: Task, episode: Episode, action: Float[Array, "n action"], data: Data
) -> tuple[Episode, Float[Array, " n"], dict[str, Float[Array, " n"]]]:
    """The episodes after the control step that led to `data`, and its reward, in total and in parts.

    An ended episode rests: its reward is 0 and it keeps its last observation. If a simulation is lost (it is not
    finite, or has more constraints than there is room for), its episode ends. The reward of that step is 0 and the
    observation stays, as on the host.
    """
    resting = episode.ended
    finite = jnp.isfinite(data["qpos"]).all(axis=1) & jnp.isfinite(data["qvel"]).all(axis=1)
    lost = ~finite | (data["nefc"] > MOST_CONSTRAINTS)
    paid, parts, carry = task.reward(episode.carry, action, data)
    unpaid = resting | lost
    paid = jnp.where(unpaid, 0.0, paid)
    parts = {name: jnp.where(unpaid, 0.0, value) for name, value in parts.items()}
    length = episode.length + ~resting
    after = Episode(
        carry=jnp.where(unpaid[:, None], episode.carry, carry),
        observation=jnp.where(unpaid[:, None], episode.observation, task.observe(data)),
        length=length,
        returned=episode.returned + paid,
        modes={mode: sum_ + parts[MODE + mode] for mode, sum_ in episode.modes.items()},
        terminated=jnp.where(resting, episode.terminated, lost | task.terminated(data)),
        truncated=jnp.where(resting, episode.truncated, ~lost & (length >= task.horizon)),
        unstable=jnp.where(resting, episode.unstable, lost),
    )
    return after, paid, parts


class DeviceEngine:
    """num_envs worlds of a task. `reset` and `step` queue work and return at once; JAX then reads `data`.

        engine.reset(qpos, qvel)
        for _ in range(task.horizon):
            action, carry = react(carry, engine.data())     # one jitted function
            engine.step(action)

    The arrays of `data` are valid until the next `step` or `reset`. The action passed to `step` must come from a
    computation that takes these arrays, so that physics does not overwrite them while they are being read.
    """

    def __init__(self, task: Task, num_envs: int):
        warp, mujoco_warp = libraries()
        if task.model.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
            raise DvdrlError(f"{task.id} needs the PGS solver, which MuJoCo Warp does not have; use the host engine")
        self.task, self.num_envs = task, num_envs
        self._warp = warp
        model = compiled(task.spec())
        self._model = mujoco_warp.put_model(model)
        self._data = mujoco_warp.make_data(model, num_envs, nconmax=MOST_CONTACTS, njmax=MOST_CONSTRAINTS)
        forces = post_constraint.FIELDS.intersection(task.fields)
        names = [name for name in task.fields if not hasattr(model, name)]
        self._shared = {name: getattr(self._data, name) for name in (*names, "nefc")}
        self._constants = {
            name: jnp.broadcast_to(jnp.asarray(value, jnp.float32), (num_envs, *np.shape(value)))
            for name in task.fields
            if (value := getattr(model, name, None)) is not None
        }
        self._held: Any = None

        def clear() -> None:
            mujoco_warp.reset_data(self._model, self._data)
            for name in forces:
                self._shared[name].zero_()

        def step() -> None:
            for _ in range(task.frame_skip):
                mujoco_warp.step(self._model, self._data)
            if forces:
                mujoco_warp.rne_postconstraint(self._model, self._data)

        def captured(work: Any) -> Any:
            work()  # compile the kernels now, because capturing cannot compile
            with warp.ScopedCapture() as capture:
                work()
            return capture.graph

        self._clear = captured(clear)
        self._forward = captured(lambda: mujoco_warp.forward(self._model, self._data))
        self._step = captured(step)

    def reset(self, qpos: Float[Array, "n nq"], qvel: Float[Array, "n nv"]) -> None:
        """Put all worlds into these states, and update the quantities that depend on them."""
        self._launch(self._clear)
        self._write("qpos", qpos)
        self._write("qvel", qvel)
        self._held = (qpos, qvel)
        self._launch(self._forward)

    def step(self, action: Float[Array, "n action"]) -> None:
        """Take one control step in all worlds."""
        self._write("ctrl", action)
        # Keep a reference: without one, JAX may reuse the action's memory before it has been copied.
        self._held = action
        self._launch(self._step)

    def data(self) -> dict[str, Array]:
        """The fields that the task reads, and the number of constraints, as JAX arrays over the simulation's memory."""
        return {**self._constants, **{name: self._warp.to_jax(array) for name, array in self._shared.items()}}

    def synchronize(self) -> None:
        """Wait until all queued physics is done."""
        self._warp.synchronize_device()

    def _write(self, name: str, value: Array) -> None:
        self._warp.copy(getattr(self._data, name), self._warp.from_dlpack(value))

    def _launch(self, graph: Any) -> None:
        self._warp.capture_launch(graph)


def libraries() -> tuple[Any, Any]:
    """Import Warp and MuJoCo Warp, on a GPU that JAX uses too.

    Raises:
        DvdrlError: there is no such GPU, or they are not installed.
    """
    try:
        import warp

        warp.config.log_level = warp.LOG_WARNING  # do not log every kernel that it compiles
        import mujoco_warp
    except ImportError as error:
        raise DvdrlError(f"the device engine needs MuJoCo Warp ({error}): pip install 'dvdrl[gpu]'") from error
    if not warp.is_cuda_available() or jax.default_backend() != "gpu":
        raise DvdrlError(
            "the device engine needs an NVIDIA GPU that both Warp and JAX can use; found "
            f"{'one' if warp.is_cuda_available() else 'none'} for Warp, and JAX is on {jax.default_backend()}. "
            "The host engine runs everywhere."
        )
    return warp, mujoco_warp
