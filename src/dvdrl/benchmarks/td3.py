"""The cost of an update of TD3 by population size, and the speed of training: `dvdrl bench td3`.

An update is everything between transitions and new parameters: storing, sampling, both critics, all policies at every
second update, all targets. The reference is the update of a single agent in sbx-rl on the same shapes, also from its
replay buffer to its parameters. It makes one update per call, as in its default training, or several. All take turns.
"""

import json
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dvdrl.benchmarks.timing import median_ratio, take_turns
from dvdrl.diversity import KERNELS
from dvdrl.engines.host import num_cores
from dvdrl.off_policy import Learner, log_determinants, make_policy, no_diversity, td3
from dvdrl.off_policy.replay import empty
from dvdrl.record import provenance
from dvdrl.runs import loop
from dvdrl.runs.options import DvDTD3, OffPolicyTraining
from dvdrl.runs.presets import resolve

SHAPES = {"Humanoid": (348, 17), "HalfCheetah": (17, 6)}
"""The sizes of an observation and an action."""
POPULATIONS, SEEDS = (1, 5, 20, 40), 7
BATCH, HIDDEN, STORED = 256, (256, 256), 20_000
SBX_UPDATES = (1, 20)
SIMULATIONS = (1, 4)
"""Simulations of each member."""
KERNEL = KERNELS["squared-exponential"](0.5**0.5)
DIVERSITY = log_determinants(KERNEL, shrinkage=0.01)


class Contender(NamedTuple):
    """A function to time."""

    call: Callable[[], Any]
    num_updates: int
    """The number of updates that one call makes."""


