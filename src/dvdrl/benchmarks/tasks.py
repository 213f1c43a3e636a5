"""The cost of observation, reward, resets and the vector interface, compared with physics alone: `dvdrl bench tasks`.

The reference is mujoco.rollout, MuJoCo's own loop over mj_step in C++ threads; it uses neither mujoco.batch nor Python.
It has the same model, controls and number of threads, and starts from the states in which the engine's turn begins. The
engine's turn includes the resets of episodes that end in it. The two take turns because machines are noisy, and each
ratio is of one turn. Gymnasium's own environments have one of them, in one process, as their reference.
"""

import functools
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from statistics import median, quantiles
from typing import Any

import gymnasium
import jax
import mujoco
import numpy as np
from gymnasium.vector import VectorWrapper
from mujoco.rollout import Rollout
from numpy.typing import NDArray

from dvdrl.engines import make_vec
from dvdrl.engines.gymnasium import of_seed_alone
from dvdrl.engines.host import HostVectorEnv, num_cores
from dvdrl.interfaces import Rollouts
from dvdrl.policies import Agents, Policy, policy_for
from dvdrl.record import provenance
from dvdrl.rollouts import Local
from dvdrl.tasks import registry

CASES = [
    ("HalfCheetah-v5", 1000),
    ("Walker2d-v5", 1000),
    ("Ant-v5", 1000),
    ("Humanoid-v5", 1000),
    ("Swimmer-v5", 1000),
    ("Point-v0", 1000),
    ("Humanoid-v5", 5),
]
EARLY_TERMINATION = ("Walker2d-v5", 1000)
ASYNC_TASKS = ("HalfCheetah-v5", "Humanoid-v5")
IN_WORKERS = ("BipedalWalker-v3", 128)
TURNS_IN_WORKERS = 5
SECONDS_A_TURN = 0.1
"""The approximate length of a turn; it has at least two steps. Turns are short, so that a slow moment of the machine
affects few of them, or both sides."""
SECONDS_A_CASE = 15.0


@dataclass(frozen=True)
class Row:
    """Environment steps per second of a contender and of a reference in the same turns, and their ratio."""

    what: str
    task: str
    num_envs: int
    steps_per_second: float
    reference: str
    reference_steps_per_second: float
    ratio: float
    """The median over the turns."""
    ratio_quartiles: tuple[float, float]
    """The spread of the ratio over the turns, which shows how noisy the machine was."""


