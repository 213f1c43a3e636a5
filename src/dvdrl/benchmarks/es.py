"""The cost of an iteration of DvD-ES, compared with physics alone, and how Ray scales: `dvdrl bench es`.

An iteration is everything that training does in one, files included, except the display. The reference is the bare
mj_step loop of `dvdrl bench tasks`, with the same actions from the same states. The two take turns.
"""

import contextlib
import json
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dvdrl.benchmarks.tasks import BareLoop
from dvdrl.benchmarks.timing import median_ratio
from dvdrl.engines import make_vec
from dvdrl.engines.host import HostVectorEnv, num_cores
from dvdrl.record import provenance
from dvdrl.rollouts import Local
from dvdrl.runs import evolution, loop
from dvdrl.runs.options import ES, DvDES, NicheES
from dvdrl.runs.presets import resolve
from dvdrl.runs.trainer import make_policy
from dvdrl.tasks import registry

TASK = "HalfCheetah-v5"
TURNS = 3
RAY_HORIZON = 100
"""Steps of an episode when measuring how Ray scales."""


class Recording(HostVectorEnv):
    """Records the states in which episodes began, and the actions."""

    def reset(self, **kwargs: Any) -> Any:
        """See VectorEnv."""
        result = super().reset(**kwargs)
        self.initial, self.actions = BareLoop(self).states(), list[NDArray[Any]]()
        return result

    def step(self, actions: NDArray[Any]) -> Any:
        """See VectorEnv."""
        self.actions.append(actions.copy())
        return super().step(actions)


def against_bare_loop(turns: int = TURNS, **task_options: Any) -> dict[str, float]:
    """Iterations of DvD-ES with the paper's settings, end to end."""
    made: list[Recording] = []

    def make_envs(num_envs: int) -> Recording:
        made.append(Recording(registry.make(TASK, **task_options), num_envs, "Disabled"))
        return made[-1]

    options = resolve(DvDES(task=TASK, task_options=task_options, preset="paper"))
    policy = make_policy(options)
    trainer = evolution.Evolution(options, policy, Local(make_envs, policy))
    ours, reference, outside, steps = [], [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        run = loop.start(Path(folder), options, trainer.init(0))
        loop.iterate([run], trainer)  # compiles
        bare = BareLoop(made[-1])
        for _ in range(turns):
            begin = run.clock = time.perf_counter()
            (line,) = loop.iterate([run], trainer)
            ours.append(time.perf_counter() - begin)
            outside.append(line["outside_simulation"])
            actions = np.stack(made[-1].actions, axis=1)
            steps = actions.shape[0] * actions.shape[1]
            reference.append(bare.seconds(made[-1].initial, actions))
        run.close()
    return {
        "steps_per_second": steps / median(ours),
        "bare_steps_per_second": steps / median(reference),
        "ratio": 1 / median_ratio(ours, reference),
        "outside_simulation": median(outside),
    }


def share_of_niches(turns: int = 10 * TURNS, **task_options: Any) -> float:
    """What behaviours, relevance and order add to an iteration of ES, as a share of it: niche-ES compared with ES.

    Both are told the same episodes; only the time of `tell` differs, and the two take turns.
    """
    kinds: tuple[type[ES], ...] = (ES, NicheES)
    options = [resolve(kind(task=TASK, task_options=task_options)) for kind in kinds]
    policy = make_policy(options[0])
    algorithms = [evolution.make_algorithm(each, policy) for each in options]
    states = [algorithm.init(jax.random.key(0)) for algorithm in algorithms]
    with contextlib.closing(evolution.make_executor(options[0], policy)) as executor:
        executor.evaluate(algorithms[0].ask, states[:1])  # compiles
        begin = time.perf_counter()
        (episodes,) = executor.evaluate(algorithms[0].ask, states[:1])
        rollouts = time.perf_counter() - begin
    seconds: tuple[list[float], ...] = ([], [])
    for _ in range(turns + 1):
        for algorithm, state, taken in zip(algorithms, states, seconds, strict=True):
            begin = time.perf_counter()
            jax.block_until_ready(algorithm.tell(state, episodes))
            taken.append(time.perf_counter() - begin)
    es, niche_es = (median(taken[1:]) for taken in seconds)  # the first turn compiles
    return (niche_es - es) / (rollouts + es)


def ray_scaling(turns: int = TURNS) -> dict[int, float]:
    """Steps per second of an iteration's rollouts by the number of Ray workers, from 1 to one per core."""
    import ray

    from dvdrl.rollouts.ray import Ray

    options = resolve(DvDES(task=TASK, preset="paper"))
    result = {}
    for num_workers in sorted({1, num_cores()}):
        ray.init("local", num_cpus=num_workers, log_to_driver=False)
        make_envs = partial(make_vec, TASK, autoreset_mode="Disabled", horizon=RAY_HORIZON)
        policy = make_policy(options)
        executor = Ray(make_envs, policy)
        algorithm = evolution.make_algorithm(options, policy)
        state = algorithm.init(jax.random.key(0))
        seconds = []
        for _ in range(turns + 1):  # the first turn starts workers and compiles
            begin = time.perf_counter()
            (episodes,) = executor.evaluate(algorithm.ask, [state])
            seconds.append(time.perf_counter() - begin)
        result[num_workers] = int(episodes.lengths.sum()) / median(seconds[1:])
        ray.shutdown()
    return result


def bench(*, as_json: bool) -> None:
    """Measure and print."""
    iteration = against_bare_loop()
    niches = share_of_niches()
    scaling = ray_scaling() if find_spec("ray") else {}
    if as_json:
        facts = provenance("jax", "jaxlib", "mujoco", "numpy") | {"task": TASK, "cores": num_cores()}
        print(json.dumps({**facts, **iteration, "share_of_niches": niches, "ray_steps_per_second": scaling}, indent=2))
        return
    print(f"{TASK}, DvD-ES with the paper's settings, {num_cores()} cores")
    print(f"  end to end           {iteration['steps_per_second']:>10,.0f} env steps/s")
    print(f"  bare mj_step loop    {iteration['bare_steps_per_second']:>10,.0f} env steps/s")
    print(f"  ratio                {iteration['ratio']:>10.2f}")
    print(f"  outside simulation   {iteration['outside_simulation']:>10.1%}")
    print(f"  niches add           {niches:>10.1%} to an iteration of ES with the preset recommended")
    for num_workers, speed in scaling.items():
        print(f"  Ray, {num_workers} worker{'s' if num_workers > 1 else ' '}       {speed:>10,.0f} env steps/s")
