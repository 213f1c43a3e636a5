"""The cost of a policy for each world, compared with physics alone on a GPU: `dvdrl bench tasks --engine device`.

The reference is the captured MuJoCo Warp graph of a control step. It is replayed from the same initial states, with the
controls that the policies chose in the engine's turn. So it has the same physics, without policy, observation and
reward. The two take turns.

The benchmark also measures how far the first steps are from the host engine, which computes in double precision. For
comparison it rounds the host's state to single precision after every physics step, because contacts amplify any
rounding. The median over worlds is the result. If an episode ends in these steps, the host begins a new one, and the
world counts as far away.

Ant is compared twice. MuJoCo aligns the axes of a capsule's friction pyramid with the capsule. MuJoCo Warp (4.0) does
not if the capsule is steep, as Ant's shins are. Friction then differs, because a pyramid is not round. With elliptic
cones, which are round, the two agree.
"""

import json
import time
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jaxtyping import Array, Float

from dvdrl.benchmarks.timing import median_ratio
from dvdrl.engines.device import DeviceEngine, Episode, advance, begin, draw_starts
from dvdrl.engines.host import HostVectorEnv
from dvdrl.record import provenance
from dvdrl.tasks import registry
from dvdrl.tasks.locomotion import Ant
from dvdrl.tasks.task import Task

CASES = [("HalfCheetah-v5", 6000), ("HalfCheetah-v5", 600), ("Ant-v5", 6000), ("Ant-v5", 600)]
HIDDEN = 32
STEPS = 200
TURNS = 5
COMPARED_STEPS, COMPARED_WORLDS = 20, 64


@dataclass(frozen=True)
class Row:
    """Environment steps per second with a policy in the loop, and of the physics alone."""

    task: str
    num_envs: int
    steps_per_second: float
    bare_steps_per_second: float
    ratio: float


@dataclass(frozen=True)
class Deviation:
    """The largest difference of an observation from the host engine's after some steps, as statistics over worlds."""

    task: str
    step: int
    median: float
    largest: float
    rounded_median: float
    rounded_largest: float
    """The same for the host engine with a rounded state."""


def random_policies(task: Task, num_envs: int, key: Array) -> list[Float[Array, "n i o"]]:
    """The weights of a tanh network of two hidden layers for each world."""
    sizes = (task.observation_size, HIDDEN, HIDDEN, task.action_size)
    keys = jax.random.split(key, len(sizes) - 1)
    shapes = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [jax.random.normal(k, (num_envs, i, o)) / jnp.sqrt(i) for k, i, o in shapes]


def act(weights: list[Float[Array, "n i o"]], observation: Float[Array, "n obs"]) -> Float[Array, "n act"]:
    """The action of each world's own policy."""
    x = observation
    for layer in weights:
        x = jnp.tanh(jnp.einsum("ni,nio->no", x, layer))
    return x


def measure(task_id: str, num_envs: int) -> Row:
    """Time episodes of STEPS steps with a policy for each world, and the physics alone with the same controls."""
    task = registry.make(task_id)
    engine = DeviceEngine(task, num_envs)
    weights = random_policies(task, num_envs, jax.random.key(0))
    seeds = jnp.arange(num_envs, dtype=jnp.uint32)
    starts = jax.jit(lambda: draw_starts(task, seeds))()

    @jax.jit
    def first(data: Any) -> tuple[Episode, Array]:
        episode = begin(task, seeds, data)
        return episode, act(weights, episode.observation)

    @jax.jit
    def react(weights: Any, episode: Episode, action: Array, data: Any) -> tuple[Episode, Array]:
        episode, _, _ = advance(task, episode, action, data)
        return episode, act(weights, episode.observation)

    def with_policies() -> tuple[float, list[Array]]:
        engine.reset(*starts)
        jax.block_until_ready(episode_and_action := first(engine.data()))
        episode, action = episode_and_action
        controls = []
        begun = time.perf_counter()
        for _ in range(STEPS):
            engine.step(action)
            controls.append(action)
            episode, action = react(weights, episode, action, engine.data())
        jax.block_until_ready(episode)
        return time.perf_counter() - begun, controls

    def bare(controls: list[Array]) -> float:
        engine.reset(*starts)
        engine.synchronize()
        begun = time.perf_counter()
        for action in controls:
            engine.step(action)
        engine.synchronize()
        return time.perf_counter() - begun

    bare(with_policies()[1])  # compiles
    ours, reference = [], []
    for _ in range(TURNS):
        seconds, controls = with_policies()
        ours.append(num_envs * STEPS / seconds)
        reference.append(num_envs * STEPS / bare(controls))
    return Row(task_id, num_envs, median(ours), median(reference), median_ratio(ours, reference))


