"""niche-es as a run: its numbers, its lines, what it ends with, and that renewals are part of what is resumed."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import dvdrl
from dvdrl import niches
from dvdrl.errors import DvdrlError
from dvdrl.runs import checkpoint, evolution, loop, trainer
from dvdrl.runs.options import NSRES, NicheES
from dvdrl.runs.presets import resolve
from dvdrl.tasks.landmarks import Landmarks
from dvdrl.views import report
from stopped_runs import assert_same_run, numbers

ITERATIONS = 26
TINY = NicheES(
    task="Landmarks-v0", task_options={"horizon": 10}, population=5, sensings=4, hidden=(4,), iterations=ITERATIONS
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    loop.train(replace(TINY, out=directory))
    return directory


def test_lines_say_who_is_different_and_who_begins_anew(whole: Path) -> None:
    lines = dvdrl.Run(whole).metrics
    for line in lines:
        assert [len(line[key]) for key in ("shares", "distinct", "renewed")] == [5, 5, 5]
        assert all(0 <= share <= 1 for share in line["shares"])
        assert max(line["shares"]) == 1  # that of the fittest member, with this kernel
        assert {*map(type, line["distinct"]), *map(type, line["renewed"])} == {bool}
        assert line["lambda"] == 0
    # Within ten steps nobody gets anywhere, so members are copies, which shows when they have settled and not before.
    renewed = np.array([line["renewed"] for line in lines])
    assert not renewed[: niches.SETTLED - 1].any()
    assert renewed[niches.SETTLED - 1 :].any()


def test_a_run_with_renewals_is_extended_and_trained_with_others_to_the_bit(whole: Path, tmp_path: Path) -> None:
    # Stopped before, and after, somebody has begun anew.
    for stop in (10, 23):
        stopped = tmp_path / str(stop)
        loop.train(replace(TINY, iterations=stop, out=stopped))
        loop.resume(stopped, iterations=ITERATIONS)
        assert_same_run(stopped, whole)
    runs = loop.train(replace(TINY, seeds="0..1", out=tmp_path / "seeds"))
    assert isinstance(runs, list)
    assert_same_run(runs[0].directory, whole)
    assert numbers(runs[1].directory) != numbers(whole)


def test_its_best_is_what_it_ends_with(whole: Path) -> None:
    assert not (whole / "kept").exists()
    for which in ("best", "best-each"):
        np.testing.assert_array_equal(dvdrl.load(whole, which).agents.params, dvdrl.load(whole).agents.params)
    evaluated = [line["iteration"] for line in dvdrl.Run(whole).metrics if len(line.get("held_out_returns", ())) == 5]
    assert evaluated == [1, 10, 20]


def test_a_run_ends_with_its_elites(whole: Path) -> None:
    options = resolve(TINY)
    algorithm = evolution.make_algorithm(options, trainer.make_policy(options))
    like = jax.eval_shape(algorithm.init, jax.random.key(0))
    state, _ = checkpoint.load(whole / "checkpoints", like, ITERATIONS)
    known = algorithm.elites(state)
    assert known is not None
    best, distinct, shares = known, known.distinct, known.shares
    assert np.isfinite(best.quality[:5]).all()
    loaded = dvdrl.load(whole)
    for array, elite in zip(loaded.agents, best.agents, strict=True):
        np.testing.assert_array_equal(array, elite[:5])
    assert not np.array_equal(loaded.agents.params, state.params)
    # They know how they compare, to the bit.
    assert loaded.standing is not None
    places = loaded.standing.places
    assert places is not None
    np.testing.assert_array_equal(loaded.distinct, distinct[:5])
    np.testing.assert_allclose(loaded.shares, shares[:5], rtol=1e-5)  # compiled otherwise, so rounded otherwise
    np.testing.assert_array_equal(places.quality, best.quality[:5])
    np.testing.assert_array_equal(places.behaviours, best.behaviours[:5])
    np.testing.assert_array_equal(places.relevance, state.niches.coordinates.relevance)
    assert (places.noise >= np.asarray(state.niches.coordinates.noise)).all()
    assert len(places.coordinates) == 4  # two of position, two of velocity


def test_coordinates_have_the_names_that_the_task_gives_to_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("x", "y", "x velocity", "y velocity")
    assert trainer.observation_names(TINY, 2) == ("observation 0", "observation 1")  # of others than the task's
    monkeypatch.setattr(Landmarks, "observation_names", names, raising=False)
    assert trainer.observation_names(TINY, 4) == names
    for other in ("CartPole-v1", "elsewhere:CartPole-v1"):
        assert trainer.observation_names(NicheES(task=other), 2) == ("observation 0", "observation 1")


def test_before_the_first_iteration_nothing_is_known_of_members(tmp_path: Path) -> None:
    options = replace(resolve(TINY), out=tmp_path / "run")
    made = loop.make_trainer(options, 1)
    assert made.population(made.init(0)).distinct is None
    made.close()


def test_the_report_shows_such_a_run(whole: Path, tmp_path: Path) -> None:
    report.report([whole], tmp_path / "report.html")
    assert "niche-es on Landmarks-v0" in (tmp_path / "report.html").read_text()


def test_recommended_numbers_are_the_default_and_the_same_for_all_tasks() -> None:
    for task in ("Point-v0", "HalfCheetah-FwdBwd-v0", "Landmarks-v0"):
        own, of_es = resolve(NicheES(task=task)), resolve(dvdrl.ES(task=task))
        assert own.preset == "recommended"
        for name in ("population", "sensings", "sigma", "step_rule", "learning_rate", "hidden", "iterations"):
            assert getattr(own, name) == getattr(of_es, name)
        assert (own.population, own.sensings, own.sigma, own.step_rule) == (5, 20, 0.05, "adam")
        assert (own.learning_rate, own.hidden, own.iterations) == (0.02, (32, 32), 200)
        assert own.starts == "per-iteration"
    for kind in (dvdrl.ES, NSRES, dvdrl.DvDES, NicheES):
        assert resolve(kind(task="Point-v0")).step_rule == "adam"
        assert resolve(kind(task="Point-v0", preset="paper")).step_rule == "plain"


def test_more_members_than_can_be_compared_with_elites_are_refused() -> None:
    # The determinant of 2,047 in single precision is the limit: 682 members and two elites for each.
    with pytest.raises(DvdrlError, match=r"^population: expected a number from 1 to 682, got 683$"):
        resolve(NicheES(task="Point-v0", population=683))
