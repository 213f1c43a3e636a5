"""The trainer with a learner that is not TD3, through the record alone."""

from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from dvdrl.off_policy import unpack
from dvdrl.runs import checkpoint
from dvdrl.runs.checkpoint import Progress
from dvdrl.runs.off_policy import OffPolicy
from dvdrl.runs.trainer import NotFinite, Outcome
from toy_learner import ACT, OBS, OPTIONS, M, toy


@pytest.fixture
def trainer() -> Iterator[OffPolicy]:
    trainer = OffPolicy(OPTIONS, 2, toy())
    yield trainer
    trainer.close()


def two_iterations(trainer: OffPolicy) -> tuple[list[Outcome], list[Outcome]]:
    first = trainer.iterate([trainer.init(seed) for seed in (0, 1)])
    return first, trainer.iterate([outcome.state for outcome in first])


def test_actions_come_from_before_the_updates_that_are_due(trainer: OffPolicy) -> None:
    for first, second in zip(*two_iterations(trainer), strict=True):
        random, acted = unpack(first.transitions, OBS), unpack(second.transitions, OBS)
        assert np.unique(random.action).size > 100
        # Step 45 is the first that is not random. The update for steps 45 to 49 is due with step 50, whose actions are
        # asked for before it; the next one is due with step 55. There are two simulations.
        hundredths = [0] * 6 + [1] * 5 + [2] * 4
        np.testing.assert_array_equal(acted.action[30:, 0], np.repeat(np.float32(hundredths) / np.float32(100), M))
        np.testing.assert_array_equal(acted.action[30:, 1], np.tile(np.float32([0, 0.01]), 15))
        assert int(second.state.learner.num_updates) == 3  # the last one, for steps 55 to 59, at the end
        # Random steps are stored as well.
        seen = np.concatenate([random.obs, acted.obs]).sum(axis=0)
        np.testing.assert_allclose(second.state.learner.total, seen, rtol=1e-4, atol=1e-3)
        # Of 60 steps of each simulation, the 50th is the last of an episode, and the task did not end it itself.
        assert float(second.state.learner.ended) == 2
        assert not acted.terminated.any()


def test_a_line_has_what_the_learner_reports(trainer: OffPolicy) -> None:
    for first, second in zip(*two_iterations(trainer), strict=True):
        assert (first.line["updates"], second.line["updates"]) == (0, 3)
        assert "surprise" not in first.line
        assert second.line["surprise"] == 3.0  # three updates of 3 each
        assert second.line["mean_distance"] == 1.0  # behaviours are the members' numbers, 0 and 1
        assert not {"critic_loss", "value"} & second.line.keys()
        # Without exploration both do nothing, from the same starts.
        assert second.line["member_returns"][0] == second.line["member_returns"][1]
        assert trainer.population(second.state).act(np.zeros(OBS)).tolist() == [[0.0] * ACT] * M


def test_a_run_goes_on_from_its_checkpoint(trainer: OffPolicy, tmp_path: Path) -> None:
    first, second = two_iterations(trainer)
    loaded = []
    for seed, outcome in enumerate(first):
        checkpoint.save(tmp_path / str(seed), outcome.state, Progress(1, 60, 0.0))
        loaded.append(checkpoint.load(tmp_path / str(seed), trainer.like(), 1)[0])
    again = OffPolicy(OPTIONS, 2, toy())
    again.recall(loaded, [outcome.transitions for outcome in first])
    for one, other in zip(second, again.iterate(loaded), strict=True):
        np.testing.assert_array_equal(one.transitions, other.transitions)
        np.testing.assert_array_equal(one.state.learner.total, other.state.learner.total)
        assert one.line == other.line
    again.close()


def test_what_is_not_finite_is_named_as_the_learner_names_it(trainer: OffPolicy) -> None:
    states = [trainer.init(seed) for seed in (0, 1)]
    lost = states[1].learner._replace(beliefs=jnp.asarray([0.0, jnp.inf]))
    with pytest.raises(NotFinite, match=r"^belief of member 1$") as error:
        trainer.iterate([states[0], states[1]._replace(learner=lost)])
    assert error.value.run == 1