@dataclass(frozen=True, kw_only=True)
class EllipticAnt(Ant):
    """Ant-v5 with round friction cones."""

    id: ClassVar[str] = "Ant-v5, elliptic cones"

    def spec(self) -> Any:
        """See Task."""
        spec = super().spec()
        spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
        return spec


def deviations(task: Task) -> list[Deviation]:
    """The distance of the first steps from those of the host engine, for the same states and actions."""
    host = HostVectorEnv(task, COMPARED_WORLDS)
    rounded = HostVectorEnv(replace(task, frame_skip=1, horizon=10**6), COMPARED_WORLDS)
    engine = DeviceEngine(task, COMPARED_WORLDS)
    for envs in (host, rounded):
        envs.reset(seed=0)
        round_state(envs)
    engine.reset(*(jnp.asarray(host.batch.bind(name), jnp.float32) for name in ("qpos", "qvel")))
    observe = jax.jit(task.observe)
    rng = np.random.default_rng(0)
    low, high = task.model.actuator_ctrlrange.T
    rows = []
    for step in range(1, COMPARED_STEPS + 1):
        actions = rng.uniform(low, high, (COMPARED_WORLDS, task.action_size)).astype(np.float32)
        expected = host.step(actions)[0]
        engine.step(jnp.asarray(actions))
        for _ in range(task.frame_skip):
            rounded.step(actions)
            round_state(rounded)
        ours = np.abs(np.asarray(observe(engine.data())) - expected).max(axis=1)
        theirs = np.abs(task.observe(rounded._fields) - expected).max(axis=1)
        rows.append(Deviation(task.id, step, *(float(f(d)) for d in (ours, theirs) for f in (np.median, np.max))))
    return [row for row in rows if row.step in (1, 5, 10, COMPARED_STEPS)]


def round_state(envs: HostVectorEnv) -> None:
    """Round positions and velocities to single precision."""
    for name in ("qpos", "qvel"):
        state = envs.batch.bind(name)
        state[...] = state.astype(np.float32)


def bench(*, as_json: bool) -> None:
    """Measure every case, and print steps per second, ratios and deviations."""
    rows = [measure(*case) for case in CASES]
    compared = (*map(registry.make, (*dict(CASES), "Point-v0")), EllipticAnt())
    differences = [row for task in compared for row in deviations(task)]
    if as_json:
        facts = provenance("mujoco", "mujoco-warp", "warp-lang", "jax", "jaxlib")
        facts["device"] = jax.devices()[0].device_kind
        tables = {"rows": [asdict(row) for row in rows], "deviations": [asdict(row) for row in differences]}
        print(json.dumps({**facts, **tables}, indent=2))
        return
    for row in rows:
        print(
            f"{row.task:15} {row.num_envs:5} worlds {row.steps_per_second:10.0f} steps/s, {row.ratio:.3f} of the"
            f" physics alone ({row.bare_steps_per_second:.0f})"
        )
    for one in differences:
        print(
            f"{one.task:22} after {one.step:2} steps: from the host engine {one.median:.1e}, at most {one.largest:.1e}"
        )
