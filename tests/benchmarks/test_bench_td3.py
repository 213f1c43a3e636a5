from typing import Any

import pytest

from dvdrl.benchmarks import td3


def test_an_update_is_measured_against_one_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    # As small as it goes: too short for the figures to mean anything, long enough for them to be there.
    monkeypatch.setattr(td3, "find_spec", lambda name: None)
    monkeypatch.setattr(td3, "SHAPES", {"Small": (3, 2)})
    monkeypatch.setattr(td3, "HIDDEN", (4,))
    rows: list[dict[str, Any]] = td3.measure(turns=1, num_updates=4, populations=(1, 5))
    assert [row["what"] for row in rows] == ["M = 1", "M = 5", "M = 5 without diversity"]
    assert rows[0]["ratio"] == rows[0]["m_1_of_it"] == 1.0
    assert all(row["microseconds"] > 0 for row in rows)


def test_training_is_measured_end_to_end() -> None:
    result = td3.end_to_end(4, population=2, hidden=(4,), task_options={"horizon": 3})
    assert result["steps_per_second"] > 0
    assert 0 < result["outside_simulation"] < 1
