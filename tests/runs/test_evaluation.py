from pathlib import Path

import numpy as np
import pytest

import dvdrl
from dvdrl.errors import DvdrlError

TINY = {"population": 2, "sensings": 2, "hidden": (4,), "iterations": 1, "num_states": 5}


def test_evaluation_starts_elsewhere(tmp_path: Path) -> None:
    dvdrl.train(dvdrl.ES(task="Point-v0", out=tmp_path / "run", **TINY))
    result = dvdrl.evaluate(tmp_path / "run", episodes=3)
    assert len(result["member_returns"]) == 2
    assert min(result["member_deviations"]) > 0  # three starts, three returns
    assert result["best_return"] == max(result["member_returns"])
    assert result["mean_return"] == pytest.approx(np.mean(result["member_returns"]))
    assert result["log_det"] <= 0
    assert result["iteration"] == 1
    assert "mode_returns" not in result
    with pytest.raises(DvdrlError, match="episodes: expected at least 1"):
        dvdrl.evaluate(tmp_path / "run", episodes=0)


def test_modes_are_reported_each_by_itself(tmp_path: Path) -> None:
    options = dvdrl.ES(task="HalfCheetah-FwdBwd-v0", task_options={"horizon": 20}, out=tmp_path / "run", **TINY)
    dvdrl.train(options)
    result = dvdrl.evaluate(tmp_path / "run", episodes=1)
    # The return of an episode is that of the better of its two modes (docs/tasks.md).
    modes = np.array([result["mode_returns"]["forward"], result["mode_returns"]["backward"]])
    np.testing.assert_allclose(modes.max(axis=0), result["member_returns"], rtol=1e-9)
    assert (modes[0] != modes[1]).all()
    line = dvdrl.Run(tmp_path / "run").metrics[-1]  # likewise, of the starts of training
    np.testing.assert_allclose(
        np.maximum(line["mode_forward"], line["mode_backward"]), line["member_returns"], rtol=1e-9
    )
