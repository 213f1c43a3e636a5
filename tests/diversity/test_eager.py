"""Called one at a time: compiled once for each shape, and no trace of that inside larger programs."""

import contextlib
from collections.abc import Iterator

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl import diversity
from dvdrl.diversity import KERNELS, gram, log_determinant

COMPILED = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def programs() -> Iterator[list[str]]:
    """A list that grows with each program that is compiled meanwhile."""
    compiled: list[str] = []

    def count(event: str, _: float, **__: object) -> None:
        if event == COMPILED:
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        yield compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(count)


def embeddings(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(5, 12)).astype(np.float32)


def similar(seed: int) -> np.ndarray:
    x = embeddings(seed)
    return np.exp(-np.square(x[:, None] - x[None]).mean(axis=-1))


CALLS = {
    "gram": lambda seed: gram(KERNELS["matern52"](0.7), embeddings(seed)),
    "gram of others": lambda seed: gram(KERNELS["linear"](), embeddings(seed), embeddings(seed + 1)),
    "gram with a scale from data": lambda seed: gram(
        KERNELS["exponential"](diversity.median_length_scale(embeddings(seed))), embeddings(seed)
    ),
    "distances": lambda seed: diversity.distances(jnp.asarray(embeddings(seed))),
    "determinant": lambda seed: diversity.determinant(similar(seed), shrinkage=0.1 / (1 + seed)),
    "ordered_shares": lambda seed: diversity.ordered_shares(similar(seed), np.arange(5.0)),
    "normalize": lambda seed: diversity.normalize(embeddings(seed), "across-members"),
    "measure": lambda seed: diversity.measure(similar(seed), embeddings(seed)),
    "gradient": lambda seed: jax.grad(lambda x: log_determinant(gram(KERNELS["matern32"](), x)))(embeddings(seed)),
    **{
        rule: lambda seed, rule=rule: diversity.select_states(jax.random.key(seed), embeddings(seed), 3, rule)
        for rule in diversity.STATE_RULES
    },
}


@pytest.mark.parametrize("name", CALLS)
def test_the_second_call_with_other_numbers_compiles_nothing(name):
    with programs() as first:
        jax.block_until_ready(CALLS[name](0))
    with programs() as second:
        jax.block_until_ready(CALLS[name](1))
    assert first  # the count counts
    assert not second


def test_a_larger_program_has_the_operations_themselves():
    # No call of a compiled function in it, which XLA might compile into other numbers.
    program = str(jax.make_jaxpr(lambda x: log_determinant(gram(KERNELS["matern52"](0.7), x)))(embeddings(0)))
    assert "scan" in program
    assert "custom_jvp_call" in program
    assert "name=_pairs" not in program
    assert "name=log_determinant_of" not in program


def test_a_kernel_of_ones_own_is_evaluated_anew_each_time():
    # Its results may depend on more than its arguments.
    scale = {"now": 1.0}

    def kernel(x, y):
        return jnp.exp(-scale["now"] * jnp.sum(jnp.square(x - y)))

    x = np.asarray([[0.0], [1.0]], np.float32)
    assert float(gram(kernel, x)[0, 1]) == pytest.approx(np.exp(-1.0))
    scale["now"] = 2.0
    assert float(gram(kernel, x)[0, 1]) == pytest.approx(np.exp(-2.0))


def test_a_length_scale_may_be_differentiated():
    # d/dl exp(-d^2 / (2 l^2)) = d^2 / l^3 exp(-d^2 / (2 l^2)), here with d = 1 and l = 2.
    x = np.asarray([[0.0], [1.0]], np.float32)
    slope = jax.grad(lambda scale: gram(KERNELS["squared-exponential"](scale), x)[0, 1])(2.0)
    assert float(slope) == pytest.approx(np.exp(-1 / 8) / 8)


def test_kernels_show_what_they_are():
    assert repr(KERNELS["rational-quadratic"](0.5, alpha=2)) == "rational_quadratic(0.5, 2)"
