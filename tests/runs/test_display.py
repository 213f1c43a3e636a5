"""What training shows in a terminal, and elsewhere: never wider than the terminal, with the time that is left."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from dvdrl.runs import display
from dvdrl.runs.display import Display, Pace, fitting, in_words

RUN = Path("run")


def line(iteration: int, **values: Any) -> dict[str, Any]:
    numbers = {"best_return": -12345.678, "mean_return": -23456.789, "lambda": 0.5, "log_det": -12.345}
    return {"iteration": iteration, "env_steps": 1000 * iteration, "steps_per_second": 123456.7, **numbers, **values}


def test_the_time_left_is_that_to_the_first_end() -> None:
    pace = Pace(iterations=100, steps=50_000)
    pace.add(60.0, 1, 1000)  # a minute, most of it for compiling
    assert pace.left is None
    pace.add(70.0, 2, 2000)
    pace.add(80.0, 3, 3000)
    assert pace.seconds_each == 10.0
    assert pace.left == 470.0  # 47 iterations of 1,000 steps and 10 seconds; its iterations would take 970
    without = Pace(iterations=4, steps=None)
    without.add(0.0, 3, 0)
    without.add(5.0, 4, 0)
    assert without.left == 0.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0s"), (59.4, "59s"), (60, "1m00s"), (3599, "59m59s"), (3900, "1h05m"), (90_000, "1d01h")],
)
def test_durations_have_two_units(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_what_matters_least_is_left_out_first() -> None:
    assert fitting(["1/2", "best 3", "mean 4"], 100) == "1/2  best 3  mean 4"
    assert fitting(["1/2", "best 3", "mean 4"], 18) == "1/2  best 3"
    assert fitting(["1/2", "best 3"], 1) == "1/2"


def test_lines_fit_into_80_columns_and_say_how_long_it_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    clock = iter([0.0, 100.0, 700.0])
    with Display("niche-es HalfCheetah-FwdBwd-v0", {RUN: 12}, iterations=200, steps=None, done=0) as shown:
        monkeypatch.setattr(display.time, "monotonic", lambda: next(clock, 700.0))
        next(clock)
        shown.show(RUN, line(1))
        shown.show(RUN, line(2))
    first, second = capsys.readouterr().err.splitlines()
    assert first == "niche-es HalfCheetah-FwdBwd-v0 seed 12  1/200  best -12345.7  mean -23456.8"
    assert len(second) <= 80
    wide = fitting([first.replace("1/200", "2/200"), "1d09h left"], 200)
    assert wide.startswith(second)
    monkeypatch.setenv("COLUMNS", "120")
    with Display("es Point-v0", {RUN: 0}, iterations=200, steps=None, done=0) as shown:
        for now, iteration in ((0.0, 1), (600.0, 2)):
            monkeypatch.setattr(display.time, "monotonic", lambda now=now: now)
            shown.show(RUN, line(iteration, **({"held_out_return": -2.25} if iteration == 1 else {})))
    first, last = capsys.readouterr().err.splitlines()
    assert "1/200  best -12345.7  mean -23456.8  held out -2.2  lambda 0.5" in first
    assert "2/200  best -12345.7  mean -23456.8  1d09h left  lambda 0.5  log det -12.3" in last  # 198 x 600 s = 33 h


def test_an_iteration_that_takes_long_is_shown_while_it_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "SLOW", 0.02)
    said = ""
    with Display("es Point-v0", {RUN: 0}, iterations=5, steps=None, done=2):
        deadline = time.monotonic() + 10
        while said.count("so far") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
            said += capsys.readouterr().err
    lines = said.splitlines()
    assert all(re.fullmatch(r"es Point-v0  iteration 3: \d+s so far", each) for each in lines)
    assert 3 <= len(lines) <= 12  # pauses double: ten seconds have at most nine of them


def test_a_terminal_has_a_bar_that_moves_within_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = Display("es Point-v0", {RUN: 0}, iterations=10, steps=None, done=0)
    shown._live = True
    for now, iteration in ((0.0, 1), (100.0, 2)):
        monkeypatch.setattr(display.time, "monotonic", lambda now=now: now)
        shown.show(RUN, line(iteration))
    (task,) = shown._progress.tasks
    assert task.completed == 2
    assert task.fields["shown"].startswith("2/10  best -12345.7  mean -23456.8  13m20s left")
    shown._show_running(25.0)
    assert task.completed == 2.25  # a quarter of 100 seconds
    assert task.fields["shown"].startswith("iteration 3: 25s  2/10  best") or task.fields["shown"] == "iteration 3: 25s"
    assert len(task.fields["shown"]) + len("seed 0 ") + display._BAR + 1 <= 80
    shown._show_running(1000.0)
    assert task.completed == 2.99
