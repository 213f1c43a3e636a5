import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dvdrl
from dvdrl.cli import read
from dvdrl.errors import DvdrlError
from dvdrl.policies import Standing
from dvdrl.runs import evaluation, policies

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
    # Without its motors, Point drifts from its start, whatever its policy wants; and nobody pays for trying.
    adrift = dvdrl.evaluate(tmp_path / "run", episodes=3, perturb={"motor": 0.0})
    assert adrift["member_returns"][0] == adrift["member_returns"][1]
    assert adrift["perturb"] == {"motor": 0.0}
    assert evaluation.described(adrift)[0] == "es on Point-v0 with motor=0, iteration 1, 3 episodes"
    assert (
        dvdrl.evaluate(tmp_path / "run", episodes=3, perturb={"motor": 1.0})["member_returns"]
        == (result["member_returns"])
    )
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


def test_members_are_judged_by_what_is_evaluated(tmp_path: Path) -> None:
    run = tmp_path / "run"
    dvdrl.train(dvdrl.ES(task="Point-v0", out=run, **TINY | {"kernel": "linear"}))
    (line,) = dvdrl.Run(run).metrics

    def judged(start: float, best: float) -> list[bool]:
        changed = line | {"mean_return": start, "best_return": best}
        (run / "metrics.jsonl").write_text(json.dumps(changed) + "\n")
        result = dvdrl.evaluate(run, episodes=2)
        assert result["member_returns"] == returns
        return [bool(value) for value in result["distinct"]]

    result = dvdrl.evaluate(run, episodes=2)
    returns, shares = result["member_returns"], result["shares"]
    fitter, other = np.argsort(returns)[::-1]
    assert shares[fitter] == 1  # k(x, x) = 1
    assert np.prod(shares) == pytest.approx(np.exp(result["log_det"]), rel=1e-4)
    different = shares[other] >= 0.5
    # Good is a quarter of the way from the first mean return, 40 below the best, to the best: 30 below it. So the best
    # return is put where both are good, where one of the two is, and where none is.
    low, high = sorted(returns)
    for best, good in ((low + 29, (True, True)), (high + 29, (True, False)), (high + 31, (False, False))):
        found = judged(best - 40, best)
        assert (found[fitter], found[other]) == (good[0], good[1] and different)


def test_without_returns_to_compare_with_nobody_is_judged(tmp_path: Path) -> None:
    run = tmp_path / "run"
    dvdrl.train(dvdrl.ES(task="Point-v0", out=run, **TINY))
    for value in ("null", "NaN", '"1"', "1" + "0" * 400, "true"):
        (run / "metrics.jsonl").write_text(f'{{"iteration": 1, "best_return": 1, "mean_return": {value}}}\n')
        with pytest.raises(DvdrlError, match=r"metrics\.jsonl, line 1: expected a number as mean_return, got"):
            dvdrl.evaluate(run, episodes=1)


def test_elites_are_judged_by_what_is_known_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    dvdrl.train(dvdrl.NicheES(task="Landmarks-v0", task_options={"horizon": 5}, out=run, **TINY))
    known = Standing(np.float32([0.75, 0.1]), np.array([True, False]), dvdrl.load(run).standing.places)
    policies.save(run / "policies", replace(dvdrl.load(run), standing=known))
    result = dvdrl.evaluate(run, episodes=1)
    assert (result["shares"], result["distinct"]) == ([0.75, 0.1], [True, False])
    read.Evaluate((run,), episodes=1)()
    member_0, member_1 = capsys.readouterr().out.splitlines()[1:3]
    assert member_0.endswith("share 0.75  distinct")
    assert member_1.endswith("share 0.10  not distinct")


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


def test_quality_diversity_is_counted_from_the_first_mean_return(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    dvdrl.train(dvdrl.ES(task="Landmarks-v0", task_options={"horizon": 2}, out=run, **TINY))
    (line,) = dvdrl.Run(run).metrics

    def evaluated(start: float) -> dict[str, float]:
        (run / "metrics.jsonl").write_text(json.dumps(line | {"mean_return": start}) + "\n")
        return dvdrl.evaluate(run, episodes=2)

    # Two steps take both members nowhere: less than 0.4 from 0, in the cell in the middle, of a width of 16 / 21. So
    # only the better one counts.
    result = evaluated(-3.0)
    assert result["coverage"] == pytest.approx(1 / 21**2)
    assert result["qd_score"] == pytest.approx(result["best_return"] + 3)
    assert evaluated(100.0)["qd_score"] == 0  # a return below the floor counts as 0
    evaluated(0.0)
    read.Evaluate((run,), episodes=2)()
    assert "coverage 0.23% of the cells" in capsys.readouterr().out
    monkeypatch.setattr(evaluation, "find_spec", lambda _: None)  # pyribs is not installed
    assert not {"qd_score", "coverage"} & evaluated(0.0).keys()


def test_without_ranges_of_measures_there_is_no_quality_diversity(tmp_path: Path) -> None:
    options = dvdrl.ES(task="Swimmer-v5", task_options={"horizon": 5}, out=tmp_path / "run", **TINY)
    dvdrl.train(options)
    assert not {"qd_score", "coverage"} & dvdrl.evaluate(tmp_path / "run", episodes=1).keys()
