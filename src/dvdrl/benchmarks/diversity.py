"""What the diversity term costs: Gram matrix, log determinant and gradient, against an actor-critic update.

The reference is one update of a single TD3 agent (actor and twin critic of two layers of 256, Adam) on a batch of 256
transitions of Humanoid's sizes: the smallest update that the term is ever added to.
"""

import json
from collections.abc import Callable
from statistics import median
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from dvdrl.benchmarks.timing import median_ratio, take_turns
from dvdrl.diversity import KERNELS, gram, log_determinant
from dvdrl.record import provenance

BATCH, OBSERVATION, ACTION = 256, 348, 17
POPULATIONS = (5, 20, 100)
TURNS, CALLS = 11, 5


class _Network(nn.Module):
    outputs: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.relu(nn.Dense(256)(x))
        x = nn.relu(nn.Dense(256)(x))
        return nn.Dense(self.outputs)(x)


def actor_critic_update(key: Array) -> Callable[[], Any]:
    """One jitted TD3 update (both critics, the actor, the targets) on a fixed batch, as a function of nothing."""
    actor, critic, optimizer = _Network(ACTION), _Network(1), optax.adam(3e-4)
    keys = jax.random.split(key, 7)
    obs = jax.random.normal(keys[0], (BATCH, OBSERVATION))
    next_obs = jax.random.normal(keys[1], (BATCH, OBSERVATION))
    action = jnp.tanh(jax.random.normal(keys[2], (BATCH, ACTION)))
    reward = jax.random.normal(keys[3], (BATCH, 1))

    def value(params: Any, obs: Array, action: Array) -> Float[Array, "2 n 1"]:
        inputs = jnp.concatenate([obs, action], axis=-1)
        return cast(Array, jax.vmap(lambda p: critic.apply(p, inputs))(params))

    def act(params: Any, obs: Array) -> Array:
        return jnp.tanh(cast(Array, actor.apply(params, obs)))

    params = {
        "actor": actor.init(keys[4], obs),
        "critic": jax.vmap(lambda k: critic.init(k, jnp.concatenate([obs, action], -1)))(jax.random.split(keys[5])),
    }

    def losses(params: Any, targets: Any, key: Array) -> Array:
        noise = jnp.clip(0.2 * jax.random.normal(key, action.shape), -0.5, 0.5)
        next_action = jnp.clip(act(targets["actor"], next_obs) + noise, -1, 1)
        target = reward[None] + 0.99 * jnp.min(value(targets["critic"], next_obs, next_action), axis=0, keepdims=True)
        critic_loss = jnp.mean(jnp.square(value(params["critic"], obs, action) - target))
        frozen = jax.lax.stop_gradient(params["critic"])
        actor_loss = -jnp.mean(value(frozen, obs, act(params["actor"], obs))[0])
        return critic_loss + actor_loss

    @jax.jit
    def update(params: Any, targets: Any, state: Any, key: Array) -> tuple[Any, Any, Any]:
        updates, state = optimizer.update(jax.grad(losses)(params, targets, key), state)
        params = optax.apply_updates(params, updates)
        return params, optax.incremental_update(params, targets, 0.005), state

    state = optimizer.init(params)
    return lambda: update(params, params, state, keys[6])


def diversity_gradient(key: Array, population: int) -> Callable[[], Any]:
    """Log determinant of a population's actions on the batch, with its gradient, as a function of nothing."""
    embeddings = jnp.tanh(jax.random.normal(key, (population, BATCH * ACTION)))
    kernel = KERNELS["squared-exponential"](length_scale=1.0)
    gradient = jax.jit(jax.value_and_grad(lambda x: log_determinant(gram(kernel, x))))
    return lambda: gradient(embeddings)


def bench(*, as_json: bool) -> None:
    """Time the term for several population sizes beside the update, and print milliseconds and ratios."""
    key_update, key_embeddings = jax.random.split(jax.random.key(0))
    contenders = {"actor-critic update, M = 1": actor_critic_update(key_update)}
    contenders |= {f"diversity, M = {M}": diversity_gradient(key_embeddings, M) for M in POPULATIONS}
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
    print(f"batch {BATCH}, observation {OBSERVATION}, action {ACTION}, on {jax.devices()[0].device_kind}")
    for row in rows:
        print(f"{row['what']:28} {row['milliseconds']:9.3f} ms {row['ratio']:9.3f} of an update")
