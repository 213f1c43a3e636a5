"""The cost of the diversity term (Gram matrix, log determinant and gradient), relative to an actor-critic update.

A further row has the two functions called one after the other from NumPy, as in a training loop without JAX.

The reference is one update of TD3 for a single agent (both critics, the policy, the targets) on a batch of 256
transitions of Humanoid's sizes. It is the smallest update that the term is ever added to.
"""

import json
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dvdrl.benchmarks.td3 import BATCH, KERNEL, SHAPES, update
from dvdrl.benchmarks.timing import median_ratio, take_turns
from dvdrl.diversity import KERNELS, gram, log_determinant
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


def direct_calls(population: int, num_actions: int) -> Callable[[], Any]:
    """A function without arguments: the log determinant of NumPy's numbers, by calls that are no part of a program."""
    embeddings = np.random.default_rng(0).normal(size=(population, num_actions)).astype(np.float32)
    return lambda: log_determinant(gram(KERNELS["squared-exponential"](0.5), embeddings))


def bench(*, as_json: bool) -> None:
    """Time the term for several population sizes and the update, and print milliseconds and ratios."""
    # With a policy_delay of 1, a call is one update, which includes the policy.
    contenders = {"TD3 update, M = 1": update(TASK, 1, seeds=1, num_updates=1, policy_delay=1).call}
    contenders |= {f"diversity, M = {M}": diversity_gradient(jax.random.key(0), M) for M in POPULATIONS}
    contenders |= {"called directly, 5 x 120": direct_calls(5, 120)}
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
        print(f"{row['what']:24} {row['milliseconds']:9.3f} ms {row['ratio']:9.3f} of an update")
