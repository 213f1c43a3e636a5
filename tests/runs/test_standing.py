"""Who is good and different in a line of metrics, and in what a run ends with."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dvdrl
from dvdrl.runs import loop, standing
from dvdrl.runs.standing import Reached
from stopped_runs import numbers

SMALL = dvdrl.DvDES(
    task="Point-v0", task_options={"horizon": 20}, population=3, sensings=3, hidden=(4,), iterations=6, num_states=4
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    loop.train(replace(SMALL, out=directory))
    return directory


def test_shares_are_what_is_left_given_the_fitter_ones() -> None:
    # Of two members with similarity 0.6, the fitter one has k = 1 and the other 1 - 0.6^2.
    np.testing.assert_allclose(standing.shares([0.6], [1.0, 2.0]), [0.64, 1.0], rtol=1e-4)
    np.testing.assert_allclose(standing.shares([0.6], [2.0, 1.0]), [1.0, 0.64], rtol=1e-4)
    # Pairs are (0, 1), (0, 2), (1, 2): member 2 is a copy of member 0, and nobody is like member 1.
    np.testing.assert_allclose(standing.shares([0.0, 1.0, 0.0], [3.0, 1.0, 2.0]), [1, 1, 0], atol=1e-4)
    assert standing.shares([], [5.0]) == [1.0]


def test_good_is_a_quarter_of_the_way_from_the_start_to_the_best() -> None:
    # From 100 to 500 that is 200.
    so_far = Reached(100.0, 500.0)
    assert standing.distinct([1, 0.5, 0.49, 1], [500, 200, 500, 199], so_far) == [True, True, False, False]
    # All are at the start: whoever is not below it is good.
    assert standing.distinct([1, 1], [3, 2.9], Reached(3, 3)) == [True, False]


def test_the_start_is_that_of_the_first_line_and_the_best_that_of_any() -> None:
    lines = [{"mean_return": mean, "best_return": best} for mean, best in ((1, 4), (2, 9), (3, 5))]
    assert standing.reached_by(Path("metrics.jsonl"), lines) == (1, 9)
    assert standing.reached_by(Path("metrics.jsonl"), []) is None


def test_what_an_algorithm_has_judged_itself_stays() -> None:
    line = {"shares": [1.0], "member_returns": [-9.0], "distinct": [True], "renewed": [True]}
    assert standing.judged(line, Reached(0, 1)) == line
    del line["distinct"], line["renewed"]
    assert standing.judged(line, Reached(0, 1)) == {**line, "distinct": [False], "renewed": [False]}


def test_every_line_says_who_is_good_and_different(whole: Path) -> None:
    lines = dvdrl.Run(whole).metrics
    best = -np.inf
    for line in lines:
        best = max(best, *line["member_returns"])
        bar = lines[0]["mean_return"] + (best - lines[0]["mean_return"]) / 4
        shares = np.array(line["shares"])
        assert shares[np.argmax(line["member_returns"])] == 1
        assert np.prod(shares) == pytest.approx(line["det"], rel=1e-4)
        assert line["distinct"] == ((shares >= 0.5) & (np.array(line["member_returns"]) >= bar)).tolist()
        assert line["renewed"] == [False] * 3
    found = np.array([line["distinct"] for line in lines])
    assert found.any()
    assert not found.all()
    population = dvdrl.load(whole)
    assert population.distinct is not None
    assert population.distinct.tolist() == lines[-1]["distinct"]
    np.testing.assert_array_equal(population.shares, np.float32(lines[-1]["shares"]))


def stopped(directory: Path, iterations: int, *, forget: bool) -> Path:
    """A run that goes on when it is resumed. With `forget`, as an earlier version of dvdrl left it."""
    loop.train(replace(SMALL, iterations=iterations, out=directory))
    config, metrics = directory / "config.json", directory / "metrics.jsonl"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"iterations": 6}))
    if forget:
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        kept = [{k: v for k, v in line.items() if k not in ("shares", "distinct", "renewed")} for line in lines]
        metrics.write_text("".join(json.dumps(line) + "\n" for line in kept))
    return directory


@pytest.mark.parametrize("forget", [False, True])
def test_a_resumed_run_goes_on_to_judge_by_all_that_was_before(forget: bool, whole: Path, tmp_path: Path) -> None:
    # The start and the best so far come from lines that were written before it was stopped.
    run = stopped(tmp_path / "run", 3, forget=forget)
    loop.resume(run)
    assert numbers(run)[3:] == numbers(whole)[3:]
    assert dvdrl.load(run).distinct.tolist() == dvdrl.load(whole).distinct.tolist()


def test_resuming_a_finished_run_keeps_what_is_known(whole: Path) -> None:
    before = (whole / "policies" / "policies.json").read_bytes()
    (whole / "policies" / "policies.json").write_text("{}")
    loop.resume(whole)
    assert (whole / "policies" / "policies.json").read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"shares": [1.0, 0.5]},
        {"shares": [1.0], "distinct": [True]},
        {"shares": [1.0, "x"], "distinct": [True, True]},
        {"shares": [1.0, 1e300], "distinct": [True, True]},
        {"shares": [1.0, float("nan")], "distinct": [True, True]},
        {"shares": [1.0, 0.5], "distinct": [True, 1]},
        {"shares": 1, "distinct": {"a": True}},
    ],
)
def test_lines_that_do_not_say_it_say_nothing(line: dict[str, object]) -> None:
    assert standing.in_line(line, 2) is None
