"""What the page shows is what metrics.jsonl says, thinned without losing an extreme, and gaps stay gaps."""

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

import dvdrl
from dvdrl.cli.parse import parsed
from dvdrl.cli.train import Train
from dvdrl.errors import DvdrlError
from dvdrl.runs import file
from dvdrl.runs.presets import resolve
from dvdrl.runs.training import Training
from dvdrl.views import summary
from written_runs import numbers, write_numbers


def test_a_short_curve_is_all_of_its_points() -> None:
    lines = numbers(range(1, 101))
    shown = summary.summarize_run(Path("run"), {"algorithm": "es", "arms": [0.0, 0.5]}, lines)
    for field in ("best_return", "lambda", "log_det_per_member", "vendi_1", "min_distance"):
        assert shown["curves"][field] == {"x": list(range(1, 101)), "y": [line[field] for line in lines]}
    for member in range(3):
        assert shown["members"][member]["y"] == [line["member_returns"][member] for line in lines]
    assert shown["last"]["best_return"] == lines[-1]["best_return"]
    assert shown["curves"]["held_out_return"] == {"x": [], "y": []}
    for iteration in (1, 10, 20):
        lines[iteration - 1]["held_out_return"] = -iteration
    shown = summary.summarize_run(Path("run"), {"algorithm": "es", "arms": [0.0, 0.5]}, lines)
    assert shown["curves"]["held_out_return"] == {"x": [1, 10, 20], "y": [-1, -10, -20]}
    assert not shown["thinned"]
    # Beta(a, b) has the mean a / (a + b).
    assert [arm["label"] for arm in shown["arms"]] == ["λ = 0.0", "λ = 0.5"]
    np.testing.assert_allclose(shown["arms"][0]["mean"]["y"], [(1 + t) / (2 + t) for t in range(1, 101)])
    np.testing.assert_allclose(shown["arms"][1]["mean"]["y"], 2 / 5)


def test_the_page_says_that_curves_are_thinned_where_they_are() -> None:
    for count in (2 * summary.BUCKETS, 2 * summary.BUCKETS + 100):
        lines = numbers(range(1, count + 1))
        shown = summary.summarize_run(Path("run"), {"algorithm": "es", "arms": [0.0, 0.5]}, lines)
        assert shown["thinned"] == (len(shown["curves"]["best_return"]["x"]) < count)
        assert shown["thinned"] == (count > 1200)


def test_a_long_curve_keeps_its_ends_and_extremes() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=10_000)
    values[[1234, 7777]] = 50.0, -50.0  # one iteration each, which a mean would hide
    curve = summary.thinned(range(1, 10_001), values.tolist())
    assert len(curve["x"]) <= 2 * summary.BUCKETS + 2
    assert (curve["x"][0], curve["x"][-1]) == (1, 10_000)
    kept = dict(zip(curve["x"], curve["y"], strict=True))
    assert kept[1235] == 50.0
    assert kept[7778] == -50.0
    assert all(values[x - 1] == y for x, y in kept.items())  # every point is one of the run


def test_missing_iterations_are_a_gap_and_a_slower_measurement_is_not() -> None:
    assert summary.thinned([1, 2, 3, 7, 8], [1, 2, 3, 7, 8])["x"] == [1, 2, 3, None, 7, 8]
    # Measured every second iteration: neighbours are 2 apart everywhere.
    values = [1.0 if iteration % 2 else None for iteration in range(1, 10)]
    assert summary.thinned(range(1, 10), values)["x"] == [1, 3, 5, 7, 9]
    assert summary.thinned([1], [2.0]) == {"x": [1], "y": [2.0]}
    assert summary.thinned([], []) == {"x": [], "y": []}


def test_frames_are_some_iterations_with_all_they_need() -> None:
    lines = numbers(range(1, 1001))
    frames = summary.frames(lines)
    assert len(frames) == summary.FRAMES
    assert (frames[0]["iteration"], frames[-1]["iteration"]) == (1, 1000)
    for frame in frames:
        line = lines[frame["iteration"] - 1]
        assert frame["similarities"] == line["similarities"]
        assert frame["distances"] == line["distances"]
        assert frame["returns"] == line["member_returns"]
        # Three places in a plane can have any three distances that a triangle can.
        np.testing.assert_allclose(pdist(frame["map"]), line["distances"], atol=1e-9)


def test_runs_from_before_pairs_were_written_have_no_frames() -> None:
    old = [{k: v for k, v in line.items() if k not in ("similarities", "distances")} for line in numbers([1, 2])]
    assert summary.frames(old) == []


def test_one_member_is_one_place() -> None:
    (frame,) = summary.frames(numbers([1], members=1))
    assert frame["map"] == [[0.0, 0.0]]
    assert frame["similarities"] == []


def test_a_map_is_turned_to_the_one_before() -> None:
    rng = np.random.default_rng(1)
    places = rng.normal(size=(5, 2))
    places -= places.mean(axis=0)
    turn = np.array([[0.6, -0.8], [0.8, 0.6]]) @ np.diag([1, -1])  # a rotation and a mirror
    np.testing.assert_allclose(summary.aligned(places @ turn, places), places, atol=1e-12)


