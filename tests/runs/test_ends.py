"""When runs end, and why."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.runs import ends
from dvdrl.runs.options import ES
from dvdrl.runs.presets import resolve
from stopped_runs import assert_same_run


def test_a_run_ends_after_its_iterations_or_its_steps() -> None:
    options = resolve(ES(task="Point-v0", iterations=3, steps=100))
    for iteration, env_steps, reason in (
        (2, 99, None),
        (3, 99, "it has done its 3 iterations"),
        (2, 100, "it has done its 100 environment steps"),
    ):
        assert ends.course([{"iteration": iteration, "env_steps": env_steps}], options).ended == reason
    unlimited = resolve(ES(task="Point-v0", iterations=3))
    assert ends.course([{"iteration": 2, "env_steps": 10**9}], unlimited).ended is None
    assert ends.begun(options).ended is None


def lines_of(*returns: float) -> list[dict[str, float]]:
    return [{"iteration": n, "env_steps": 10 * n, "best_return": value} for n, value in enumerate(returns, 1)]


def test_a_run_ends_when_a_return_is_reached() -> None:
    options = resolve(ES(task="Point-v0", iterations=9, until=5))
    assert ends.course(lines_of(1, 4.9), options).by is None
    found = ends.course(lines_of(1, 5.0), options)
    assert (found.by, found.ended) == ("until", "a return of 5 reaches --until 5")
    # Runs that learn together go on until all have ended. What has ended stays so, and for the same reason.
    assert ends.course(lines_of(1, 5.0, 6.0), options).ended == found.ended


def test_a_run_ends_when_returns_do_not_rise_any_more() -> None:
    options = resolve(ES(task="Point-v0", iterations=9, until_stalled=2))
    # The best is that of iteration 2; an equal one is no rise.
    assert ends.course(lines_of(1, 3, 2), options).by is None
    found = ends.course(lines_of(1, 3, 2, 3), options)
    assert found.ended == "the best return, 3, is 2 iterations old (--until-stalled 2)"
    assert ends.course(lines_of(1, 3, 2, 3.1), options).by is None


def test_time_is_over_when_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(ends.time, "monotonic", lambda: now[0])
    for text, seconds in (("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1d1s", 86401)):
        over = ends.time_is_over(text)
        now[0] += seconds - 1
        assert over() is None
        now[0] += 1
        assert over() == f"{text} are over"
    assert ends.time_is_over(None)() is None
    for wrong in ("", "30", "m", "1.5h", "-3m", "30 m", "0s", "5m1h"):
        with pytest.raises(DvdrlError, match="for: expected a duration such as 90s, 30m"):
            ends.time_is_over(wrong)


def test_a_run_that_a_rule_has_ended_says_so_and_goes_on_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Point's returns are at least -25 in each of five steps, so -1000 is reached at once.
    options = ES(task="Point-v0", task_options={"horizon": 5}, population=2, sensings=2, hidden=(4,), iterations=6)
    run = dvdrl.train(replace(options, until=-1000, out=tmp_path / "run"))
    assert isinstance(run, dvdrl.Run)
    assert len(run.metrics) == 1
    assert str(run.ended).endswith("reaches --until -1000")
    dvdrl.resume(run.directory)
    assert len(run.metrics) == 1  # it has ended
    dvdrl.resume(run.directory, iterations=3)
    assert run.ended == "it has done its 3 iterations"
    assert run.record["changes"] == [{"iteration": 1, "iterations": 3, "until": None}]
    capsys.readouterr()
    dvdrl.resume(run.directory, iterations=6, for_="1s", on_iteration=lambda _: time.sleep(1))
    assert "stopped after iteration 4: 1s are over; `dvdrl resume" in capsys.readouterr().err
    assert run.ended is None
    dvdrl.resume(run.directory)
    dvdrl.train(replace(options, out=tmp_path / "whole"))
    assert_same_run(run.directory, tmp_path / "whole")


def test_runs_that_learn_together_end_together(tmp_path: Path) -> None:
    options = dvdrl.ETD3(
        task="Point-v0", population=1, hidden=(4,), steps=180, iteration_steps=60, random_steps=60, batch_size=4
    )
    first = dvdrl.train(replace(options, evaluation_episodes=1, num_states=2, seeds="0..1", out=tmp_path / "all"))
    assert isinstance(first, list)
    best = [max(line["best_return"] for line in run.metrics[:2]) for run in first]
    # One of the two has reached this after the second iteration, the other one has not.
    until = max(best)
    runs = dvdrl.train(
        replace(options, evaluation_episodes=1, num_states=2, seeds="0..1", until=until, out=tmp_path / "runs")
    )
    assert isinstance(runs, list)
    assert {run.ended is None for run in runs} == {False}
    assert len({len(run.metrics) for run in runs}) == 1
