"""The benchmark measures what it says; how fast that is, is not for a test to judge."""

import json

from dvdrl.benchmarks import diversity
from dvdrl.benchmarks.timing import median_ratio, take_turns


def test_the_report_has_a_ratio_for_each_population(monkeypatch, capsys):
    monkeypatch.setattr(diversity, "POPULATIONS", (5,))
    monkeypatch.setattr(diversity, "TURNS", 2)
    monkeypatch.setattr(diversity, "CALLS", 1)
    diversity.bench(as_json=True)
    report = json.loads(capsys.readouterr().out)
    names = [row["what"] for row in report["rows"]]
    assert names == ["TD3 update, M = 1", "diversity, M = 5", "called directly, 5 x 120"]
    assert report["rows"][0]["ratio"] == 1.0
    assert all(row["ratio"] > 0 for row in report["rows"])
    diversity.bench(as_json=False)
    assert "of an update" in capsys.readouterr().out


def test_contenders_take_turns():
    calls = []
    seconds = take_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, turns=2, calls=2)
    assert "".join(calls) == "ab" + "aabb" + "aabb"  # one uncounted call each, then turns
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2}


def test_ratios_are_taken_within_a_turn():
    # A machine twice as slow in the second turn slows both: the ratio stays 1/2.
    assert median_ratio([1.0, 2.0], [2.0, 4.0]) == 0.5
