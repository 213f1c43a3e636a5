import pytest

from dvdrl.benchmarks import off_policy, td3


def test_an_update_is_measured_against_one_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    # As small as it goes, as for TD3.
    monkeypatch.setattr(off_policy, "find_spec", lambda name: None)
    monkeypatch.setattr(td3, "SHAPES", {"Small": (3, 2)})
    monkeypatch.setattr(td3, "HIDDEN", (4,))
    rows = off_policy.measure(turns=1, num_updates=3, populations=(1, 2))
    assert [row["what"] for row in rows] == ["XQC, M = 1", "XQC, M = 2", "XQC, M = 2, shared trunk", "TD3, M = 1"]
    assert rows[0]["ratio"] == rows[0]["ratio_of_cores"] == 1.0
    assert all(min(row["microseconds"], row["microseconds_of_cores"]) > 0 for row in rows)