def test_groups_are_runs_that_differ_in_their_seed() -> None:
    like = {"algorithm": "dvd-es", "sigma": 0.1}
    values = {0: 1.0, 1: 2.0, 2: 6.0}

    def lines(value: float) -> list[dict[str, Any]]:
        return [{"iteration": i, "env_steps": 10 * i, "best_return": value} for i in (1, 2)]

    runs = [({**like, "seed": seed}, lines(value)) for seed, value in values.items()]
    runs.append(({**like, "sigma": 0.2, "seed": 0}, lines(9.0)))
    runs.append(({"algorithm": "td3", "batch_size": 32, "seed": 0}, lines(1.0)))
    compared = summary.compare(runs)
    assert compared is not None
    three, one, other = compared["groups"]
    assert other["label"] == "td3"  # that another algorithm has other options is not said
    assert (three["label"], three["runs"]) == ("dvd-es, sigma 0.1", 3)
    assert (one["label"], one["runs"]) == ("dvd-es, sigma 0.2", 1)
    # Mean 3, deviation sqrt(7), t_{0.975, 2} = 4.302653: half width 4.302653 * sqrt(7 / 3).
    measure = three["measures"]["best_return"]
    np.testing.assert_allclose(measure["y"], [3, 3])
    np.testing.assert_allclose(measure["low"], 3 - 4.302653 * math.sqrt(7 / 3), rtol=1e-6)
    np.testing.assert_allclose(measure["high"], 3 + 4.302653 * math.sqrt(7 / 3), rtol=1e-6)
    assert measure["x"] == [10, 20]
    assert summary.compare(runs[:1]) is None  # nothing to compare


@pytest.mark.parametrize(
    "options",
    [
        dvdrl.DvDES(task="Point-v0", task_options={"wall_half_width": 4.0}, seed=3, arms=(0.1, 0.2, 0.3)),
        dvdrl.NSRES(task="a task", hidden=(8, 8, 8), state_filter=False, orthogonal=True),
        dvdrl.ES(task="<script>alert(1)</script>"),
        dvdrl.DvDTD3(task="HalfCheetah-v5", population=3, steps=1000, arms=(0.5,)),
        dvdrl.TD3(task="Hopper-v5", seed=1),
    ],
)
def test_the_command_repeats_the_run(options: Training, tmp_path: Path) -> None:
    resolved = resolve(options)
    (tmp_path / "config.json").write_text(file.to_json(resolved))
    words = shlex.split(summary.command(tmp_path))
    assert words[:2] == ["dvdrl", "train"]
    command = parsed(words[1:])
    assert isinstance(command, Train)
    assert resolve(replace(command.options, out=None)) == resolved


def test_a_config_of_another_version_is_repeated_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"algorithm": "dvd-es", "task": "Point-v0", "of_the_future": 1}')
    assert summary.command(tmp_path) == f"dvdrl train --config {tmp_path}/config.json"


def test_a_record_is_shown_as_text(tmp_path: Path) -> None:
    assert summary.read_record(tmp_path) == {}
    (tmp_path / "record.json").write_text('{"command": "dvdrl train es", "seeds": [1], "versions": {"jax": "0.10"}}')
    assert summary.read_record(tmp_path) == {"command": "dvdrl train es", "seeds": "[1]", "jax": "0.10"}
    for text in ("[]", "", '{"versions": 1}'):
        (tmp_path / "record.json").write_text(text)
        assert summary.read_record(tmp_path) == {}


@pytest.mark.parametrize("text", ["", "[]", "1", '"es"', "[" * 10_000, "\x00"])
def test_a_config_that_is_none_is_said(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(DvdrlError, match=r"config\.json"):
        summary.read_config(tmp_path)


@pytest.mark.parametrize("text", ["[]\n", "{}\n", '{"iteration": "one"}\n', "{\n", '{"iteration": NaN}\n', "\xff\n"])
def test_metrics_that_are_none_are_said(text: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(text.encode("latin-1"))
    with pytest.raises(DvdrlError, match=r"metrics\.jsonl"):
        summary.read_lines(tmp_path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["env_steps", "best_return", "member_returns", "lambda", "arm_alpha", "arm_beta", "similarities", "distances"]
)


@given(
    st.lists(st.dictionaries(FIELDS, VALUES), max_size=6), st.dictionaries(st.sampled_from(["arms", "task"]), VALUES)
)
def test_whatever_a_file_holds_can_be_shown(lines: list[dict[str, Any]], options: dict[str, Any]) -> None:
    numbered = [{**line, "iteration": index} for index, line in enumerate(lines)]
    shown = summary.summarize_run(Path("run"), options, numbered)
    json.dumps([shown, summary.compare([(options, numbered), (options, numbered)])], allow_nan=False)


def test_numbers_are_read_back(tmp_path: Path) -> None:
    lines = numbers([1, 2, 3])
    assert summary.read_lines(write_numbers(tmp_path / "run", lines)) == lines
