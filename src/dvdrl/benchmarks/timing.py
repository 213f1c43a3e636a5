"""Timing on machines that are noisy and shared: contenders take turns, so that a slow moment slows all of them."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import jax


def take_turns(contenders: Mapping[str, Callable[[], Any]], *, turns: int, calls: int = 1) -> dict[str, list[float]]:
    """Seconds of one call of each contender, turn by turn, after a first call that is not counted.

    Args:
        contenders: functions by name; what they return is waited for.
        turns: how often each has its turn.
        calls: calls in one turn, of which the mean is taken.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for contender in contenders.values():
        jax.block_until_ready(contender())
    for _ in range(turns):
        for name, contender in contenders.items():
            start = time.perf_counter()
            for _ in range(calls):
                result = contender()
            jax.block_until_ready(result)
            seconds[name].append((time.perf_counter() - start) / calls)
    return seconds


def median_ratio(seconds: list[float], reference: list[float]) -> float:
    """Median over the turns of the ratio of two contenders in the same turn."""
    return median(s / r for s, r in zip(seconds, reference, strict=True))
