import numpy as np

import dvdrl
from dvdrl.policies import Bounded
from dvdrl.rollouts.collect import Collector, episode_returns


def make(num_envs: int, **options: float) -> object:
    return dvdrl.make_vec("Hopper-v5", num_envs, autoreset_mode="Disabled", **options)


def test_an_ended_episode_keeps_its_last_observation_and_the_next_begins() -> None:
    collector = Collector(lambda n: make(n, horizon=30), 4, Bounded((-1.0,) * 3, (1.0,) * 3))
    obs = collector.begin([1, 2, 3, 4])
    rng, ends, sums = np.random.default_rng(0), {"terminated": 0, "cut": 0}, np.zeros(4)
    for _ in range(60):
        result = collector.step(rng.uniform(-1, 1, (4, 3)).astype(np.float32))
        sums += result.reward
        np.testing.assert_allclose(result.returns, sums, rtol=1e-12)
        rests = ~result.ended
        np.testing.assert_array_equal(result.obs[rests], result.next_obs[rests])
        # Hopper begins standing: its first observation is not where the last episode ended.
        assert (result.obs[result.ended] != result.next_obs[result.ended]).any(axis=1).all()
        ends["terminated"] += int(result.terminated.sum())
        ends["cut"] += int((result.ended & ~result.terminated).sum())
        sums[result.ended] = 0.0
        obs = result.obs
    assert min(ends.values()) > 0  # falls and time limits are both here, and told apart
    assert obs.shape == (4, 11)
    assert collector.simulation_seconds > 0
    collector.close()


def test_returns_of_episodes_are_those_of_their_seeds() -> None:
    envs = make(3, horizon=20)
    returns = episode_returns(envs, lambda obs: np.zeros((len(obs), 3)), [5, 5, 6])
    assert returns[0] == returns[1] != returns[2]
    alone = episode_returns(make(1, horizon=20), lambda obs: np.zeros((1, 3)), [6])
    assert alone[0] == returns[2]
