"""Actions that are drawn from pi(.|s): as often as it says, in workers, stepped from here, and compiled."""

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import VectorWrapper

import dvdrl
from dvdrl import engines
from dvdrl.engines.jax import JaxEngine, Step
from dvdrl.errors import DvdrlError
from dvdrl.interfaces import Episodes, Rollouts
from dvdrl.policies import Agents, policy_for
from dvdrl.rollouts import Compiled, Local

STEPS = 300  # more than the random numbers that are drawn together
SEEN = Box(0, 1, (1,), np.float32)
COIN = f"""
import gymnasium, numpy as np
from gymnasium.spaces import Box, Discrete

class Coin(gymnasium.Env):
    observation_space, action_space = Box(0, 1, (1,), np.float32), Discrete(3, start=5)
    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.ones(1, np.float32), {{}}
    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        taken = {{f"reward_mode_{{each}}": float(action == 5 + each) for each in range(3)}}
        return np.ones(1, np.float32), 0.0, False, self.steps == {STEPS}, taken

gymnasium.register("Coin-v0", entry_point=Coin, disable_env_checker=True)
"""


class Coin:
    """The same in JAX: every mode counts how often its alternative was taken."""

    observation_space, action_space, horizon = SEEN, Discrete(3, start=5), STEPS

    def reset(self, key: Any) -> tuple[Any, Any]:  # noqa: ARG002 - always the same
        return jnp.ones(1), jnp.ones(1)

    def step(self, key: Any, state: Any, action: Any) -> Step:  # noqa: ARG002
        taken = {f"reward_mode_{each}": (action == 5 + each).astype(jnp.float32) for each in range(3)}
        return Step(state, state, jnp.zeros(()), jnp.zeros((), bool), taken)


@pytest.fixture
def coin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "somebodys_coin.py").write_text(COIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(engines, "ENGINES", {**engines.ENGINES, "coins": JaxEngine(lambda name: Coin())})
    yield "somebodys_coin:Coin-v0"
    gymnasium.registry.pop("Coin-v0", None)
    sys.modules.pop("somebodys_coin", None)


N = 12
PROBABILITIES = np.array([0.6, 0.3, 0.1], np.float32)
POLICY = replace(policy_for(SEEN, Discrete(3, start=5), ()), sampled=True)
# The observation is 1, so the outputs are the parameters.
ROLLOUTS = Rollouts(
    np.zeros(N, int),
    Agents(np.tile(np.log(PROBABILITIES), (N, 1)), np.zeros((N, 1), np.float32), np.ones((N, 1), np.float32)),
    np.zeros(N, np.uint32),
    np.asarray(jax.random.key_data(jax.random.split(jax.random.key(0), N))),
)


def counted(episodes: Episodes) -> np.ndarray:
    """How often each episode took each alternative, (n, 3)."""
    return np.stack([np.asarray(episodes.modes[str(each)]) for each in range(3)], axis=1)


def test_alternatives_are_taken_as_often_as_the_policy_says(coin: str) -> None:
    make = partial(dvdrl.make_vec, coin, autoreset_mode="Disabled", num_threads=2)
    with closing(Local(make, POLICY)) as whole:
        in_workers = counted(whole.run(ROLLOUTS))
        some = counted(whole.run(jax.tree.map(lambda field: field[::-3], ROLLOUTS)))
    with closing(Local(lambda num: VectorWrapper(make(num)), POLICY)) as stepped:
        from_here = counted(stepped.run(ROLLOUTS))
    np.testing.assert_array_equal(in_workers, from_here)
    np.testing.assert_array_equal(some, in_workers[::-3])  # whatever is beside an episode
    for counts in (in_workers, counted(Compiled(Coin(), POLICY).run(ROLLOUTS))):
        assert (counts.sum(axis=1) == STEPS).all()
        deviation = np.sqrt(PROBABILITIES * (1 - PROBABILITIES) / (N * STEPS))
        np.testing.assert_array_less(abs(counts.mean(axis=0) / STEPS - PROBABILITIES), 4 * deviation)
        # Draws are independent: those of an episode deviate as much as 300 of them do.
        assert 0.5 < counts[:, 0].std() / np.sqrt(STEPS * 0.6 * 0.4) < 2
    greedy = counted(Compiled(Coin(), replace(POLICY, sampled=False)).run(ROLLOUTS))
    np.testing.assert_array_equal(greedy, [[STEPS, 0, 0]] * N)


def test_only_training_draws(coin: str, tmp_path: Path) -> None:
    assert coin
    tiny: dict[str, Any] = {"population": 2, "sensings": 1, "hidden": (), "num_states": 3, "iterations": 1}
    run = dvdrl.train(dvdrl.DvDES(task="coins:Coin", choices="sampled", out=tmp_path / "run", **tiny))
    assert isinstance(run, dvdrl.Run)
    in_training = np.array([run.metrics[0][f"mode_{each}"] for each in range(3)])
    assert ((in_training > 0).sum(axis=0) > 1).all()  # each member took several alternatives
    evaluated = dvdrl.evaluate(run.directory, episodes=2)["mode_returns"]
    np.testing.assert_array_equal(
        np.sort([evaluated[str(each)] for each in range(3)], axis=0), [[0, 0]] * 2 + [[STEPS] * 2]
    )
    assert run.population.act([1.0]).shape == (2,)


def test_real_numbers_are_not_drawn(tmp_path: Path) -> None:
    with pytest.raises(DvdrlError, match=r"choices: expected greedy, because the actions of Point-v0 are no choices"):
        dvdrl.train(dvdrl.ES(task="Point-v0", choices="sampled", out=tmp_path / "run"))
    assert not list(tmp_path.iterdir())
