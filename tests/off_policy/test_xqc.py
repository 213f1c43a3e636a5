"""One full update against a computation by hand, problems whose values are known on paper, and the equalities."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from dvdrl.diversity import KERNELS
from dvdrl.niches import AWAY, FOLLOW, OUTSIDE, Guidance
from dvdrl.off_policy import (
    Guided,
    Learner,
    Replay,
    Transitions,
    batch_norm,
    categorical,
    log_determinants,
    make_policy,
    replay,
    unpack,
    xqc,
)
from dvdrl.off_policy.xqc import State, guided_reward
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
from xqc_reference import Reference, project

LENGTH_SCALE, SHRINKAGE = 0.3, 0.01
DIVERSITY = log_determinants(KERNELS["squared-exponential"](LENGTH_SCALE), shrinkage=SHRINKAGE)
SMALL: dict[str, Any] = {"critic_hidden": (8, 6), "batch_size": 12, "buffer_size": 60}


@functools.cache  # tests share what is compiled
def make(population: int, **options: Any) -> Learner:
    given = {"diversity": DIVERSITY, **SMALL, **options}
    return xqc(make_policy(OBS, ACT, (8, 8)), population=population, **given)


def leaves(tree: Any, index: int) -> list[np.ndarray]:
    """The arrays of one member or critic of the first run, in double precision."""
    return [np.asarray(leaf[0, index], np.float64) for leaf in jax.tree.leaves(tree)]


def test_updates_are_those_computed_by_hand() -> None:
    # Two members, so three steps and six updates: two periods of three.
    M, num_updates, k = 2, 6, 6
    learner = make(M, num_states=4, learning_rate=1e-3)
    assert learner.steps_per_update == 3
    before, memory, sums = fresh(learner)
    steps = [random_steps(learner, M, seed=seed) for seed in range(4)]
    for each in steps[:3]:  # something to draw from before the update
        before, memory = learner.add(before, memory, each)
    lambda_ = np.array([0.5, 0.2])
    rows = np.concatenate([np.asarray(step[0, :, : learner.row_size], np.float64) for each in steps for step in each])
    observed = unpack(rows, OBS).obs
    expected = Reference(
        M=M,
        policies=[leaves(before.policies, m) for m in range(M)],
        critics=[leaves(before.critics, i) for i in range(2)],
        lambda_=lambda_,
        rate=1e-3,
        discount=0.99,
        tau=0.005,
        length_scale=LENGTH_SCALE,
        shrinkage=SHRINKAGE,
        num_states=4,
        shift=observed.mean(axis=0),
        scale=1 / observed.std(axis=0),
    )
    for params in expected.critics:
        for mine, unit in zip(params, project(params), strict=True):
            np.testing.assert_allclose(mine, unit, atol=1e-6)
    # The discounted sums of rewards of each simulation, which begin anew after an episode.
    running, sums_of_rewards = np.zeros(M), []
    for step in (step for each in steps for step in each):
        of_step = np.asarray(step[0], np.float64)
        running = 0.99 * running + unpack(of_step[:, : learner.row_size], OBS).reward
        sums_of_rewards.append(running)
        running = running * (1 - of_step[:, learner.row_size])
    scale = max(np.std(sums_of_rewards), np.abs(sums_of_rewards).max() / 5)

    keys = jax.random.split(jax.random.fold_in(before.key[0], 0), 3)
    after, memory, sums = learner.update(before, memory, sums, steps[3], jnp.asarray(lambda_, jnp.float32)[None])
    stored = Replay(memory.rows[0], memory.num_added)
    indices = replay.sample_since(keys[0], stored, (num_updates, M, k), jnp.zeros(M, jnp.int32))
    drawn = np.asarray(memory.rows[0], np.float64)[np.asarray(indices)]
    noise = np.asarray(jax.random.normal(keys[1], (num_updates, M, k, ACT)), np.float64)
    policy_noise = np.asarray(jax.random.normal(keys[2], (2, M, k, ACT)), np.float64)
    loss = 0.0
    for update in range(num_updates):
        batch = unpack(drawn[update], OBS)
        loss += expected.update_critics(batch._replace(reward=batch.reward / scale), noise[update])
        if update % 3 == 2:
            expected.update_policies(batch.obs, policy_noise[update // 3])
    # Adam divides by the size of a gradient, so rounding of one that nearly vanishes can be a part of a whole step.
    for m in range(M):
        for mine, other in zip(leaves(after.policies, m), expected.policies[m], strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-5)
    for i in range(2):
        for name in ("critics", "target_critics"):
            for mine, other in zip(leaves(getattr(after, name), i), getattr(expected, name)[i], strict=True):
                np.testing.assert_allclose(mine, other, atol=1e-5, err_msg=name)
        running_moments = [part for pair in expected.running[i] for part in pair]
        for mine, other in zip(leaves(after.statistics, i), running_moments, strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-5)
    np.testing.assert_allclose(after.log_temperatures[0], expected.log_temperatures, atol=1e-6)
    np.testing.assert_allclose(float(sums.losses[0].mean(axis=-1).sum()), loss, rtol=1e-5)
    assert int(after.num_updates[0]) == 6


def test_distributions_move_as_computed_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # Atoms are 0.1 apart, from -5. Half of the probability is at 0, half at 1.
    two = jnp.zeros(101).at[jnp.asarray([50, 60])].set(0.5)
    probabilities, factor, summand = jnp.stack([two] * 3), jnp.asarray([0.5, 0.0, 1.0]), jnp.asarray([0.02, -5.0, 4.5])
    expected = np.zeros((3, 101))
    expected[0, [50, 51, 55, 56]] = 0.4, 0.1, 0.4, 0.1  # to 0.02 and 0.52, each a fifth of the way to the next atom
    expected[1, 0] = 1.0  # whatever the value was
    expected[2, [95, 100]] = 0.5  # to 4.5, and to 5.5, which is outside
    for backend in ("cpu", "gpu"):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        np.testing.assert_allclose(categorical.moved(probabilities, factor, summand), expected, atol=1e-5)


def values(state: State, obs: Any, action: Any) -> Array:
    """Values of the first member, by both critics, in units of the reward."""
    rewards = jax.tree.map(lambda leaf: leaf[0], state.rewards)
    deviation = np.sqrt(rewards.moments.sum_squares[0] / rewards.moments.num)
    scale = max(deviation, rewards.largest / 5)
    inputs = jnp.concatenate([jnp.asarray(obs, jnp.float32), jnp.asarray(action, jnp.float32)], axis=1)

    def of_one(params: batch_norm.Parameters, statistics: batch_norm.Statistics) -> Array:
        params = params._replace(heads=jax.tree.map(lambda leaf: leaf[:1], params.heads))
        return categorical.means(batch_norm.outputs(params, batch_norm.features(params, statistics, inputs)))[0]

    critics, statistics = jax.tree.map(lambda leaf: leaf[0], (state.critics, state.statistics))
    return scale * jax.vmap(of_one)(critics, statistics)


def probe(population: int = 2, *, shared_trunk: bool = False) -> Learner:
    """A learner that learns fast what is simple."""
    return make(
        population,
        shared_trunk=shared_trunk,
        critic_hidden=(32, 32),
        learning_rate=3e-3,
        target_rate=0.05,
        batch_size=32,
        discount=0.5,
        policy_delay=2,
        buffer_size=2 * NUM,
    )


def test_a_constant_reward_that_ends_is_its_own_value() -> None:
    state = trained(probe(), 2, Transitions(one_hot(0, NUM), ACTIONS, ONE, ONE, one_hot(0, NUM)), 300)
    np.testing.assert_allclose(values(state, one_hot(0, NUM), ACTIONS), 1.0, atol=0.05)


def test_credit_goes_back_over_two_steps() -> None:
    # Q(s1) = 1. Q(s0) = 0.5 * (1 + the temperature times the entropy, which is small).
    state = trained(probe(), 2, delayed(), 300)
    np.testing.assert_allclose(values(state, one_hot(1, NUM), ACTIONS), 1.0, atol=0.1)
    np.testing.assert_allclose(values(state, one_hot(0, NUM), ACTIONS), 0.5, atol=0.1)


def test_a_time_limit_is_bootstrapped_through() -> None:
    # 1 for ever, whatever cuts it short: Q = 1 / (1 - 0.5) = 2; were a cut taken for an end, it would be 1.
    state = trained(probe(), 2, Transitions(one_hot(0, NUM), ACTIONS, ONE, NOTHING, one_hot(0, NUM)), 400)
    np.testing.assert_allclose(values(state, one_hot(0, NUM), ACTIONS), 2.0, atol=0.1)


@pytest.mark.parametrize(("population", "shared_trunk"), [(1, False), (2, False), (2, True)])
def test_policies_find_the_action_that_pays(population: int, shared_trunk: bool) -> None:
    transitions = bandit()
    learner = probe(population, shared_trunk=shared_trunk)
    state = trained(learner, population, transitions, 600)
    actions = learner.greedy(state, np.tile(np.float32(one_hot(0, 1)), (1, population, 1, 1)))
    np.testing.assert_allclose(actions[0, :, 0], np.tile(BEST, (population, 1)), atol=0.15)
    errors = values(state, one_hot(0, NUM), ACTIONS) - transitions.reward[None]
    assert jnp.abs(errors).mean() < 0.15


def test_lambda_0_gives_the_gradient_of_the_value_alone_to_the_bit() -> None:
    # Whatever the kernel, nothing of diversity is left.
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
    # To rounding, as in TD3.
    M, seeds = 2, 2
    learner = make(M)
    together = fresh(learner, seeds)
    apart = [
        (jax.tree.map(lambda x, s=s: x[s : s + 1], first(learner, seeds)), *fresh(learner)[1:]) for s in range(seeds)
    ]
    lambda_ = jnp.asarray(np.random.default_rng(1).random((seeds, M)), jnp.float32)
    for call in range(2):
        steps = random_steps(learner, M, seeds, seed=call)
        together = learner.update(*together, steps, lambda_)
        apart = [
            learner.update(*each, [step[s : s + 1] for step in steps], lambda_[s : s + 1])
            for s, each in enumerate(apart)
        ]
    for s, (state, memory, _) in enumerate(apart):
        np.testing.assert_array_equal(memory.rows[0], together[1].rows[s])
        for name in ("policies", "critics", "rewards"):
            one, all_seeds = jax.tree.leaves(getattr(state, name)), jax.tree.leaves(getattr(together[0], name))
            for mine, others in zip(one, all_seeds, strict=True):
                np.testing.assert_allclose(mine[0], others[s], atol=2e-5, err_msg=name)


@pytest.mark.parametrize("case", ["coinciding", "saturated", "constant", "one member"])
def test_what_breaks_a_determinant_or_a_normalisation_leaves_everything_finite(case: str) -> None:
    M = 1 if case == "one member" else 2
    learner = make(M)
    state, memory, sums = fresh(learner)
    if case == "coinciding":
        alike = jax.tree.map(lambda x: jnp.broadcast_to(x[:, :1], x.shape) + 0.0, state.policies)
        state = state._replace(policies=alike)
    if case == "saturated":  # means and deviations of 1e4: actions are at their bounds, and their densities vanish
        (*others, (weights, bias)) = state.policies
        state = state._replace(policies=[*others, (weights, jnp.full_like(bias, 1e4))])
    for seed in range(5):
        steps = random_steps(learner, M, seed=seed)
        if case == "constant":  # no deviation of anything, and no reward
            steps = [jnp.zeros_like(step) for step in steps]
        state, memory, sums = learner.update(state, memory, sums, steps, jnp.full((1, M), 0.5))
    state = state._replace(key=0)
    for leaf in jax.tree.leaves((state, sums)):
        assert np.isfinite(np.asarray(leaf)).all()


def test_what_is_not_finite_is_named() -> None:
    M, seeds = 2, 2
    learner = make(M)
    state, _, sums = fresh(learner, seeds)
    everything = {"parameters of member": (seeds, M), "parameters of critic": (seeds, 2), "loss of critic": (seeds, 2)}
    assert {what: finite.shape for what, finite in learner.finite(state, sums).items()} == everything
    assert all(finite.all() for finite in learner.finite(state, sums).values())
    temperatures = np.zeros((seeds, M), np.float32)
    temperatures[1, 0] = np.nan
    found = learner.finite(state._replace(log_temperatures=temperatures), sums)
    assert np.argwhere(~found.pop("parameters of member")).tolist() == [[1, 0]]
    assert all(finite.all() for finite in found.values())


@pytest.mark.parametrize(("simulations", "shared_trunk"), [(1, False), (2, False), (1, True)])
def test_actions_are_the_policies_with_noise(simulations: int, shared_trunk: bool) -> None:
    M = 2
    learner = make(M, simulations=simulations, shared_trunk=shared_trunk)
    state, memory, sums = fresh(learner)
    steps = random_steps(learner, simulations * M)
    state, memory, sums = learner.update(state, memory, sums, steps, jnp.zeros((1, M)))
    asked = np.asarray(learner.act(state, steps[0]))[0]
    greedy = learner.explore(asked, np.zeros((simulations * M, ACT), np.float32))
    # What is exported is what acts; simulation i is member i mod M's.
    agents = learner.agents(jax.tree.map(lambda leaf: leaf[0], state))
    for i, obs in enumerate(np.asarray(steps[0])[0, :, -OBS:]):
        member = type(agents)(*(leaf[i % M] for leaf in agents))
        np.testing.assert_allclose(greedy[i], learner.policy.act(member, obs[None])[0], atol=1e-5)
    # One standard deviation away, before the tanh.
    one = learner.explore(asked, np.ones((simulations * M, ACT), np.float32))
    np.testing.assert_allclose(np.arctanh(one) - np.arctanh(greedy), np.exp(asked[:, ACT:]), rtol=1e-3)


@pytest.mark.parametrize("shared_trunk", [False, True])
def test_whoever_begins_anew_keeps_nothing_of_its_own_and_disturbs_nobody(shared_trunk: bool) -> None:
    M = 2
    learner = make(M, shared_trunk=shared_trunk)
    state, memory, sums = fresh(learner)
    for seed in range(2):
        state, memory, sums = learner.update(
            state, memory, sums, random_steps(learner, M, seed=seed), jnp.zeros((1, M))
        )
    of_run = jax.tree.map(lambda leaf: leaf[0], state)
    guidance = Guidance(jnp.asarray([FOLLOW, AWAY]), *jnp.ones((2, M, OBS)))
    assert learner.guided is not None
    after = learner.guided(of_run, Guided(jnp.asarray([False, True]), jnp.asarray(6), guidance))
    assert after.log_temperatures.tolist() == [of_run.log_temperatures[0], of_run.log_temperatures.min()]
    own = ("policies", "policy_moments", "temperature_moments")
    for name in own:
        for old, new in zip(jax.tree.leaves(getattr(of_run, name)), jax.tree.leaves(getattr(after, name)), strict=True):
            np.testing.assert_array_equal(old[0], new[0])
            assert len(old) == 1 if len(old) != M else (old[1] != new[1]).any()
    assert {len(leaf) for leaf in jax.tree.leaves(after.policies[:-1])} == {1 if shared_trunk else M}
    assert {len(leaf) for leaf in jax.tree.leaves(after.policies[-1])} == {M}
    for name in ("critics", "target_critics"):
        old, new = getattr(of_run, name), getattr(after, name)
        assert_equal(old[:2], new[:2])  # the shared layers
        np.testing.assert_array_equal(old.heads[0][:, 0], new.heads[0][:, 0])
        assert (old.heads[0][:, 1] != new.heads[0][:, 1]).all()
    of_newborn = (jax.tree.map(lambda leaf: leaf[:, 1], each.heads) for each in (after.critics, after.target_critics))
    assert_equal(*of_newborn)
    assert not after.critic_moments.first.heads[0][:, 1].any()
    assert after.born.tolist() == [0, 6]
    assert_equal(after.guidance, guidance)


def test_rewards_are_what_the_niches_ask_for() -> None:
    # The way out of the niche is 2 long in the first coordinate: it begins at 1 and ends at 3.
    origin, direction = jnp.tile(jnp.asarray([1.0, 7.0, 7.0]), (3, 1)), jnp.tile(jnp.asarray([0.5, 0.0, 0.0]), (3, 1))
    guidance = Guidance(jnp.asarray([FOLLOW, AWAY, OUTSIDE]), origin, direction)
    at = jnp.asarray([-5.0, 0.0, 1.0, 2.0, 3.0, 9.0])
    next_obs = jnp.zeros((3, 6, OBS)).at[..., 0].set(at[None])
    batch = Transitions(next_obs, None, jnp.tile(jnp.asarray([4.0, 4.0, 4.0, 4.0, -4.0, 4.0]), (3, 1)), None, next_obs)
    follow, away, outside = guided_reward(guidance, batch, jnp.asarray(10.0))
    assert follow.tolist() == [4, 4, 4, 4, -4, 4]
    assert away.tolist() == [-10, -5, 0, 5, 10, 10]  # as far as it has come, within both ends
    assert outside.tolist() == [0, 0, 0, 2, -4, 4]  # what is paid inside does not count; what it costs does


def test_the_trunk_of_one_member_is_its_own_to_the_bit() -> None:
    states = []
    for shared_trunk in (False, True):
        learner = make(1, shared_trunk=shared_trunk)
        state, memory, sums = fresh(learner)
        for seed in range(2):
            state, memory, sums = learner.update(
                state, memory, sums, random_steps(learner, 1, seed=seed), jnp.zeros((1, 1))
            )
        states.append(state)
    assert_equal(*states)


def test_members_that_share_a_trunk_start_from_policies_that_do() -> None:
    learner = make(2, shared_trunk=True)
    state = jax.tree.map(lambda leaf: leaf[0], first(learner))
    agents = learner.agents(state)
    assert learner.started_from is not None
    assert_equal(learner.agents(learner.started_from(state, agents)).params, agents.params)
    apart = make(2)
    with pytest.raises(ValueError, match="these policies have different hidden layers"):
        learner.started_from(state, apart.agents(jax.tree.map(lambda leaf: leaf[0], first(apart))))