def update(
    shapes: str,
    population: int,
    seeds: int,
    num_updates: int,
    *,
    make: Callable[..., Learner] = td3,
    in_order: bool = False,
    **options: Any,
) -> Contender:
    """Our update, with at least `num_updates` per call; `in_order` runs one kernel at a time on a GPU too."""
    num_observed, num_actions = SHAPES[shapes]
    simulations = -(-num_updates // population)  # a call makes one update per transition
    chosen: dict[str, Any] = {"diversity": DIVERSITY, "population": population, "simulations": simulations, **options}
    policy = make_policy(num_observed, num_actions, HIDDEN)
    critics = {"hidden" if make is td3 else "critic_hidden": HIDDEN}
    learner = make(policy, **critics, batch_size=BATCH, buffer_size=STORED, **chosen)
    first = jax.vmap(learner.init)(jax.random.split(jax.random.key(0), seeds))
    state: list[Any] = [first, empty((seeds, learner.capacity), learner.row_size), learner.no_statistics(seeds)]
    shape = learner.steps_per_update, seeds, simulations * population, learner.row_size + 1 + num_observed
    steps, lambda_ = list(jax.random.uniform(jax.random.key(1), shape)), jnp.full((seeds, population), 0.5)
    for _ in range(10):
        state[:2] = learner.add(state[0], state[1], steps)
    run: Any = learner.update
    if in_order:  # compile the same function without compiler options
        run = jax.jit(run.__wrapped__, donate_argnums=(0, 1, 2))

    def call() -> Any:
        state[:] = run(state[0], state[1], state[2], steps, lambda_)
        return state[2]

    return Contender(call, learner.steps_per_update * simulations * population)


def sbx_update(shapes: str, num_updates: int, algorithm: str = "TD3") -> Contender:
    """An algorithm of sbx-rl, with `num_updates` per call."""
    import gymnasium
    import sbx
    from stable_baselines3.common.logger import Logger

    num_observed, num_actions = SHAPES[shapes]

    class Nothing(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (num_observed,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (num_actions,), np.float32)

    model = getattr(sbx, algorithm)(
        "MlpPolicy",
        Nothing(),
        learning_rate=3e-4,
        qf_learning_rate=3e-4,
        batch_size=BATCH,
        buffer_size=STORED,
        policy_kwargs={"net_arch": {"pi": list(HIDDEN), "qf": list(HIDDEN)}},
    )
    model.set_logger(Logger(None, []))
    rng = np.random.default_rng(0)
    assert model.replay_buffer is not None
    for _ in range(1000):
        obs, next_obs = rng.random((2, 1, num_observed), np.float32)
        action, reward = rng.random((1, num_actions), np.float32), rng.random(1, np.float32)
        model.replay_buffer.add(obs, next_obs, action, reward, np.zeros(1, bool), [{}])

    def call() -> Any:
        model.train(num_updates, BATCH)
        return model.policy.qf_state.params

    return Contender(call, num_updates)


def measure(*, turns: int, num_updates: int, populations: tuple[int, ...] = POPULATIONS) -> list[dict[str, Any]]:
    """Microseconds per update of each contender; the ratio to our single agent on the same shapes, and its inverse."""
    on_cpu = jax.default_backend() == "cpu"
    rows: list[dict[str, Any]] = []
    for shapes in SHAPES:
        few = shapes != "Humanoid"
        contenders = {}
        for M in populations:
            if M > 5 and few:
                continue
            contenders[f"M = {M}"] = update(shapes, M, 1, num_updates)
            if M == 5 or (M > 5 and not on_cpu):
                contenders[f"M = {M} without diversity"] = update(shapes, M, 1, num_updates, diversity=no_diversity)
            if not few and (M == 1 or not on_cpu):  # would take minutes on a CPU
                contenders[f"M = {M}, {SEEDS} seeds"] = update(shapes, M, SEEDS, num_updates)
        if not on_cpu:
            contenders["M = 1, kernels in order"] = update(shapes, 1, 1, num_updates, in_order=True)
        if find_spec("sbx"):
            contenders |= {f"sbx-rl, {k} a call": sbx_update(shapes, k) for k in SBX_UPDATES}
        measured = take_turns({name: each.call for name, each in contenders.items()}, turns=turns)
        seconds = {name: [time / contenders[name].num_updates for time in times] for name, times in measured.items()}
        rows += [
            {
                "shapes": shapes,
                "what": name,
                "microseconds": 1e6 * median(times),
                "ratio": median_ratio(times, seconds["M = 1"]),
                "m_1_of_it": median_ratio(seconds["M = 1"], times),
            }
            for name, times in seconds.items()
        ]
    return rows


def end_to_end(steps: int, kind: type[OffPolicyTraining] = DvDTD3, **options: Any) -> dict[str, float]:
    """Environment steps per second on Humanoid, including an evaluation and all files."""
    chosen = resolve(
        kind(
            task="Humanoid-v5", steps=3 * steps, iteration_steps=steps, random_steps=0, evaluation_episodes=1, **options
        )
    )
    trainer = loop.make_trainer(chosen, 1)
    with tempfile.TemporaryDirectory() as folder:
        run = loop.start(Path(folder), chosen, trainer.init(0))
        lines = [loop.iterate([run], trainer)[0] for _ in range(3)]  # the first iteration compiles
        run.close()
    trainer.close()
    return {name: median(line[name] for line in lines[1:]) for name in ("steps_per_second", "outside_simulation")}


def bench(*, as_json: bool) -> None:
    """Measure and print."""
    on_cpu = jax.default_backend() == "cpu"
    # On an accelerator, a call makes many updates, to time the computation and not the calls.
    rows = measure(turns=7, num_updates=1 if on_cpu else 200)
    training = {f"simulations = {n}": end_to_end(500 if on_cpu else 5000, simulations=n) for n in SIMULATIONS}
    if as_json:
        facts = provenance("jax", "jaxlib", "mujoco", "numpy", *(("sbx-rl",) if find_spec("sbx") else ()))
        facts |= {"device": jax.devices()[0].device_kind, "cores": num_cores()}
        print(json.dumps({**facts, "rows": rows, "end_to_end": training}, indent=2))
        return
    print(f"one update, batch {BATCH}, hidden layers {HIDDEN}, on {jax.devices()[0].device_kind}, {num_cores()} cores")
    for row in rows:
        ratios = f"{row['ratio']:8.2f} of M = 1 (which is {row['m_1_of_it']:.2f} of it)"
        print(f"  {row['shapes']:12} {row['what']:26} {row['microseconds']:10,.0f} us {ratios}")
    if not find_spec("sbx"):
        print("  sbx-rl is not installed; pip install 'dvdrl[bench]' to compare with it")
    for name, speed in training.items():
        print(f"DvD-TD3 on Humanoid-v5, M = 5, {name}: {speed['steps_per_second']:,.0f} env steps/s,", end=" ")
        print(f"{speed['outside_simulation']:.0%} of the time outside simulation")
