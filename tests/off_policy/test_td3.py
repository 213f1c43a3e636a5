"""One full update against a computation by hand, problems whose values are known on paper, and the equalities."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from dvdrl.diversity import KERNELS
from dvdrl.off_policy import (
    Learner,
    Replay,
    Transitions,
    log_determinants,
    make_critic,
    make_policy,
    replay,
    td3,
    unpack,
)
from dvdrl.off_policy.td3 import State, Sums
from dvdrl.policies import MLP
from learners import (
    ACT,
    ACTIONS,
    BEST,
    NOTHING,
    NUM,
    OBS,
    ONE,
    assert_equal,
    bandit,
    delayed,
    first,
    fresh,
    one_hot,
    random_steps,
    trained,
)
from td3_reference import Reference

LENGTH_SCALE, SHRINKAGE = 0.3, 0.01
KERNEL = KERNELS["squared-exponential"](LENGTH_SCALE)
DIVERSITY = log_determinants(KERNEL, shrinkage=SHRINKAGE)
SMALL: dict[str, Any] = {"hidden": (8, 8), "batch_size": 10, "buffer_size": 60}


@functools.cache  # tests share what is compiled
def make(population: int, **options: Any) -> Learner:
    given = {"diversity": DIVERSITY, **SMALL, **options}
    return td3(make_policy(OBS, ACT, given["hidden"]), population=population, **given)


def flat(layers: Any) -> np.ndarray:
    """The parameters as vectors, whatever axes come before."""
    return MLP(()).ravel(jax.tree.map(np.asarray, layers))


@pytest.mark.parametrize(("bootstrapping", "batched"), [("collector", False), ("random", True)])
def test_updates_are_those_computed_by_hand(bootstrapping: Any, batched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Three members, so two steps and six updates: three periods of two. Batches of ten do not divide by three.
    M, num_updates = 3, 6
    with monkeypatch.context() as patch:
        if batched:  # as on an accelerator
            patch.setattr(jax, "default_backend", lambda: "accelerator")
        learner = make(M, bootstrapping=bootstrapping, num_states=4, learning_rate=1e-3)
    assert learner.steps_per_update == 2
    before, memory, sums = fresh(learner)
    lambda_ = np.array([0.5, 0.2, 0.0])
    expected = Reference(
        policy_sizes=(OBS, 8, 8, ACT),
        critic_sizes=(OBS + ACT, 8, 8, 1),
        policies=flat(before.policies)[0].astype(np.float64),
        critics=flat(before.critics)[0].astype(np.float64),
        lambda_=lambda_,
        rate=1e-3,
        discount=0.99,
        tau=0.005,
        length_scale=LENGTH_SCALE,
        shrinkage=SHRINKAGE,
        num_states=4,
    )
    for seed in range(3):  # something to draw from before the update
        before, memory = learner.add(before, memory, random_steps(learner, M, seed=seed))
    steps = random_steps(learner, M, seed=3)
    key_rows, key_noise = jax.random.split(jax.random.fold_in(before.key[0], 0))
    after, memory, sums = learner.update(before, memory, sums, steps, jnp.asarray(lambda_, jnp.float32)[None])

    stored = Replay(memory.rows[0], memory.num_added)
    rows = np.asarray(stored.rows, np.float64)[
        np.asarray(replay.sample(key_rows, stored, (num_updates, 10), M, bootstrapping))
    ]
    noise = np.clip(0.2 * np.asarray(jax.random.normal(key_noise, (num_updates, 10, ACT)), np.float64), -0.5, 0.5)
    loss = 0.0
    for update in range(num_updates):
        batch = unpack(rows[update], OBS)
        loss += expected.update_critics(batch, noise[update], np.arange(10) % M)
        if update % 2:
            expected.update_policies(batch.obs)
    # Six steps of 1e-3: rounding of a gradient changes a step by about 1e-6 of it, or more where the gradient nearly
    # vanishes, since Adam divides by its size.
    for name in ("policies", "critics", "target_policies", "target_critics"):
        np.testing.assert_allclose(flat(getattr(after, name))[0], getattr(expected, name), atol=2e-6, err_msg=name)
    moments = after.policy_moments
    np.testing.assert_allclose(flat(moments.first)[0], expected.policy_adam.first, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(flat(moments.second)[0], expected.policy_adam.second, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(float(sums.squared_errors[0].mean(axis=-1).sum()), loss, rtol=1e-5)
    assert int(after.num_updates[0]) == 6


def values(state: State, obs: Any, action: Any) -> Float[Array, "2 n"]:
    inputs = jnp.concatenate([jnp.asarray(obs, jnp.float32), jnp.asarray(action, jnp.float32)], axis=1)
    critic = make_critic(OBS, ACT, (32, 32))
    return jax.vmap(critic.apply, in_axes=(0, None))(jnp.asarray(flat(state.critics)[0]), inputs)[..., 0]


def probe(population: int = 2) -> Learner:
    """A learner that learns fast what is simple."""
    return make(
        population,
        hidden=(32, 32),
        learning_rate=3e-3,
        target_rate=0.05,
        batch_size=32,
        discount=0.5,
        buffer_size=2 * NUM,
    )


def test_a_constant_reward_that_ends_is_its_own_value() -> None:
    state = trained(probe(), 2, Transitions(one_hot(0, NUM), ACTIONS, ONE, ONE, one_hot(0, NUM)), 150)
    np.testing.assert_allclose(values(state, one_hot(0, NUM), ACTIONS), 1.0, atol=0.05)


def test_credit_goes_back_over_two_steps() -> None:
    # Q(s1) = 1, Q(s0) = 0.5 * 1.
    state = trained(probe(), 2, delayed(), 300)
    np.testing.assert_allclose(values(state, one_hot(1, NUM), ACTIONS), 1.0, atol=0.05)
    np.testing.assert_allclose(values(state, one_hot(0, NUM), ACTIONS), 0.5, atol=0.05)


def test_a_time_limit_is_bootstrapped_through() -> None:
    # 1 for ever, whatever cuts it short: Q = 1 / (1 - 0.5) = 2; were a cut taken for an end, it would be 1.
    state = trained(probe(), 2, Transitions(one_hot(0, NUM), ACTIONS, ONE, NOTHING, one_hot(0, NUM)), 400)
    np.testing.assert_allclose(values(state, one_hot(0, NUM), ACTIONS), 2.0, atol=0.1)


@pytest.mark.parametrize("population", [1, 2])
def test_policies_find_the_action_that_pays(population: int) -> None:
    transitions = bandit()
    state = trained(probe(population), population, transitions, 600)
    network = make_policy(OBS, ACT, (32, 32)).network
    actions = network.apply(flat(state.policies)[0], np.tile(one_hot(0, 1), (population, 1, 1)))
    np.testing.assert_allclose(actions[:, 0], np.tile(BEST, (population, 1)), atol=0.15)
    np.testing.assert_allclose(values(state, one_hot(0, NUM), ACTIONS)[0], transitions.reward, atol=0.2)


def test_diversity_parts_members_and_only_those_that_are_to_be() -> None:
    # Member 0 has lambda 0; the others have no eye for reward.
    M = 4
    learner = make(M)
    before, memory, sums = fresh(learner)
    nearly_alike = jax.tree.map(lambda x: jnp.broadcast_to(x[:, :1], x.shape) + 0.01 * x, before.policies)
    start = flat(nearly_alike)[0]
    states = jax.random.normal(jax.random.key(1), (20, OBS))

    @jax.jit
    def log_det(state: State) -> Array:
        return log_determinants(KERNEL)(learner.behaviours(jax.tree.map(lambda x: x[0], state), states))

    state = before._replace(policies=nearly_alike)
    least = log_det(state) + 1.0
    lambda_ = jnp.asarray([[0.0, 1.0, 1.0, 1.0]])
    for seed in range(40):
        # Critics of zeros give no gradient to follow.
        state = state._replace(critics=jax.tree.map(jnp.zeros_like, state.critics))
        state, memory, sums = learner.update(state, memory, sums, random_steps(learner, M, seed=seed), lambda_)
    moved = np.abs(flat(state.policies)[0] - start).max(axis=1)
    assert moved[0] < moved[1:].min()
    assert log_det(state) > least


def test_lambda_0_gives_the_gradient_of_the_value_alone_to_the_bit() -> None:
    # E-TD3 is the same program as DvD-TD3, with lambda 0: whatever the kernel, nothing of diversity is left.
    M, results = 2, []
    for diversity in (DIVERSITY, log_determinants(KERNELS["matern52"](1.0))):
        learner = make(M, diversity=diversity)
        state, memory, sums = fresh(learner)
        for seed in range(3):
            steps = random_steps(learner, M, seed=seed)
            state, memory, sums = learner.update(state, memory, sums, steps, jnp.zeros((1, M)))
        results.append(state)
    assert_equal(*results)


def test_seeds_together_agree_with_seeds_apart() -> None:
    # To rounding: matrix products of several seeds are batched, and sum in another order. After 8 updates, of which 4
    # are of the policies, at a rate of 3e-4; Adam's first steps are near the sign of the gradient.
    M, seeds = 2, 2
    learner = make(M)
    together = fresh(learner, seeds)
    apart = [
        (
            jax.tree.map(lambda x, s=s: x[s : s + 1], first(learner, seeds)),
            *fresh(learner)[1:],
        )
        for s in range(seeds)
    ]
    lambda_ = jnp.asarray(np.random.default_rng(1).random((seeds, M)), jnp.float32)
    for call in range(4):
        steps = random_steps(learner, M, seeds, seed=call)
        together = learner.update(*together, steps, lambda_)
        apart = [
            learner.update(*each, [step[s : s + 1] for step in steps], lambda_[s : s + 1])
            for s, each in enumerate(apart)
        ]
    for s, (state, memory, _) in enumerate(apart):
        np.testing.assert_array_equal(memory.rows[0], together[1].rows[s])
        for name in ("policies", "critics", "target_policies", "target_critics"):
            mine, all_seeds = flat(getattr(state, name))[0], flat(getattr(together[0], name))
            np.testing.assert_allclose(mine, all_seeds[s], atol=1e-6, err_msg=name)
    assert (flat(together[0].policies)[0] != flat(together[0].policies)[1]).any()


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="elsewhere kernels run in the order of the program")
@pytest.mark.parametrize("population", [1, 5])
def test_kernels_side_by_side_compute_what_they_do_in_order(population: int) -> None:
    # To the bit: they are the same kernels, and each waits for what it reads.
    learner = make(population, simulations=20 // population)
    in_order = jax.jit(learner.update.__wrapped__)  # type: ignore[attr-defined]
    after = []
    for update in (learner.update, in_order):
        state = fresh(learner)
        for seed in range(5):
            steps = random_steps(learner, 20, seed=seed)
            state = update(*state, steps, jnp.full((1, population), 0.5))
        after.append(state)
    jax.tree.map(np.testing.assert_array_equal, *((each[0]._replace(key=0), each[2]) for each in after))


@pytest.mark.parametrize("case", ["coinciding", "saturated", "one member"])
def test_what_breaks_a_determinant_leaves_everything_finite(case: str) -> None:
    M = 1 if case == "one member" else 4
    learner = make(M)
    state, memory, sums = fresh(learner)
    if case == "coinciding":
        alike = jax.tree.map(lambda x: jnp.broadcast_to(x[:, :1], x.shape) + 0.0, state.policies)
        state = state._replace(policies=alike)
    if case == "saturated":  # tanh of 1e4 is 1 to the last bit, for all members: no gradient, and det K = 0
        (*others, (weights, bias)) = state.policies
        state = state._replace(policies=[*others, (weights, jnp.full_like(bias, 1e4))])
    for seed in range(5):
        steps = random_steps(learner, M, seed=seed)
        state, memory, sums = learner.update(state, memory, sums, steps, jnp.full((1, M), 0.5))
    for leaf in jax.tree.leaves((state.policies, state.critics, state.policy_moments, sums)):
        assert np.isfinite(np.asarray(leaf)).all()


def test_what_is_not_finite_is_named() -> None:
    M, seeds = 3, 2
    learner = make(M)
    state, _, sums = fresh(learner, seeds)
    everything = {"parameters of member": (seeds, M), "parameters of critic": (seeds, 2), "loss of critic": (seeds, 2)}
    assert {what: finite.shape for what, finite in learner.finite(state, sums).items()} == everything
    assert all(finite.all() for finite in learner.finite(state, sums).values())
    # Parameters may be finite still: 1e20 is a value, and its square no number of single precision.
    errors = np.zeros((seeds, 2, 10), np.float32)
    errors[1, 1, 3] = np.inf
    found = learner.finite(state, sums._replace(squared_errors=errors))
    assert np.argwhere(~found.pop("loss of critic")).tolist() == [[1, 1]]
    assert all(finite.all() for finite in found.values())
    (weights, bias), *others = jax.tree.map(np.array, state.policies)
    bias[0, 2, 0] = np.nan
    found = learner.finite(state._replace(policies=[(weights, bias), *others]), sums)
    assert np.argwhere(~found.pop("parameters of member")).tolist() == [[0, 2]]
    assert all(finite.all() for finite in found.values())


def test_metrics_are_means_over_updates_and_batches() -> None:
    # Sums of four updates at each of ten places: 4 * (1 + 3) of the critics' squared errors, 4 * -2 of the values.
    learner = make(2)
    sums = Sums(jnp.broadcast_to(jnp.asarray([[4.0], [12.0]]), (2, 10)), jnp.full(10, -8.0))
    assert learner.metrics(sums, 4) == {"critic_loss": 4.0, "value": -2.0}


def test_functions_are_compiled_once() -> None:
    M = 2
    learner = make(M)
    state, memory, sums = fresh(learner)
    steps = random_steps(learner, M)
    for call in range(3):
        if call < 2:
            actions = learner.act(state, steps[0])
            state, memory, sums = learner.update(state, memory, sums, steps, jnp.zeros((1, M)))
            continue
        with jax.no_tracing():
            actions = learner.act(state, steps[0])
            state, memory, sums = learner.update(state, memory, sums, steps, jnp.zeros((1, M)))
    assert actions.shape == (1, M, ACT)
    assert float(jnp.max(jnp.abs(actions))) <= 1.0


@pytest.mark.parametrize("simulations", [1, 2])
def test_actions_are_the_policies(simulations: int) -> None:
    M = 3
    learner = make(M, simulations=simulations)
    state, step = first(learner), random_steps(learner, simulations * M)[0]
    network, params = make_policy(OBS, ACT, (8, 8)).network, flat(state.policies)[0]
    # Simulation i is member i mod M's.
    expected = [network.apply(params[i % M], np.asarray(obs[None]))[0] for i, obs in enumerate(step[0, :, -OBS:])]
    np.testing.assert_allclose(learner.act(state, step)[0], np.stack(expected), atol=1e-6)