class BareLoop:
    """mj_step in C++ threads, from the states of a batch."""

    def __init__(self, envs: HostVectorEnv):
        self.batch, self.model, self.frame_skip = envs.batch, envs.task.model, envs.task.frame_skip
        self.data = [mujoco.MjData(self.model) for _ in range(num_cores())]
        self.pool = Rollout(nthread=num_cores())
        self.in_this_thread = [Rollout(nthread=0) for _ in self.data]

    def states(self) -> dict[str, NDArray[np.float64]]:
        """The initial states for mujoco.rollout."""
        parts = [self.batch.bind("time")[:, None], self.batch.bind("qpos"), self.batch.bind("qvel")]
        warmstart = self.batch.bind("qacc_warmstart").copy()
        return {"initial_state": np.concatenate(parts, axis=1), "initial_warmstart": warmstart}

    def controls(self, actions: NDArray[Any]) -> NDArray[np.float64]:
        """Repeat the controls: one per physics step."""
        return np.repeat(actions.astype(np.float64), self.frame_skip, axis=1)

    def seconds(self, states: dict[str, NDArray[np.float64]], actions: NDArray[Any]) -> float:
        """The time of stepping all simulations through actions, (num_envs, steps, action)."""
        controls = self.controls(actions)
        # Use small shares, so that no thread waits long for the last share of another.
        chunk_size = max(1, len(actions) // (100 * num_cores()))
        start = time.perf_counter()
        self.pool.rollout(self.model, self.data, control=controls, chunk_size=chunk_size, **states)
        return time.perf_counter() - start

    def seconds_alive(
        self, states: dict[str, NDArray[np.float64]], actions: NDArray[Any], lengths: NDArray[np.int64]
    ) -> float:
        """The time of stepping simulation i through its first lengths[i] actions: one call each, on several threads."""
        controls = [self.controls(own[None, :length]) for own, length in zip(actions, lengths, strict=True)]
        todo = iter(range(len(lengths)))

        def work(thread: int) -> None:
            for i in todo:
                own = {name: state[i : i + 1] for name, state in states.items()}
                self.in_this_thread[thread].rollout(self.model, self.data[thread], control=controls[i], **own)

        with ThreadPoolExecutor(len(self.data)) as threads:
            start = time.perf_counter()
            list(threads.map(work, range(len(self.data))))
            return time.perf_counter() - start


def random_actions(envs: Any, num_steps: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Random actions, uniform in the action space, (num_envs, steps, action)."""
    space = envs.single_action_space
    return rng.uniform(space.low, space.high, (envs.num_envs, num_steps, space.shape[0])).astype(np.float32)


def step_through(envs: Any, actions: NDArray[Any]) -> float:
    """The time of taking these steps."""
    start = time.perf_counter()
    for step in range(actions.shape[1]):
        envs.step(actions[:, step])
    return time.perf_counter() - start


def plan(envs: Any, rng: np.random.Generator) -> tuple[int, int]:
    """Steps per turn and number of turns. First takes a few steps that spread the episodes over their length."""
    seconds_a_step = step_through(envs, random_actions(envs, 30, rng)) / 30
    # A turn has few steps: the bare loop does not reset, and bodies that have fallen take longer to simulate.
    num_steps = int(np.clip(round(SECONDS_A_TURN / seconds_a_step), 2, 5))
    return num_steps, max(9, round(SECONDS_A_CASE / (2 * num_steps * seconds_a_step)))


def against_bare_loop(task_id: str, num_envs: int) -> Row:
    """The host engine with autoreset under a random policy."""
    envs = HostVectorEnv(registry.make(task_id), num_envs)
    rng = np.random.default_rng(0)
    envs.reset(seed=0)
    bare = BareLoop(envs)
    num_steps, num_turns = plan(envs, rng)
    ours, reference = [], []
    for _ in range(num_turns):
        actions = random_actions(envs, num_steps, rng)
        states = bare.states()
        ours.append(step_through(envs, actions))
        reference.append(bare.seconds(states, actions))
    steps = [num_envs * num_steps] * len(ours)
    return row("host engine", task_id, num_envs, "bare mj_step loop", steps, ours, reference)


def early_termination(task_id: str, num_envs: int) -> Row:
    """Whole episodes with autoreset off, compared with the bare loop over only the steps that were alive."""
    envs = HostVectorEnv(registry.make(task_id), num_envs, "Disabled")
    rng = np.random.default_rng(0)
    bare = BareLoop(envs)
    ours, reference, steps = [], [], []
    for turn in range(9):
        envs.reset(seed=turn * num_envs)
        states = bare.states()
        actions = random_actions(envs, envs.task.horizon, rng)
        alive, lengths = np.ones(num_envs, bool), np.zeros(num_envs, np.int64)
        start = time.perf_counter()
        while alive.any():
            _, _, terminated, truncated, _ = envs.step(actions[:, lengths.max()])
            lengths += alive
            alive = ~(terminated | truncated)
        ours.append(time.perf_counter() - start)
        reference.append(bare.seconds_alive(states, actions, lengths))
        steps.append(int(lengths.sum()))
    return row("host engine, episodes", task_id, num_envs, "bare loop, alive steps", steps, ours, reference)


def against_async(task_id: str, num_envs: int) -> Row:
    """The host engine compared with Gymnasium's AsyncVectorEnv, which has four processes per core."""
    envs = HostVectorEnv(registry.make(task_id), num_envs)
    # Do not fork: this process may have imported JAX, which has threads.
    theirs = gymnasium.make_vec(
        task_id, 4 * num_cores(), vectorization_mode="async", vector_kwargs={"context": "forkserver"}
    )
    rng = np.random.default_rng(0)
    envs.reset(seed=0)
    theirs.reset(seed=0)
    (num_steps, num_turns), (num_their_steps, _) = plan(envs, rng), plan(theirs, rng)
    ours, reference = [], []
    for _ in range(num_turns):
        ours.append(step_through(envs, random_actions(envs, num_steps, rng)) / (num_steps * num_envs))
        seconds = step_through(theirs, random_actions(theirs, num_their_steps, rng))
        reference.append(seconds / (num_their_steps * theirs.num_envs))
    theirs.close()
    return row("host engine", task_id, num_envs, f"AsyncVectorEnv, {theirs.num_envs}", [1] * num_turns, ours, reference)


def episodes_in_workers(task_id: str, num_episodes: int) -> list[Row]:
    """Episodes of policies in worker processes, compared with a single environment in this process.

    The bare loop replays the actions of a share of the episodes, and its speed counts once for each core. Turns are
    taken with whole episodes inside the workers, and with a message for every step.
    """
    make = functools.partial(make_vec, task_id, autoreset_mode="Disabled")
    env = of_seed_alone(gymnasium.make(task_id))
    policy = policy_for(env.observation_space, env.action_space, (32, 32))
    keys = jax.random.split(jax.random.key(0), num_episodes)
    params = np.asarray(jax.vmap(policy.network.init)(keys))
    seen = (num_episodes, policy.num_observed)
    agents, seeds = Agents(params, np.zeros(seen, np.float32), np.ones(seen, np.float32)), np.arange(num_episodes)
    rollouts = Rollouts(seeds, agents, seeds, np.asarray(jax.random.key_data(keys)))
    actions = [acted(env, policy, Agents(*(array[i] for array in agents)), i) for i in range(num_episodes)]
    total, cores = sum(map(len, actions)), num_cores()

    whole, steps = Local(make, policy), Local(lambda num: VectorWrapper(make(num)), policy)
    seconds: dict[str, list[float]] = {"whole": [], "steps": [], "bare": []}
    for turn in range(TURNS_IN_WORKERS + 1):
        for name, executor in (("whole", whole), ("steps", steps)):
            start = time.perf_counter()
            assert executor.run(rollouts).lengths.sum() == total
            seconds[name].append(time.perf_counter() - start)
        share = range(turn % cores, num_episodes, cores)
        start = time.perf_counter()
        for i in share:
            env.reset(seed=i)
            for action in actions[i]:
                env.step(action)
        per_step = (time.perf_counter() - start) / sum(len(actions[i]) for i in share)
        seconds["bare"].append(total * per_step / cores)
    for executor in (whole, steps):
        executor.close()
    # The first turn started the workers.
    counted, reference = [total] * TURNS_IN_WORKERS, f"one environment, times {cores}"
    return [
        row(what, task_id, num_episodes, reference, counted, seconds[name][1:], seconds["bare"][1:])
        for what, name in (("workers, whole episodes", "whole"), ("workers, single steps", "steps"))
    ]


def acted(env: gymnasium.Env[Any, Any], policy: Policy, agents: Agents, seed: int) -> list[NDArray[Any]]:
    """The actions of an episode."""
    actions, ended = [], False
    obs, _ = env.reset(seed=seed)
    while not ended:
        actions.append(policy.act(agents, np.asarray(obs, np.float64)[None])[0])
        obs, _, terminated, truncated, _ = env.step(actions[-1])
        ended = terminated or truncated
    return actions


def row(
    what: str, task: str, num_envs: int, reference: str, steps: list[int], ours: list[float], theirs: list[float]
) -> Row:
    """A row from the seconds of each turn and its number of steps."""
    rates = [[num / seconds for num, seconds in zip(steps, times, strict=True)] for times in (ours, theirs)]
    low, middle, high = quantiles([own / other for own, other in zip(*rates, strict=True)], n=4)
    return Row(what, task, num_envs, median(rates[0]), reference, median(rates[1]), middle, (low, high))


def all_rows() -> Iterator[Row]:
    """The rows of every case."""
    if find_spec("Box2D") is None:
        print(f"{IN_WORKERS[0]} is left out: pip install 'dvdrl[box2d]'", file=sys.stderr)
    else:  # first, so that the other cases do not start the server that forks workers
        yield from episodes_in_workers(*IN_WORKERS)
    for case in CASES:
        yield against_bare_loop(*case)
    yield early_termination(*EARLY_TERMINATION)
    for task_id in ASYNC_TASKS:
        yield against_async(task_id, 1000)


def bench(*, as_json: bool) -> None:
    """Measure every case, and print steps per second and ratios."""
    if not as_json:
        print(f"{'':22} {'task':15} {'sims':>5} {'steps/s':>9}   {'ratio':>6} {'quartiles':>14}  to")
    rows = []
    for one in all_rows():
        rows.append(asdict(one))
        if not as_json:
            beside = f"{one.reference} ({one.reference_steps_per_second:.0f})"
            spread = "{:.2f} to {:.2f}".format(*one.ratio_quartiles)
            print(
                f"{one.what:22} {one.task:15} {one.num_envs:5} {one.steps_per_second:9.0f}"
                f"   {one.ratio:6.3f} {spread:>14}  {beside}"
            )
    if as_json:
        facts = provenance("mujoco", "gymnasium", "numpy") | {"cores": num_cores()}
        print(json.dumps({**facts, "rows": rows}, indent=2))
