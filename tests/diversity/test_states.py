"""State selection: without replacement, reproducible, and the k-DPP with exactly its probabilities."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dvdrl.diversity import STATE_RULES, k_dpp, select_states


def pool(num_states: int = 60) -> np.ndarray:
    # The first coordinate is the state's own index: what is selected can be told apart.
    rng = np.random.default_rng(4)
    return np.concatenate([np.arange(num_states)[:, None], rng.normal(size=(num_states, 3))], axis=1).astype(np.float32)


@pytest.mark.parametrize("rule", STATE_RULES)
@pytest.mark.parametrize("num_states", [1, 20, 60])
def test_selects_so_many_different_states_of_the_pool(rule, num_states):
    select = jax.jit(functools.partial(select_states, num_states=num_states, rule=rule))
    states = np.asarray(select(jax.random.key(0), pool()))
    index = states[:, 0].astype(int)
    assert len(set(index)) == num_states
    np.testing.assert_array_equal(states, pool()[index])
    np.testing.assert_array_equal(select(jax.random.key(0), pool()), states)  # the key decides


def test_uniform_selects_every_state_equally_often():
    select = jax.jit(jax.vmap(lambda key: select_states(key, np.arange(10.0)[:, None], 3)))
    draws = select(jax.random.split(jax.random.key(1), 2000))
    counts = np.bincount(np.asarray(draws, int).ravel(), minlength=10)
    assert stats.chisquare(counts).pvalue > 0.01  # fixed seed: passes always, or the rule is not uniform


def test_zero_function_selects_the_rare_states():
    # 95 states in one tight cluster, 5 far from it and from each other: networks fitted to zero on all of them are
    # most wrong where it saw least. Chance would find a quarter of one of the five on average.
    rng = np.random.default_rng(5)
    cluster = rng.normal(scale=0.05, size=(95, 4))
    rare = 3 * rng.normal(size=(5, 4))
    states = np.concatenate([cluster, rare]).astype(np.float32)
    rule = jax.jit(jax.vmap(lambda key: STATE_RULES["zero-function"](key, jnp.asarray(states), 5)))
    found = np.isin(rule(jax.random.split(jax.random.key(2), 5)), range(95, 100)).sum(axis=1)
    assert np.mean(found) >= 4


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_k_dpp_matches_its_exact_probabilities(k):
    # P(S) = det(L_S) / e_k(eigenvalues), over all subsets of a ground set of five.
    features = np.random.default_rng(6).normal(size=(5, 6))
    L = features @ features.T
    subsets = list(itertools.combinations(range(5), k))
    weights = np.asarray([np.linalg.det(L[np.ix_(s, s)]) for s in subsets])
    num_samples = 20_000
    keys = jax.random.split(jax.random.key(7), num_samples)
    samples = np.sort(
        np.asarray(jax.jit(jax.vmap(lambda key: k_dpp(key, jnp.asarray(L, jnp.float32), k)))(keys)), axis=1
    )
    found, counts = np.unique(samples, axis=0, return_counts=True)
    observed = np.zeros(len(subsets))
    for subset, count in zip(found, counts, strict=True):
        observed[subsets.index(tuple(int(i) for i in subset))] = count
    expected = num_samples * weights / weights.sum()
    if k == 5:
        np.testing.assert_array_equal(observed, [num_samples])
    else:
        assert stats.chisquare(observed, expected).pvalue > 0.01  # fixed seed


def test_k_dpp_spreads_out():
    # Two copies of each of ten states: a subset with both copies has det 0.
    states = jnp.repeat(jnp.asarray(np.random.default_rng(8).normal(size=(10, 3)), jnp.float32), 2, axis=0)
    rule = jax.jit(jax.vmap(lambda key: STATE_RULES["k-dpp"](key, states, 6)))
    for chosen in np.asarray(rule(jax.random.split(jax.random.key(9), 20))) // 2:
        assert len(set(chosen)) == 6


def test_k_dpp_beyond_the_rank_still_gives_different_items():
    # Rank 2, five items asked for: no subset has a positive determinant, yet a usable answer is needed.
    L = jnp.asarray(np.ones((8, 8)) + np.diag([1.0] + [0.0] * 7), jnp.float32)
    samples = jax.jit(jax.vmap(lambda key: k_dpp(key, L, 5)))(jax.random.split(jax.random.key(10), 10))
    for chosen in np.asarray(samples):
        assert len(set(chosen)) == 5


@pytest.mark.parametrize("rule", STATE_RULES)
def test_a_pool_of_equal_states_is_no_problem(rule):
    select = jax.jit(functools.partial(select_states, num_states=4, rule=rule))
    states = select(jax.random.key(0), np.ones((6, 3), np.float32))
    np.testing.assert_array_equal(states, 1.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: select_states(jax.random.key(0), pool(5), 6), "num_states: expected 1 to 5.*got 6"),
        (lambda: select_states(jax.random.key(0), pool(5), 0), "num_states: expected 1 to 5.*got 0"),
        (lambda: select_states(jax.random.key(0), pool(5), 2, "dpp"), "rule: expected one of uniform.*got 'dpp'"),
        (lambda: k_dpp(jax.random.key(0), jnp.eye(3), 5), "k: expected from 1 to 3 items.*got 5"),
        (lambda: k_dpp(jax.random.key(0), jnp.eye(3), 0), "k: expected from 1 to 3 items.*got 0"),
        (lambda: k_dpp(jax.random.key(0), jnp.ones((3, 2)), 1), r"L: expected a square matrix.*\(3, 2\)"),
        (lambda: select_states(jax.random.key(0), np.ones(5), 2), r"pool: expected.*\(N, obs\), got shape \(5,\)"),
    ],
)
def test_errors_name_the_argument(call, words):
    with pytest.raises(ValueError, match=words):
        call()
