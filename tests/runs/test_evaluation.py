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
    for seed in (-1, 2**32 - 9):  # starts are 32 bits wide, and ten episodes have ten of them
        with pytest.raises(DvdrlError, match=f"seed: expected 0 to 4294967286, got {seed}"):
            dvdrl.evaluate(tmp_path / "run", seed=seed)


def test_policies_that_are_damaged_are_named_and_written_anew_by_resume(tmp_path: Path) -> None:
    run = tmp_path / "run"
    dvdrl.train(dvdrl.ES(task="Point-v0", out=run, **TINY))
    sound = dvdrl.load(run).agents.params
    for name, content in (("member-0.safetensors", b"torn"), ("policies.json", b"{")):
        (run / "policies" / name).write_bytes(content)
    with pytest.raises(DvdrlError, match=f"no policies to load: .*; `dvdrl resume {run}` writes them anew"):
        dvdrl.evaluate(run)
    dvdrl.resume(run)  # it had finished
    np.testing.assert_array_equal(dvdrl.load(run).agents.params, sound)


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
