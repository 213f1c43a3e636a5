"""The Point study: its numbers from runs that are made up, and the whole of it at its smallest."""

import csv
import json

import numpy as np

from dvdrl.studies import point


def made_up(algorithm: str, finals: list[float]) -> list[point.Result]:
    return [
        point.Result(2.0, algorithm, seed, np.asarray([-900.0, final + 5, final]), 1000)
        for seed, final in enumerate(finals)
    ]


def test_summary_by_hand():
    (row,) = point.summarize(made_up("es", [-530.0, -550.0, -602.0, -770.0]))
    # The best of a run is 5 above its last: -525, -545, -597 escape -600, -765 does not.
    assert row["escaped"] == 3
    assert row["seeds"] == 4
    assert row["median_best"] == -571.0
    assert row["median_final"] == -576.0
    assert row["worst_final"] == -770.0
    # Wilson, n = 4, p = 3/4, z = 1.96: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n).
    n, p, z = 4, 0.75, 1.959964
    middle, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    np.testing.assert_allclose(
        [row["share_low"], row["share_high"]],
        [(middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)],
        atol=5e-4,
    )


def test_escapes_within_fifty_iterations_are_counted_by_themselves():
    late = point.Result(2.0, "es", 0, np.concatenate([np.full(50, -700.0), [-550.0]]), 1)
    (row,) = point.summarize([late])
    assert (row["escaped"], row["escaped_within_50"]) == (1, 0)


def test_the_whole_study_at_its_smallest_and_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(point, "ALGORITHMS", {name: point.ALGORITHMS[name] for name in ("nsr-es", "dvd-es")})
    monkeypatch.setattr(point, "_STYLES", {name: point._STYLES[name] for name in ("nsr-es", "dvd-es")})
    point.reproduce(tmp_path / "out", scale="smoke", seeds="0..1", executor="local")
    rows = list(csv.DictReader((tmp_path / "out" / "runs.csv").read_text().splitlines()))
    assert [(row["algorithm"], row["seed"]) for row in rows] == [
        ("nsr-es", "0"), ("nsr-es", "1"), ("dvd-es", "0"), ("dvd-es", "1"),
    ]  # fmt: skip
    # Two members, two sensings, both signs: NSR-ES 2 + 4 rollouts of 50 steps in each of 2 x 2 iterations; DvD-ES
    # 2 + 8 in each of 2.
    assert [int(row["env_steps"]) for row in rows] == [1200, 1200, 1000, 1000]
    assert json.loads((tmp_path / "out" / "record.json").read_text())["seeds"] == "0..1"
    assert (tmp_path / "out" / "point.png").stat().st_size > 1000

    first = (tmp_path / "out" / "runs.csv").read_text()
    capsys.readouterr()
    point.reproduce(tmp_path / "out", scale="smoke", seeds="0..1", executor="local")  # all runs are finished
    assert (tmp_path / "out" / "runs.csv").read_text() == first
    assert "1/2" not in capsys.readouterr().out  # nothing was trained again
    # Other seeds are another study: the runs of these must not pass for them.
    point.reproduce(tmp_path / "other", scale="smoke", seeds="5..5", executor="local")
    rows = csv.DictReader((tmp_path / "other" / "runs.csv").read_text().splitlines())
    assert [row["seed"] for row in rows] == ["5", "5"]
