"""What an update of TD3 costs by the size of the population, and what training runs at: `dvdrl bench td3`.

An update is everything between transitions and new parameters: storing and sampling, both critics, all policies at every
second update, all targets. The reference is the update of a single agent in sbx-rl, likewise from its replay buffer to
its parameters, on the same shapes and as many updates a call. All take turns.
"""

import json
import logging
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dvdrl.benchmarks.timing import median_ratio, take_turns
from dvdrl.diversity import KERNELS
from dvdrl.engines.host import num_cores
from dvdrl.record import provenance
from dvdrl.runs import config, loop
from dvdrl.td3 import make_policy, td3
from dvdrl.td3.replay import row_size

SHAPES = {"Humanoid": (348, 17), "HalfCheetah": (17, 6)}
"""Numbers observed and numbers of an action."""
POPULATIONS, SEEDS = (1, 5, 20, 40), 7
BATCH, HIDDEN, STORED = 256, (256, 256), 20_000
_KERNEL = KERNELS["squared-exponential"](0.5**0.5)


def update(shapes: str, population: int, seeds: int, num_updates: int, *, diversity: bool = True) -> Callable[[], Any]:
    """A call of ours that makes at least so many updates, and how many it makes, as `update.num_updates`."""
    num_observed, num_actions = SHAPES[shapes]
    algorithm = td3(
        make_policy(num_observed, num_actions, HIDDEN),
        population=population,
        kernel=_KERNEL if diversity else None,
        hidden=HIDDEN,
        batch_size=BATCH,
        buffer_size=STORED,
        updates_at_least=num_updates,
    )
    learner = jax.vmap(algorithm.init)(jax.random.split(jax.random.key(0), seeds))
    state = [learner, algorithm.empty(seeds), algorithm.no_sums(seeds)]
    width = row_size(num_observed, num_actions) + num_observed
    rows = jax.random.uniform(jax.random.key(1), (algorithm.steps_per_update, seeds, population, width))
    steps, lambda_ = list(rows), jnp.full((seeds, population), 0.5)
    for _ in range(10):
        state[1] = algorithm.add(state[1], steps)

    def call() -> Any:
        state[:] = algorithm.update(*state, steps, lambda_)
        return state[2]

    call.num_updates = algorithm.steps_per_update * population  # type: ignore[attr-defined]
    return call


def sbx_update(shapes: str, num_updates: int) -> Callable[[], Any]:
    """A call of sbx-rl's TD3 that makes so many updates of one agent."""
    import gymnasium
    from sbx import TD3
    from stable_baselines3.common.logger import Logger

    num_observed, num_actions = SHAPES[shapes]

    class Nothing(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (num_observed,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (num_actions,), np.float32)

    model = TD3(
        "MlpPolicy",
        Nothing(),
        learning_rate=3e-4,
        qf_learning_rate=3e-4,
        batch_size=BATCH,
        buffer_size=STORED,
        policy_kwargs={"net_arch": list(HIDDEN)},
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

    return call


def measure(*, turns: int, num_updates: int, populations: tuple[int, ...] = POPULATIONS) -> list[dict[str, Any]]:
    """Microseconds an update of each contender, and its ratio to one agent of ours on the same shapes."""
    on_cpu = jax.default_backend() == "cpu"
    rows: list[dict[str, Any]] = []
    for shapes in SHAPES:
        cases = [(M, 1) for M in populations if shapes == "Humanoid" or M <= 5]
        cases += [(M, SEEDS) for M in populations if shapes == "Humanoid" and (M == 1 or not on_cpu)]
        contenders = {
            f"M = {M}, {S} seeds" if S > 1 else f"M = {M}": update(shapes, M, S, num_updates) for M, S in cases
        }
        contenders["M = 5 without diversity"] = update(shapes, 5, 1, num_updates, diversity=False)
        if find_spec("sbx"):
            contenders["sbx-rl, one agent"] = sbx_update(shapes, num_updates)
        seconds = take_turns(contenders, turns=turns)
        for name, times in seconds.items():
            made = getattr(contenders[name], "num_updates", num_updates)
            seconds[name] = [time / made for time in times]
        rows += [
            {
                "shapes": shapes,
                "what": name,
                "microseconds": 1e6 * median(times),
                "ratio": median_ratio(times, seconds["M = 1"]),
                "m_1_ratio": median_ratio(seconds["M = 1"], times),
                "m_5_ratio": median_ratio(seconds["M = 5"], times) if "M = 5" in seconds else None,
            }
            for name, times in seconds.items()
        ]
    return rows


def end_to_end(steps: int, **options: Any) -> dict[str, float]:
    """Environment steps a second of DvD-TD3 on Humanoid, an evaluation and all files included."""
    chosen = config.resolve(
        config.DvDTD3(
            task="Humanoid-v5", steps=3 * steps, iteration_steps=steps, random_steps=0, evaluation_episodes=1, **options
        )
    )
    trainer = loop.make_trainer(chosen, 1)
    with tempfile.TemporaryDirectory() as folder:
        run = loop.start(Path(folder), chosen, trainer.init(0))
        lines = [loop.iterate([run], trainer)[0] for _ in range(3)]  # the first one compiles
        run.metrics.close()
    trainer.close()
    return {name: median(line[name] for line in lines[1:]) for name in ("steps_per_second", "outside_simulation")}


def bench(*, as_json: bool) -> None:
    """Measure and print."""
    logging.getLogger("absl").setLevel(logging.ERROR)
    on_cpu = jax.default_backend() == "cpu"
    rows = measure(turns=7, num_updates=20 if on_cpu else 200)
    training = end_to_end(500 if on_cpu else 5000)
    if as_json:
        facts = provenance("jax", "jaxlib", "mujoco", "numpy", *(("sbx-rl",) if find_spec("sbx") else ()))
        facts |= {"device": jax.devices()[0].device_kind, "cores": num_cores()}
        print(json.dumps({**facts, "rows": rows, "end_to_end": training}, indent=2))
        return
    print(
        f"one update, batch {BATCH}, two hidden layers of 256, on {jax.devices()[0].device_kind}, {num_cores()} cores"
    )
    for row in rows:
        print(f"  {row['shapes']:12} {row['what']:26} {row['microseconds']:10,.0f} us {row['ratio']:8.2f} of M = 1")
    if not find_spec("sbx"):
        print("  sbx-rl is not installed; pip install 'dvdrl[bench]' to compare with it")
    print(f"DvD-TD3 on Humanoid-v5, M = 5: {training['steps_per_second']:,.0f} env steps/s,", end=" ")
    print(f"{training['outside_simulation']:.0%} of the time outside simulation")
