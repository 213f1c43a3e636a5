"""What a study keeps of its cells stands in for their runs, and for nothing else."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dvdrl.errors import DvdrlError
from dvdrl.runs.checkpoint import Damaged
from dvdrl.studies import cells, kept, study
from dvdrl.studies.experiments import EXPERIMENTS, POINT

OPTIONS = {"scale": "smoke", "seeds": "0..1", "executor": "local"}
TWO = dataclasses.replace(POINT, variants={name: POINT.variants[name] for name in ("nsr-es", "dvd-es")})
CELLS = Path("out", "cells", "smoke-0..1", "half-width-2")
RUNS = Path("runs", "point", "smoke-0..1-local", "half-width-2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory with a study of two variants, its runs and its tables."""
    directory = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.setitem(EXPERIMENTS, "point", TWO)
        study.reproduce("point", Path("out"), **OPTIONS)
    return directory


@pytest.fixture
def begun(trained, tmp_path, monkeypatch):
    """In a copy of it: the variants of which a training was begun. None gets any further."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(EXPERIMENTS, "point", TWO)
    variants = []

    def refuse(directory):
        variants.append(directory.name)
        raise DvdrlError("no training here")

    monkeypatch.setattr(cells, "train", lambda config: refuse(config.out))
    monkeypatch.setattr(cells, "resume", refuse)
    monkeypatch.setattr(cells, "_run_apart", lambda cell: refuse(cell.directory))
    return variants


def tables():
    return {name: Path("out", name).read_bytes() for name in ("runs.csv", "summary.csv", "comparisons.csv")}


@pytest.mark.parametrize("processes", [1, 2])
def test_without_its_runs_a_study_has_the_same_tables(begun, processes):
    first = tables()
    shutil.rmtree("runs")
    for name in first:
        Path("out", name).unlink()
    study.reproduce("point", Path("out"), **OPTIONS, processes=processes)
    assert begun == []
    assert tables() == first  # to the byte: what is kept is what they were made of


def test_with_some_of_its_runs_a_study_has_the_same_tables(begun):
    first = tables()
    shutil.rmtree(RUNS / "dvd-es")  # the second variant is known before the first, and comes after it all the same
    study.reproduce("point", Path("out"), **OPTIONS)
    assert begun == []
    assert tables() == first


def test_only_what_is_not_kept_is_trained(begun):
    shutil.rmtree("runs")
    (CELLS / "nsr-es.json").unlink()
    with pytest.raises(DvdrlError, match="not in these results: half width 2, nsr-es: no training here"):
        study.reproduce("point", Path("out"), **OPTIONS)
    assert begun == ["nsr-es"]
    assert not (CELLS / "nsr-es.json").exists()  # it was not finished


def test_where_there_are_runs_they_count_and_are_kept_anew(begun):
    whole = (CELLS / "dvd-es.json").read_text()
    (CELLS / "dvd-es.json").write_text("{")
    study.reproduce("point", Path("out"), **OPTIONS)
    assert begun == []  # they are finished
    assert (CELLS / "dvd-es.json").read_text() == whole

    shutil.rmtree(RUNS / "dvd-es" / "seed-1")  # a part of the runs is no reason to forget the others
    with pytest.raises(DvdrlError, match="dvd-es: no training here"):
        study.reproduce("point", Path("out"), **OPTIONS)
    assert begun == ["seed-1"]


def test_what_was_kept_with_other_options_is_refused_before_anything_is_trained(begun, monkeypatch):
    shutil.rmtree("runs")
    (CELLS / "nsr-es.json").unlink()  # there would be something to train, and before the other
    smoke = TWO.scales["smoke"]
    larger = dataclasses.replace(smoke, overrides={**smoke.overrides, "sigma": 0.2})
    monkeypatch.setitem(EXPERIMENTS, "point", dataclasses.replace(TWO, scales={"smoke": larger}))
    first = tables()
    with pytest.raises(
        DvdrlError,
        match=r"dvd-es\.json was trained with other options: sigma 0\.1, now 0\.2; move it away to train again",
    ):
        study.reproduce("point", Path("out"), **OPTIONS)
    assert begun == []
    assert tables() == first


def test_other_seeds_are_another_study(begun):
    shutil.rmtree("runs")
    with pytest.raises(DvdrlError, match="no cell has results: half width 2, nsr-es: no training here"):
        study.reproduce("point", Path("out"), **OPTIONS | {"seeds": "0..2"})
    assert begun == ["nsr-es", "dvd-es"]
    study.reproduce("point", Path("out"), **OPTIONS)  # what was kept of the first is still there
    assert begun == ["nsr-es", "dvd-es"]


def test_what_another_executor_trained_is_taken_and_said(begun, capsys):
    shutil.rmtree(RUNS / "dvd-es")
    path = CELLS / "dvd-es.json"
    options, results = kept.read(path, "half width 2", "dvd-es")
    kept.write(path, options | {"executor": "device"}, results)
    study.reproduce("point", Path("out"), **OPTIONS)
    assert begun == []
    rows = [line.split(",")[1:3] for line in Path("out", "summary.csv").read_text().splitlines()]
    assert rows == [["variant", "executor"], ["nsr-es", "local"], ["dvd-es", "device"]]
    assert json.loads(Path("out", "record.json").read_text())["executor"] == "local, device"
    assert "dvd-es: kept in out/cells (--executor device, 2 seeds), not run again" in capsys.readouterr().err


def test_tables_only_trains_nothing(begun):
    shutil.rmtree(RUNS / "nsr-es")
    (CELLS / "nsr-es.json").unlink()
    with pytest.raises(DvdrlError, match="not in these results: half width 2, nsr-es: not finished"):
        study.reproduce("point", Path("out"), **OPTIONS, tables_only=True)
    assert begun == []
    lines = Path("out", "runs.csv").read_text().splitlines()[1:]
    assert [line.split(",")[1] for line in lines] == ["dvd-es", "dvd-es"]  # two seeds


def test_an_option_that_did_not_exist_when_a_cell_was_kept_has_its_default(begun):
    # As for runs: options are added to the library all the time, with defaults that leave what there was as it is.
    shutil.rmtree("runs")
    path = CELLS / "dvd-es.json"
    options, results = kept.read(path, "half width 2", "dvd-es")
    del options["patience"]
    kept.write(path, options, results)
    study.reproduce("point", Path("out"), **OPTIONS)
    assert begun == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],  # cut short
        lambda text: text.replace('"best": [-', '"best": [', 1),  # JSON still, with another number
        lambda text: "[]",
        lambda text: "{}",
    ],
)
def test_a_damaged_file_is_named_and_the_rest_is_reported(begun, damage):
    shutil.rmtree("runs")
    path = CELLS / "dvd-es.json"
    damaged = damage(path.read_text())
    assert damaged != path.read_text()
    path.write_text(damaged)
    with pytest.raises(DvdrlError, match=r"not in these results: half width 2, dvd-es: .*dvd-es\.json is damaged"):
        study.reproduce("point", Path("out"), **OPTIONS)
    assert begun == []  # to train it anew is for the user to say
    assert path.read_text() == damaged
    lines = Path("out", "runs.csv").read_text().splitlines()[1:]
    assert [line.split(",")[1] for line in lines] == ["nsr-es", "nsr-es"]  # two seeds
    assert len(json.loads(Path("out", "record.json").read_text())["missing"]) == 1


def test_the_file_says_what_it_is_of_with_a_line_for_each_array(trained):
    text = (trained / CELLS / "dvd-es.json").read_text()
    values = json.loads(text)
    config = json.loads((trained / RUNS / "dvd-es" / "seed-1" / "config.json").read_text())
    assert values["options"] == {name: value for name, value in config.items() if name != "seed"}
    assert list(values["runs"]) == ["0", "1"]
    # Two members, two sensings, both signs: 8 rollouts of the gradient in each of two iterations.
    assert [line.strip() for line in text.splitlines() if '"x":' in line] == ['"x": [8, 16],'] * 2
    lines = (trained / RUNS / "dvd-es" / "seed-1" / "metrics.jsonl").read_text().splitlines()
    assert values["runs"]["1"]["curves"]["best"] == [round(json.loads(line)["best_return"], 3) for line in lines]


def test_what_is_kept_is_read_as_it_was(tmp_path):
    numbers = np.random.default_rng(0).normal(size=(3, 5)).round(3)
    curves = {"x": np.arange(5), "best": numbers[0], "lambda": numbers[1], "forward": numbers[2]}
    measures = {"best": 1e-3, "forward": -0.0, "both_modes": 1}
    result = kept.Result("a setting", "a variant", "device", 7, 10**9, 0.125, measures, curves, {"jax": "0.1"})
    kept.write(tmp_path / "new" / "cell.json", {"executor": "device"}, [result])
    options, (read,) = kept.read(tmp_path / "new" / "cell.json", "a setting", "a variant")
    assert options == {"executor": "device"}
    np.testing.assert_equal(dataclasses.asdict(read), dataclasses.asdict(result))
    assert [each.dtype for each in read.curves.values()] == [np.int64, np.float64, np.float64, np.float64]
    with pytest.raises(Damaged, match="FileNotFoundError"):
        kept.read(tmp_path / "none.json", "a setting", "a variant")


def test_tables_have_what_is_kept_of_other_seeds_where_there_is_nothing_of_these(begun):
    shutil.rmtree("runs")
    CELLS.parent.rename(CELLS.parent.with_name("smoke-5..6"))
    study.reproduce("point", Path("out"), **OPTIONS, tables_only=True)
    lines = Path("out", "runs.csv").read_text().splitlines()[1:]
    assert [line.split(",")[1] for line in lines] == ["nsr-es"] * 2 + ["dvd-es"] * 2
    with pytest.raises(DvdrlError, match="no cell has results"):
        study.reproduce("point", Path("out"), **OPTIONS)  # when training, only the seeds that were asked for count
    assert begun == ["nsr-es", "dvd-es"]


def test_without_curves_there_are_the_same_tables_and_the_figure_stays(begun, capsys):
    first = tables()
    shutil.rmtree("runs")
    options, results = kept.read(CELLS / "dvd-es.json", "half width 2", "dvd-es")
    kept.write(CELLS / "dvd-es.json", options, [dataclasses.replace(each, curves={}) for each in results])
    Path("out", "point.png").write_bytes(b"drawn when there were curves")
    study.reproduce("point", Path("out"), **OPTIONS)
    assert tables() == first
    assert begun == []
    assert Path("out", "point.png").read_bytes() == b"drawn when there were curves"
    assert "no curves are kept of half width 2, dvd-es\n" in capsys.readouterr().err
