"""The speed of training several seeds at once on a GPU: `dvdrl bench es --engine device`.

It times iterations of DvD-ES on HalfCheetah with three members, from the first rollout to the last file. `dvdrl bench
tasks --engine device` has the reference: the same engine with a policy for each world, and the physics alone.
"""

import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import jax

from dvdrl.record import provenance
from dvdrl.runs import loop
from dvdrl.runs.options import DvDES
from dvdrl.runs.presets import resolve

TASK, POPULATION, NUM_SEEDS = "HalfCheetah-v5", 3, 10
NUM_ITERATIONS = 5
"""Timed iterations, after two that compile."""


def measure(num_seeds: int, num_iterations: int, **options: Any) -> dict[str, float]:
    """Environment steps per second of all seeds together, and the share of the time outside their rollouts."""
    given = {"task": TASK, "preset": "paper", "population": POPULATION, "iterations": 2 + num_iterations, **options}
    resolved = resolve(DvDES(**given))
    trainer = loop.make_trainer(resolved, num_seeds)
    with tempfile.TemporaryDirectory() as folder:
        directories = [Path(folder) / str(seed) for seed in range(num_seeds)]
        for each in directories:
            each.mkdir()
        runs = [loop.start(each, resolved, trainer.init(seed)) for seed, each in enumerate(directories)]
        lines = [loop.iterate(runs, trainer) for _ in range(2 + num_iterations)][2:]
        for run in runs:
            run.close()
    trainer.close()
    return {
        "steps_per_second": median(sum(line["steps_per_second"] for line in each) for each in lines),
        "outside_simulation": median(line["outside_simulation"] for each in lines for line in each),
    }


def bench(*, as_json: bool) -> None:
    """Measure and print."""
    result = measure(NUM_SEEDS, NUM_ITERATIONS, executor="device")
    about = {"task": TASK, "preset": "paper", "population": POPULATION, "seeds": NUM_SEEDS}
    if as_json:
        facts = provenance("mujoco", "mujoco-warp", "warp-lang", "jax", "jaxlib")
        print(json.dumps({**facts, "device": jax.devices()[0].device_kind, **about, **result}, indent=2))
        return
    print(f"{TASK}, DvD-ES, M = {POPULATION}, {NUM_SEEDS} seeds at once, on {jax.devices()[0].device_kind}")
    print(f"  end to end           {result['steps_per_second']:>10,.0f} env steps/s")
    print(f"  outside the rollouts {result['outside_simulation']:>10.1%}")
