"""Controllers of lambda: posteriors worked by hand, and what forgetting is for."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dvdrl import bandits


def pull(controller, state, arm, score):
    """A round with the arm chosen by us instead of by the draw."""
    return controller.update(state._replace(arm=jnp.asarray(arm, jnp.int32)), jnp.float32(score))


def counts(state):
    return [(float(a), float(b)) for a, b in zip(*bandits.posterior(state), strict=True)]


def test_paper_posterior_by_hand():
    controller = bandits.thompson((0.0, 0.5))
    state = controller.init()
    assert counts(state) == [(1, 1), (1, 1)]  # the uniform prior
    state = pull(controller, state, 0, 10.0)  # the first score is only the reference
    assert counts(state) == [(1, 1), (1, 1)]
    state = pull(controller, state, 0, 11.0)  # rose: alpha + 1
    assert counts(state) == [(2, 1), (1, 1)]
    state = pull(controller, state, 1, 11.0)  # not greater: beta + 1
    assert counts(state) == [(2, 1), (1, 2)]
    state = pull(controller, state, 1, 5.0)
    assert counts(state) == [(2, 1), (1, 3)]
    state = pull(controller, state, 1, 6.0)  # greater than the last, if not than the best
    assert counts(state) == [(2, 1), (2, 3)]


def test_authors_reference_is_the_best_of_the_last_five():
    controller = bandits.authors_thompson()
    state = controller.init()
    for score in (10.0, 1.0, 2.0, 3.0, 4.0):  # a reference, then four that stay below 10
        state = pull(controller, state, 0, score)
    assert counts(state) == [(1, 5), (1, 1)]
    state = pull(controller, state, 1, 5.0)  # the best of 10, 1, 2, 3, 4 is not beaten
    assert counts(state) == [(1, 5), (1, 2)]
    state = pull(controller, state, 1, 6.0)  # 10 has dropped out: the best of 1, 2, 3, 4, 5 is
    assert counts(state) == [(1, 5), (2, 2)]


def test_authors_window_is_fifty_pulls():
    controller = bandits.authors_thompson()
    state = pull(controller, controller.init(), 0, 0.0)
    for score in range(1, 51):
        state = pull(controller, state, 0, score)
    assert counts(state) == [(51, 1), (1, 1)]
    for score in range(51, 101):  # every pull of arm 1 pushes one of arm 0 out
        state = pull(controller, state, 1, score)
    assert counts(state) == [(1, 1), (51, 1)]


def test_authors_first_five_pulls_are_uniform():
    controller = bandits.authors_thompson()
    state = pull(controller, controller.init(), 0, 0.0)
    for score in (1.0, 2.0, 3.0, 4.0):
        state = pull(controller, state, 0, score)  # arm 0 looks perfect: Beta(5, 1) against Beta(1, 1)
    keys = jax.random.split(jax.random.key(0), 2000)
    select = jax.jit(jax.vmap(lambda key, state: controller.select(key, state)[1], in_axes=(0, None)))
    share = np.mean(select(keys, state) == 0.0)
    assert abs(share - 0.5) < 4 * np.sqrt(0.25 / 2000)  # the fifth pull still ignores it
    state = pull(controller, state, 0, 5.0)
    share = np.mean(select(keys, state) == 0.0)
    # P(Beta(6, 1) > Beta(1, 1)) = E[x] = 6 / 7.
    assert abs(share - 6 / 7) < 4 * np.sqrt(6 / 49 / 2000)


def test_sliding_window_by_hand():
    controller = bandits.sliding_window_thompson(window=2)
    state = pull(controller, controller.init(), 0, 0.0)
    state = pull(controller, state, 0, 1.0)
    state = pull(controller, state, 1, 0.0)
    assert counts(state) == [(2, 1), (1, 2)]
    state = pull(controller, state, 1, 1.0)  # the win of arm 0 has left the window
    assert counts(state) == [(1, 1), (2, 2)]


def test_discounted_by_hand():
    controller = bandits.discounted_thompson(discount=0.5)
    state = pull(controller, controller.init(), 0, 0.0)
    state = pull(controller, state, 0, 1.0)
    state = pull(controller, state, 1, 2.0)  # arm 0's win is worth 0.5 now, the prior stays
    assert counts(state) == [(1.5, 1), (2, 1)]
    state = pull(controller, state, 1, 1.0)
    assert counts(state) == [(1.25, 1), (1.5, 2)]


def test_selection_follows_the_posterior():
    # Beta(3, 1) against Beta(1, 1): P(x > y) = E[x] = 3 / 4.
    controller = bandits.thompson((0.0, 0.5))
    state = controller.init()._replace(successes=jnp.asarray([0.0, 2.0]))
    keys = jax.random.split(jax.random.key(1), 4000)
    states, lambdas = jax.jit(jax.vmap(lambda key: controller.select(key, state)))(keys)
    assert abs(np.mean(lambdas == 0.5) - 0.75) < 4 * np.sqrt(0.1875 / 4000)
    np.testing.assert_array_equal(lambdas, np.where(states.arm == 1, np.float32(0.5), np.float32(0.0)))


def test_any_number_of_arms():
    arms = (0.0, 0.1, 0.25, 0.5, 0.9)
    controller = bandits.thompson(arms)
    keys = jax.random.split(jax.random.key(2), 500)
    lambdas = jax.jit(jax.vmap(lambda key: controller.select(key, controller.init())[1]))(keys)
    np.testing.assert_allclose(np.unique(lambdas), arms, rtol=1e-6)
    _, single = bandits.thompson((0.3,)).select(jax.random.key(0), bandits.thompson((0.3,)).init())
    assert single == np.float32(0.3)


@functools.partial(jax.jit, static_argnums=0)
def pulls_of_best_arm(controller, key):
    """Share of the better arm in the 150 rounds after a two-armed problem has switched sides, at round 150.

    The better arm's score rises with chance 0.9, the other's with chance 0.1.
    """

    def play(carry, step):
        state, score = carry
        time, key = step
        key_select, key_reward = jax.random.split(key)
        state, lambda_ = controller.select(key_select, state)
        best = jnp.where(time < 150, 0.0, 0.5)
        rises = jax.random.uniform(key_reward) < jnp.where(lambda_ == best, 0.9, 0.1)
        score = score + jnp.where(rises, 1.0, -1.0)
        return (controller.update(state, score), score), lambda_ == best

    start = (controller.update(controller.init(), jnp.float32(0.0)), jnp.float32(0.0))
    _, chosen = jax.lax.scan(play, start, (jnp.arange(300), jax.random.split(key, 300)))
    return jnp.mean(chosen[:150]), jnp.mean(chosen[150:])


def test_forgetting_recovers_from_a_switch():
    keys = jax.random.split(jax.random.key(3), 20)
    shares = {
        name: np.mean(jax.vmap(functools.partial(pulls_of_best_arm, controller))(keys), axis=1)
        for name, controller in {
            "stationary": bandits.thompson(),
            "window": bandits.sliding_window_thompson(window=30),
            "discounted": bandits.discounted_thompson(discount=0.95),
        }.items()
    }
    for before, _ in shares.values():
        assert before > 0.8  # all of them find the better arm at first
    # With 150 wins behind the old arm, the stationary posterior needs as many failures again to give it up.
    assert shares["stationary"][1] < 0.5
    assert shares["window"][1] > 0.7
    assert shares["discounted"][1] > 0.7


def test_plateau_searches_where_returns_have_stopped_to_rise_with_those_that_found_no_way_on():
    controller = bandits.plateau(3, arms=(0.2, 0.8, 0.0), patience=2)
    state, lambdas = controller.select(jax.random.key(0), controller.init())
    assert lambdas.tolist() == [0.0, 0.0, 0.0]
    climb, flat = [0.0, 0.0, 0.0], [-42.0, -44.0, -41.0]
    search, further = pytest.approx([0.2, 0.2, 0.0]), pytest.approx([0.8, 0.8, 0.0])
    for returns, expected in [
        ([-100.0, -110.0, -90.0], climb),  # the start, a mean of -100; the best is above it
        ([-50.0, -60.0, -40.0], climb),
        ([-41.0, -39.0, -45.0], climb),  # two rounds ago the record was -90
        *[(flat, search)] * 6,  # it is -39 and was -40: 1 is less than a twentieth of 61; three times two rounds
        *[(flat, climb)] * 2,
        *[(flat, further)] * 6,
        *[(flat, climb)] * 2,
        *[(flat, further)] * 2,  # there is no larger arm
        ([-30.0, -44.0, -41.0], climb),  # -30 and was -39: 9 of 70
        ([-31.0, -44.0, -41.0], climb),  # still within two rounds
        # The next plateau, at -30. That before was at -39, and who is above -39 + 70 / 20 has left it.
        ([-32.0, -31.0, -41.0], pytest.approx([0.0, 0.0, 0.2])),
        ([-36.0, -31.0, -41.0], pytest.approx([0.2, 0.0, 0.2])),
        ([-32.0, -31.0, -34.0], pytest.approx([0.2, 0.0, 0.2])),  # all have: only the best does not search
    ]:
        state, lambdas = controller.select(jax.random.key(0), controller.update(state, jnp.asarray(returns)))
        assert lambdas.tolist() == expected


def test_plateau_waits_where_nothing_has_been_paid_yet():
    # With a reward that is rare all returns are 0 at first: only after `patience` rounds is that a plateau.
    controller = bandits.plateau(3, patience=4)
    state = controller.init()
    searching = []
    for _ in range(6):
        state = controller.update(state, jnp.zeros(3))
        searching.append(bool(state.lambdas.any()))
    assert searching == [False] * 4 + [True] * 2


def test_posterior_of_a_controller_without_a_bandit_is_empty():
    assert [len(part) for part in bandits.posterior(bandits.fixed(0.5).init())] == [0, 0]


def test_fixed():
    controller = bandits.fixed(0.25)
    state = controller.init()
    for score in (1.0, 2.0):
        state, lambda_ = controller.select(jax.random.key(0), state)
        assert lambda_ == 0.25
        state = controller.update(state, score)


def test_schedule_counts_rounds_and_stays_in_range():
    controller = bandits.schedule(optax.linear_schedule(1.5, -0.5, transition_steps=4))
    state, lambdas = controller.init(), []
    for _ in range(5):
        state, lambda_ = controller.select(jax.random.key(0), state)
        state = controller.update(state, jnp.float32(0.0))
        lambdas.append(float(lambda_))
    assert lambdas == [1.0, 1.0, 0.5, 0.0, 0.0]  # 1.5, 1, 0.5, 0, -0.5, clipped


@pytest.mark.parametrize(
    "make",
    [
        bandits.thompson,
        bandits.authors_thompson,
        bandits.sliding_window_thompson,
        bandits.discounted_thompson,
        lambda: bandits.plateau(3),
        lambda: bandits.fixed(0.5),
        lambda: bandits.schedule(optax.constant_schedule(0.5)),
    ],
)
def test_state_keeps_its_structure_under_jit(make):
    # A training loop carries the state through jit and scan: types and shapes must never change.
    controller = make()
    state = controller.init()
    selected, _ = jax.jit(controller.select)(jax.random.key(0), state)
    updated = jax.jit(controller.update)(selected, jnp.float32(1.0))
    for after in (selected, updated):
        assert jax.tree.structure(after) == jax.tree.structure(state)
        assert [(x.shape, x.dtype) for x in jax.tree.leaves(after)] == [
            (x.shape, x.dtype) for x in jax.tree.leaves(state)
        ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bandits.thompson(()), r"arms: expected values of lambda from 0 to 1, got \[\]"),
        (lambda: bandits.thompson((0.0, 1.5)), r"arms: .*got \[0.0, 1.5\]"),
        (lambda: bandits.thompson((0.0, float("nan"))), r"arms: .*nan"),
        (lambda: bandits.fixed(-0.1), r"lambda_: .*got \[-0.1\]"),
        (lambda: bandits.sliding_window_thompson(window=0), "window: expected at least 1 round, got 0"),
        (lambda: bandits.plateau(0), "population: expected at least 1 member, got 0"),
        (lambda: bandits.plateau(2, patience=0), "patience: expected at least 1 round, got 0"),
        (lambda: bandits.discounted_thompson(discount=1.0), "discount: expected a number between 0 and 1, got 1.0"),
    ],
)
def test_errors_name_the_argument(call, words):
    with pytest.raises(ValueError, match=words):
        call()
