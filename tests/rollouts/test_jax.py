"""Whole episodes of JAX environments as one program: the same as those that are stepped one by one."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drift import Drift
from dvdrl.engines.jax import JaxVectorEnv, Step
from dvdrl.errors import DvdrlError
from dvdrl.interfaces import Episodes, Rollouts
from dvdrl.policies import Agents, policy_for
from dvdrl.rollouts import Compiled, Local
from dvdrl.rollouts.measures import Measure, Measures

MEASURES = Measures(
    (Measure("x", False, "x"), Measure("last:x", True, "x"), Measure("m:f", False, "", lambda obs: obs[:, :2], 2))
)
POLICY = policy_for(Drift().observation_space, Drift().action_space, (4,))


def rollouts_of(n: int, scale: float = 1.0) -> Rollouts:
    keys = jax.random.split(jax.random.key(1), n)
    ones = jnp.ones((n, 3))
    params = scale * jax.vmap(POLICY.network.init)(keys)
    return Rollouts(
        member=jnp.zeros(n, jnp.int32),
        agents=Agents(params, 0.1 * ones, 0.5 * ones),
        start=jnp.arange(7, 7 + n, dtype=jnp.uint32),
        key=jax.random.key_data(keys),
    )


def run(env: Drift, rollouts: Rollouts, measures: Measures = MEASURES) -> Episodes:
    return Compiled(env, POLICY, measures).run(rollouts)


def test_they_are_the_episodes_that_are_stepped_one_by_one() -> None:
    # Noise, so that keys matter; a threshold that some pass, at different times, and others never do; and a horizon
    # that is no multiple of the steps between two looks.
    env, rollouts = Drift(threshold=4.0, noise=0.2), rollouts_of(12)
    expected = Local(partial(JaxVectorEnv, env, autoreset_mode="Disabled"), POLICY, MEASURES).run(rollouts)
    episodes = run(env, rollouts)
    np.testing.assert_array_equal(episodes.lengths, expected.lengths)
    assert expected.lengths.max() == 70
    assert len({*expected.lengths.tolist()}) > 3
    for name in ("returns", "modes", "measures", "moments"):
        jax.tree.map(
            partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-4), getattr(episodes, name), getattr(expected, name)
        )


def test_each_observation_of_an_episode_is_kept_as_often_as_any_other() -> None:
    n, length = 4000, 40
    states = np.asarray(run(Drift(horizon=length), rollouts_of(n, 0.0)).states)
    # Uniform on 0..39: a mean of 19.5 and a deviation of 11.5, so a mean of 4000 deviates by 0.18.
    times = states[:, 1]
    assert {*times.tolist()} == set(range(length))
    assert times.mean() == pytest.approx(19.5, abs=4 * 0.18)
    # Policies of zeros add nothing to the drift, so the number is in step with the time.
    np.testing.assert_allclose(states[:, 0] - 0.1 * times, 0.05, atol=0.0501)


def test_an_episode_is_that_of_any_other_batch_to_rounding() -> None:
    env, rollouts = Drift(noise=0.1), rollouts_of(9)
    alone = run(env, jax.tree.map(lambda leaf: leaf[4:6], rollouts))
    together = jax.tree.map(lambda leaf: leaf[4:6], run(env, rollouts))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), alone, together)


def test_a_simulation_that_is_lost_ends_its_episode_and_pays_nothing_for_it() -> None:
    with jax.debug_nans(False):
        episodes = run(Drift(broken_at=3), rollouts_of(2, 0.0))
    np.testing.assert_array_equal(episodes.lengths, [3, 3])
    # Two steps are paid, 0.1 + 0.2 above twice the start, which is the first observation seen.
    starts = np.asarray(episodes.moments.mean)[:, 0] - 0.1  # the mean of start, start + 0.1 and start + 0.2
    np.testing.assert_allclose(episodes.returns, 0.3 + 2 * starts, rtol=1e-5)


def test_actions_that_are_not_finite_end_the_episode_without_a_return() -> None:
    rollouts = rollouts_of(2)
    with jax.debug_nans(False):
        params = rollouts.agents.params.at[1].set(jnp.nan)
        episodes = run(Drift(), rollouts._replace(agents=rollouts.agents._replace(params=params)))
    np.testing.assert_array_equal(np.isnan(episodes.returns), [False, True])


class Growing(Drift):
    def step(self, key: Any, state: Any, action: Any) -> Step:
        step = super().step(key, state, action)
        return step._replace(state={**step.state, "x": step.state["x"][None]})


class Failing(Drift):
    def step(self, key: Any, state: Any, action: Any) -> Step:
        return super().step(key, state, action[5:9].reshape(4))


def test_environments_that_cannot_be_compiled_are_refused() -> None:
    with pytest.raises(DvdrlError, match=r"a step changes state\['x'\] from float32\[\] to float32\[1\]"):
        Compiled(Growing(), POLICY)
    with pytest.raises(DvdrlError, match=r"environment Failing failed: TypeError: .*test_jax.py, line \d+\)"):
        Compiled(Failing(), POLICY)
