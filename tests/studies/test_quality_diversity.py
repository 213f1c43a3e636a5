"""CMA-MAE as a peer: which elites stand for it, and what its tables say."""

import json
from dataclasses import replace

import numpy as np
import pytest

import dvdrl
from dvdrl.archives import CMAMAE, Elites
from dvdrl.errors import DvdrlError
from dvdrl.runs.presets import resolve
from dvdrl.studies import quality_diversity
from dvdrl.studies.experiments import MODES

RANGES = [(-10.0, 10.0), (-10.0, 10.0)]


def elites(*rows: tuple[float, float, float]) -> Elites:
    x, y, returns = np.array(rows).T
    return Elites(np.zeros((len(rows), 1)), np.stack([x, y], axis=1), returns)


def test_the_best_elite_comes_first_and_then_those_that_are_good_elsewhere():
    # The second is nearly as good as the first and beside it, at 0.05 of the ranges: with a length scale of 0.2 its
    # share is 1 - exp(-0.25 ** 2) = 0.06, so it counts 0.06 * 39. The third counts about 20, the fourth about 10.
    found = elites((5, 5, 40), (6, 5, 39), (-5, -5, 20), (5, -5, 10))
    assert quality_diversity.choose(found, RANGES, 0.0, 3).tolist() == [0, 2, 3]
    # Above a floor of 15 the fourth has gained nothing, and the second is better than that.
    assert quality_diversity.choose(found, RANGES, 15.0, 3).tolist() == [0, 2, 1]


def test_a_small_archive_is_taken_whole_and_nobody_twice():
    found = elites((5, 5, 1), (5, 5, 1))
    assert quality_diversity.choose(found, RANGES, 0.0, 5).tolist() == [0, 1]


def test_cma_mae_fills_its_archive_with_the_best_of_each_cell():
    # The first parameter is the measure, and the second the return: so what is in each of 50 cells is known.
    search = CMAMAE(np.zeros((2, 6)), [(-1.0, 1.0)], 0.0, batch_size=4, seed=0)
    tried = []
    for _ in range(20):
        tried.append(search.ask())
        assert tried[-1].shape == (8, 6)
        search.tell(tried[-1][:, 1], tried[-1][:, :1])
    everything = np.concatenate(tried)
    best: dict[int, float] = {}
    for measure, returned, *_ in everything:
        cell = int(np.clip(np.floor((measure + 1) * 25), 0, 49))
        best[cell] = max(returned, best.get(cell, -np.inf))
    found = search.elites
    assert sorted(found.returns) == sorted(best.values())
    np.testing.assert_array_equal(found.params[:, 1], found.returns)
    np.testing.assert_array_equal(found.params[:, :1], found.measures)
    assert np.mean(tried[-1][:, 1]) > 0.5  # it climbs: it began at 0, with perturbations of 0.2


def test_with_more_than_two_measures_each_cell_is_what_is_nearest_to_its_centre():
    search = CMAMAE(np.zeros((2, 6)), [(-1.0, 1.0)] * 3, 0.0, batch_size=4, seed=0)
    tried = []
    for _ in range(20):
        tried.append(search.ask())
        search.tell(tried[-1][:, 3], tried[-1][:, :3])
    centres = np.random.default_rng(np.random.SeedSequence(0).generate_state(3)[0]).uniform(-1, 1, (2500, 3))
    everything = np.concatenate(tried)
    nearest = np.argmin(((everything[:, None, :3] - centres) ** 2).sum(axis=-1), axis=1)
    best = [everything[nearest == cell, 3].max() for cell in np.unique(nearest)]
    np.testing.assert_array_equal(np.sort(search.elites.returns), np.sort(best))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("modes")
    quality_diversity.reproduce(out, scale="smoke", seeds="3..4", setting="landmarks 4")
    return out


def test_what_is_saved_has_all_rows_of_each_seed(finished):
    rows = (finished / "cma-mae.csv").read_text().splitlines()
    assert rows[0] == "setting,variant,seed,env_steps,seconds,best,modes_found,all_modes"
    assert [row.split(",")[2] for row in rows[1:] if '"' not in row] == ["3", "3", "4", "4"]
    # Two initial policies, and two iterations of two emitters with 2 * 2 perturbations; an episode has 50 steps. By
    # visits, one more batch shows the ranges.
    by_visits = [row for row in rows[1:] if "visits" in row]
    assert {row.split(",")[-5] for row in by_visits} == {str((2 + 3 * 2 * 4) * 50)}
    assert {row.split(",")[-5] for row in rows[1:] if row not in by_visits} == {str((2 + 2 * 2 * 4) * 50)}
    record = json.loads((finished / "cma-mae.json").read_text())
    assert (record["seeds"], record["scale"]) == ("3..4", "smoke")
    assert "ribs" in record["versions"]


def test_the_summary_is_read_from_what_is_saved(finished, tmp_path):
    rows = quality_diversity.summary(finished)
    names = ["cma-mae", "cma-mae, whole archive", "cma-mae by visits", "cma-mae by visits, whole archive"]
    assert [row["variant"] for row in rows] == names
    for chosen, everything in (rows[:2], rows[2:]):
        assert chosen["seeds"] == everything["seeds"] == 2
        assert chosen["best"] <= everything["best"]  # those chosen are elites of the archive
    assert quality_diversity.summary(tmp_path) == []


def test_a_seed_gives_the_same_numbers_again():
    config = replace(resolve(MODES.config("landmarks 4", "es", "smoke")), seed=3)
    first, again = (
        [replace(result, seconds=0.0) for result in quality_diversity.results("landmarks 4", config)] for _ in range(2)
    )
    assert first == again


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scale": "small"}, "scale: modes-qd has smoke, medium, paper; got small"),
        ({"setting": "landmarks 8"}, "setting: modes-qd has landmarks 4 at the scale smoke; got 'landmarks 8'"),
        ({"seeds": "9..3"}, "seeds: expected the first and the last"),
    ],
)
def test_what_there_is_not_is_refused_before_anything_is_written(options, said, tmp_path):
    with pytest.raises(DvdrlError, match=said):
        quality_diversity.reproduce(tmp_path / "out", **{"scale": "smoke", "seeds": None, "setting": None} | options)
    assert not (tmp_path / "out").exists()


def test_options_that_have_no_meaning_are_refused():
    for option in ({"processes": 2}, {"executor": "ray"}, {"tables_only": True}):
        with pytest.raises(DvdrlError, match="modes-qd: expected neither"):
            dvdrl.reproduce("modes-qd", **option)
