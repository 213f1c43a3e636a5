"""Timing on noisy, shared machines: contenders take turns, so that a slow moment affects all of them."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import jax


def take_turns(
    contenders: Mapping[str, Callable[[], Any]],
    *,
    turns: int,
    calls: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds per call of each contender in each turn. The first call is not counted.

    Args:
        contenders: functions by name; timing waits for their results.
        turns: the number of turns of each contender.
        calls: the number of calls in one turn; the result is their mean.
        clock: what is measured, in seconds; `time.process_time` is the time of all cores for this process.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for contender in contenders.values():
        jax.block_until_ready(contender())
    for _ in range(turns):
        for name, contender in contenders.items():
            start = clock()
            for _ in range(calls):
                result = contender()
            jax.block_until_ready(result)
            seconds[name].append((clock() - start) / calls)
    return seconds


def median_ratio(seconds: list[float], reference: list[float]) -> float:
    """The median over the turns of the ratio of two contenders in the same turn."""
    return median(s / r for s, r in zip(seconds, reference, strict=True))
