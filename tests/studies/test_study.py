"""Studies: their numbers from runs that are made up, and a whole one at its smallest."""

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from dvdrl.errors import DvdrlError
from dvdrl.runs.config import resolve
from dvdrl.studies import study
from dvdrl.studies.experiments import EXPERIMENTS, POINT


def made_up(variant: str, finals: list[float]) -> list[study.Result]:
    return [
        study.Result("half width 2", variant, seed, np.asarray([-900.0, final + 5, final]), 1000)
        for seed, final in enumerate(finals)
    ]


def test_summary_by_hand():
    (row,) = study.summarize(made_up("es", [-530.0, -550.0, -602.0, -770.0]), POINT)
    # The best of a run is 5 above its last: -525, -545, -597 are above -600, -765 is not.
    assert row["solved"] == 3
    assert row["seeds"] == 4
    assert row["best_median"] == -571.0
    assert row["final_median"] == -576.0
    # Quartiles of four numbers lie a quarter of the way into the outer gaps: -602 - 168/4 and -550 + 20/4.
    assert (row["final_low"], row["final_high"]) == (-644.0, -545.0)
    # Wilson, n = 4, p = 3/4, z = 1.96: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n).
    n, p, z = 4, 0.75, 1.959964
    middle, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    np.testing.assert_allclose(
        [row["share_low"], row["share_high"]],
        [(middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)],
        atol=5e-4,
    )


def test_what_is_solved_within_fifty_iterations_is_counted_by_itself():
    late = study.Result("half width 2", "es", 0, np.concatenate([np.full(50, -700.0), [-550.0]]), 1)
    (row,) = study.summarize([late], POINT)
    assert (row["solved"], row["solved_within_50"]) == (1, 0)


def test_a_setting_that_cannot_be_solved_has_no_share():
    (row,) = study.summarize([study.Result("Swimmer-v5", "es", 0, np.asarray([1.0, 2.0]), 1)], EXPERIMENTS["adaptive"])
    assert "solved" not in row


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_cell_of_every_scale_can_be_trained_and_none_has_more_rollouts(name):
    experiment = EXPERIMENTS[name]
    for scale, size in experiment.scales.items():
        for setting in size.settings:
            configs = [resolve(experiment.config(setting, variant, scale)) for variant in experiment.variants]
            rollouts = {
                config.iterations * 2 * config.sensings * (1 if config.algorithm == "nsr-es" else config.population)
                for config in configs
            }
            assert len(rollouts) == 1  # those of the gradient; NSR-ES looks at its members M times as often


def test_a_whole_study_at_its_smallest_and_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    two = replace(POINT, variants={name: POINT.variants[name] for name in ("nsr-es", "dvd-es")})
    monkeypatch.setitem(EXPERIMENTS, "point", two)
    study.reproduce("point", tmp_path / "out", scale="smoke", seeds="0..1", executor="local")
    rows = list(csv.DictReader((tmp_path / "out" / "runs.csv").read_text().splitlines()))
    assert [(row["variant"], row["seed"]) for row in rows] == [
        ("nsr-es", "0"), ("nsr-es", "1"), ("dvd-es", "0"), ("dvd-es", "1"),
    ]  # fmt: skip
    # Two members, two sensings, both signs: NSR-ES 2 + 4 rollouts of 50 steps in each of 2 x 2 iterations; DvD-ES
    # 2 + 8 in each of 2.
    assert [int(row["env_steps"]) for row in rows] == [1200, 1200, 1000, 1000]
    assert json.loads((tmp_path / "out" / "record.json").read_text())["seeds"] == "0..1"
    assert (tmp_path / "out" / "point.png").stat().st_size > 1000

    first = (tmp_path / "out" / "runs.csv").read_text()
    capsys.readouterr()
    study.reproduce("point", tmp_path / "out", scale="smoke", seeds="0..1", executor="local")  # all runs are finished
    assert (tmp_path / "out" / "runs.csv").read_text() == first
    assert "1/2" not in capsys.readouterr().err  # nothing was trained again

    cell = tmp_path / "runs" / "point" / "smoke-0..1-local" / "half-width-2" / "dvd-es"
    shutil.rmtree(cell / "seed-1")  # as if killed before this seed had begun
    study.reproduce("point", tmp_path / "out", scale="smoke", seeds="0..1", executor="local")
    assert (tmp_path / "out" / "runs.csv").read_text() == first

    damage = cell / "seed-0" / "config.json"
    damage.write_text("{")
    with pytest.raises(DvdrlError, match=r"not in these results: half width 2, dvd-es: .*config\.json"):
        study.reproduce("point", tmp_path / "out", scale="smoke", seeds="0..1", executor="local")
    rows = list(csv.DictReader((tmp_path / "out" / "runs.csv").read_text().splitlines()))
    assert {row["variant"] for row in rows} == {"nsr-es"}
    assert len(json.loads((tmp_path / "out" / "record.json").read_text())["missing"]) == 1

    # Other seeds are another study: the runs of these must not pass for them.
    study.reproduce("point", tmp_path / "other", scale="smoke", seeds="5..5", executor="local")
    rows = csv.DictReader((tmp_path / "other" / "runs.csv").read_text().splitlines())
    assert [row["seed"] for row in rows] == ["5", "5"]
