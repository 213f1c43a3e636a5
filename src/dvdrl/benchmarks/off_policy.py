"""The cost of an update of XQC by population size, and the speed of training: `dvdrl bench off-policy`.

The references are TD3, and CrossQ and TD3 of sbx-rl, with networks and batches of the same sizes. CrossQ has no target
networks, and values instead of distributions over them.

Beside the time that passes there is the time of all cores, which hardly depends on what else the machine does.
"""

import json
import time
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any

import jax

from dvdrl.benchmarks import td3
from dvdrl.benchmarks.timing import median_ratio, take_turns
from dvdrl.engines.host import num_cores
from dvdrl.off_policy import xqc
from dvdrl.record import provenance
from dvdrl.runs.options import XQC, NicheXQC, OffPolicyTraining

POPULATIONS = (1, 2, 4, 8, 20)
SBX = ("CrossQ", "TD3")


def measure(*, turns: int, num_updates: int, populations: tuple[int, ...] = POPULATIONS) -> list[dict[str, Any]]:
    """Microseconds per update of each contender, and the ratio to our single agent on the same shapes."""

    def per_update(contenders: dict[str, td3.Contender], clock: Callable[[], float]) -> dict[str, list[float]]:
        measured = take_turns({name: each.call for name, each in contenders.items()}, turns=turns, clock=clock)
        return {name: [each / contenders[name].num_updates for each in times] for name, times in measured.items()}

    rows: list[dict[str, Any]] = []
    for shapes in td3.SHAPES:
        contenders = {f"XQC, M = {M}": td3.update(shapes, M, 1, num_updates, make=xqc) for M in populations}
        most = populations[-1]
        contenders[f"XQC, M = {most}, shared trunk"] = td3.update(
            shapes, most, 1, num_updates, make=xqc, shared_trunk=True
        )
        contenders["TD3, M = 1"] = td3.update(shapes, 1, 1, num_updates)
        if find_spec("sbx"):
            for algorithm in SBX:
                for k in td3.SBX_UPDATES:
                    contenders[f"sbx-rl's {algorithm}, {k} a call"] = _whole(td3.sbx_update(shapes, k, algorithm))
        passed, of_cores = per_update(contenders, time.perf_counter), per_update(contenders, time.process_time)
        rows += [
            {
                "shapes": shapes,
                "what": name,
                "microseconds": 1e6 * median(times),
                "ratio": median_ratio(times, passed["XQC, M = 1"]),
                "microseconds_of_cores": 1e6 * median(of_cores[name]),
                "ratio_of_cores": median_ratio(of_cores[name], of_cores["XQC, M = 1"]),
            }
            for name, times in passed.items()
        ]
    return rows


def _whole(each: td3.Contender) -> td3.Contender:
    """Six updates at least: in every second one of TD3 and every third one of CrossQ, policies learn too."""
    times = -(-6 // each.num_updates)
    return td3.Contender(lambda: [each.call() for _ in range(times)], times * each.num_updates)


def bench(*, as_json: bool) -> None:
    """Measure and print."""
    on_cpu = jax.default_backend() == "cpu"
    rows = measure(turns=7, num_updates=1 if on_cpu else 200)
    steps = 300 if on_cpu else 5000
    kinds: tuple[type[OffPolicyTraining], ...] = (XQC, NicheXQC)
    training = {
        f"{kind.algorithm}, simulations = {n}": td3.end_to_end(steps, kind, simulations=n)
        for kind in kinds
        for n in td3.SIMULATIONS
    }
    if as_json:
        facts = provenance("jax", "jaxlib", "mujoco", "numpy", *(("sbx-rl",) if find_spec("sbx") else ()))
        facts |= {"device": jax.devices()[0].device_kind, "cores": num_cores()}
        print(json.dumps({**facts, "rows": rows, "end_to_end": training}, indent=2))
        return
    device = jax.devices()[0].device_kind
    print(f"one update, batch {td3.BATCH}, hidden layers {td3.HIDDEN}, on {device}, {num_cores()} cores")
    for row in rows:
        print(
            f"  {row['shapes']:12} {row['what']:30} {row['microseconds']:8,.0f} us, {row['ratio']:5.2f} of XQC's;",
            end="",
        )
        print(f" all cores {row['microseconds_of_cores']:8,.0f} us, {row['ratio_of_cores']:5.2f}")
    if not find_spec("sbx"):
        print("  sbx-rl is not installed; pip install 'dvdrl[bench]' to compare with it")
    for name, speed in training.items():
        print(f"{name}, Humanoid-v5: {speed['steps_per_second']:,.0f} env steps/s,", end=" ")
        print(f"{speed['outside_simulation']:.0%} of the time outside simulation")
