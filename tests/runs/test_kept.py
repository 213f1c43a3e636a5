"""The best populations of a run, and every N-th, kept beside the latest."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.policies import MLP, Agents, Population
from dvdrl.runs import checkpoint, evolution, kept, loop, tensors
from dvdrl.runs.kept import Keeper
from dvdrl.views import export
from stopped_runs import assert_same_run
from written_runs import write_run

TINY = dvdrl.DvDES(
    task="Point-v0",
    task_options={"horizon": 5},
    population=2,
    sensings=2,
    hidden=(4,),
    iterations=9,
    evaluation_interval=3,
    keep_every=4,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    loop.train(replace(TINY, out=directory))
    return directory


def content(directory: Path) -> dict[str, str]:
    """The digests of the files that are kept, by their names."""
    return {path.name: tensors.about(path)["sha256"] for path in (directory / "kept").iterdir()}


def test_members_are_evaluated_from_new_starts_in_the_first_iteration_and_each_interval(whole: Path) -> None:
    lines = dvdrl.Run(whole).metrics
    assert [line["iteration"] for line in lines if "held_out_returns" in line] == [1, 3, 6, 9]
    for line in lines:
        # Only episodes for training count: two members and four perturbations of each, five steps each.
        assert line["env_steps"] == line["iteration"] * 10 * 5
        if "held_out_returns" in line:
            assert line["held_out_return"] == pytest.approx(np.mean(line["held_out_returns"]))
    # It is the population after the iteration that is evaluated: the one that is saved, and that evaluate evaluates.
    again = dvdrl.evaluate(whole, episodes=TINY.evaluation_episodes, seed=evolution.FIRST_HELD_OUT)
    np.testing.assert_allclose(again["member_returns"], lines[-1]["held_out_returns"], rtol=1e-6)


def test_the_best_is_kept_and_so_is_each_member_at_its_own_best(whole: Path) -> None:
    lines = {line["iteration"]: line for line in dvdrl.Run(whole).metrics if "held_out_returns" in line}
    best = max(lines, key=lambda iteration: lines[iteration]["held_out_return"])
    same = {"episodes": TINY.evaluation_episodes, "seed": evolution.FIRST_HELD_OUT}
    result = dvdrl.evaluate(whole, which="best", **same)
    assert result["iteration"] == best
    np.testing.assert_allclose(result["member_returns"], lines[best]["held_out_returns"], rtol=1e-6)
    highest = np.max([line["held_out_returns"] for line in lines.values()], axis=0)
    np.testing.assert_allclose(dvdrl.evaluate(whole, which="best-each", **same)["member_returns"], highest, rtol=1e-6)


def test_every_nth_is_kept_and_all_that_read_a_run_can_use_it(whole: Path, tmp_path: Path) -> None:
    assert kept.iterations(whole, "every") == [4, 8]
    loop.train(replace(TINY, iterations=4, out=tmp_path / "four"))
    then = dvdrl.load(tmp_path / "four")
    found = dvdrl.load(whole, which=4)
    for one, other in zip(found.agents, then.agents, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(found.shares, then.shares)
    np.testing.assert_array_equal(dvdrl.load(whole, which=9).agents.params, dvdrl.load(whole).agents.params)
    export.export(whole, "safetensors", tmp_path / "exports", which=4)
    shift = load_file(tmp_path / "exports" / "population.safetensors")["shift"]
    np.testing.assert_array_equal(shift, then.agents.shift)
    with pytest.raises(DvdrlError, match=r"which: expected last, best, .* has kept, .*4, .*8, 9; got 5"):
        dvdrl.load(whole, which=5)


def test_without_an_evaluation_there_is_no_best(tmp_path: Path) -> None:
    write_run(tmp_path / "run", MLP((6, 4, 2)))
    with pytest.raises(DvdrlError, match=r"which: .* has not been evaluated yet"):
        dvdrl.load(tmp_path / "run", which="best")


def returns_of(run: Path) -> tuple[float, ...]:
    return kept.load(run, "best", kept.iterations(run, "best")[-1]).returns


def test_what_is_best_by_hand(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    population = write_run(tmp_path / "other", MLP((6, 4, 2)), members=2)

    def as_of(iteration: int) -> Population:
        params = np.full_like(population.agents.params, iteration)
        return replace(population, agents=Agents(params, *population.agents[1:]))

    keeper = Keeper(tmp_path / "run", 0)
    # The means are 2, 1.5, 3 and 3: the third is the best, as the fourth is no better.
    for iteration, returns in enumerate(((1.0, 3.0), (2.0, 1.0), (1.5, 4.5), (5.0, 1.0)), 1):
        keeper.evaluated(iteration, as_of(iteration), np.asarray(returns))
    assert kept.iterations(tmp_path / "run", "best") == [1, 3]
    assert kept.load(tmp_path / "run", "best", 3).returns == (1.5, 4.5)
    # Member 0 was at its best in the fourth iteration, member 1 in the third.
    each = kept.load(tmp_path / "run", "best-each", 4)
    assert each.returns == (5.0, 4.5)
    assert each.population.agents.params[:, 0].tolist() == [4, 3]
    keeper.forget(oldest=2)  # the checkpoint of iteration 2 may still be needed, and with it what was best then
    assert kept.iterations(tmp_path / "run", "best") == [1, 3]
    assert kept.iterations(tmp_path / "run", "best-each") == [2, 3, 4]
    keeper.forget(oldest=3)
    assert kept.iterations(tmp_path / "run", "best") == [3]
    # From iteration 3 on again: what came later is gone, and comes again.
    again = Keeper(tmp_path / "run", 3)
    assert kept.iterations(tmp_path / "run", "best-each") == [3]
    again.evaluated(4, as_of(4), np.asarray((5.0, 1.0)))
    assert kept.load(tmp_path / "run", "best-each", 4).returns == (5.0, 4.5)


@pytest.mark.parametrize("iteration", [7, 8])
def test_a_resumed_run_keeps_the_same(whole: Path, tmp_path: Path, iteration: int) -> None:
    # As after a kill: files of later iterations are there, for which there is no checkpoint.
    shutil.copytree(whole, tmp_path / "run")
    for later in range(iteration + 1, 10):
        (tmp_path / "run" / "checkpoints" / f"{later:08d}.safetensors").unlink()
    loop.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)
    assert content(tmp_path / "run") == content(whole)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, change, Path.unlink])
def test_damage_is_named(damage: Callable[[Path], Any], whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    (name,) = [path for path in (tmp_path / "run" / "kept").iterdir() if path.name.startswith("every-00000004")]
    damage(name)
    with pytest.raises(DvdrlError, match=r"every-00000004\.safetensors: no population|got 4; training"):
        dvdrl.load(tmp_path / "run", which=4)


def test_td3_keeps_the_best_of_its_evaluations(tmp_path: Path) -> None:
    options = dvdrl.ETD3(
        task="Point-v0", population=2, hidden=(8,), steps=240, iteration_steps=60, random_steps=60, batch_size=16
    )
    run = dvdrl.train(replace(options, evaluation_episodes=2, num_states=5, out=tmp_path / "run"))
    assert isinstance(run, dvdrl.Run)
    means = [line["mean_return"] for line in run.metrics]
    assert kept.iterations(run.directory, "best")[-1] == int(np.argmax(means)) + 1
    assert returns_of(run.directory) == pytest.approx(run.metrics[int(np.argmax(means))]["member_returns"])
    assert len(checkpoint.iterations(run.directory / "checkpoints")) == 3
    assert json.loads((run.directory / "config.json").read_text())["keep_every"] is None
