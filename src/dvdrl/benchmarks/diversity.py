"""The cost of the diversity term (Gram matrix, log determinant and gradient), relative to an actor-critic update.

The reference is one update of TD3 for a single agent (both critics, the policy, the targets) on a batch of 256
transitions of Humanoid's sizes. It is the smallest update that the term is ever added to.
"""

import json
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from dvdrl.benchmarks.td3 import BATCH, KERNEL, SHAPES, update
from dvdrl.benchmarks.timing import median_ratio, take_turns
from dvdrl.diversity import gram, log_determinant
from dvdrl.record import provenance

TASK = "Humanoid"
POPULATIONS = (5, 20, 40, 100)
TURNS, CALLS = 11, 5


def diversity_gradient(key: Array, population: int) -> Callable[[], Any]:
    """A function without arguments: the log determinant of a population's actions on the batch, and its gradient."""
    _, num_actions = SHAPES[TASK]
    embeddings = jnp.tanh(jax.random.normal(key, (population, BATCH * num_actions)))
    gradient = jax.jit(jax.value_and_grad(lambda x: log_determinant(gram(KERNEL, x))))
    return lambda: gradient(embeddings)


def bench(*, as_json: bool) -> None:
    """Time the term for several population sizes and the update, and print milliseconds and ratios."""
    # With a policy_delay of 1, a call is one update, which includes the policy.
    contenders = {"TD3 update, M = 1": update(TASK, 1, seeds=1, num_updates=1, policy_delay=1).call}
    contenders |= {f"diversity, M = {M}": diversity_gradient(jax.random.key(0), M) for M in POPULATIONS}
    seconds = take_turns(contenders, turns=TURNS, calls=CALLS)
    reference = next(iter(seconds.values()))
    rows = [
        {"what": name, "milliseconds": 1e3 * median(times), "ratio": median_ratio(times, reference)}
        for name, times in seconds.items()
    ]
    if as_json:
        facts = provenance("jax", "jaxlib") | {"device": jax.devices()[0].device_kind}
        print(json.dumps({**facts, "rows": rows}, indent=2))
        return
    print(f"batch {BATCH}, observation and action {SHAPES[TASK]}, on {jax.devices()[0].device_kind}")
    for row in rows:
        print(f"{row['what']:20} {row['milliseconds']:9.3f} ms {row['ratio']:9.3f} of an update")
