"""Training, stopping at any moment, and going on: on Point, with populations as small as they go."""

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dvdrl
from dvdrl.engines import device
from dvdrl.errors import DvdrlError
from dvdrl.interfaces import Episodes, Rollouts
from dvdrl.rollouts import Local
from dvdrl.runs import checkpoint, evolution, file, loop, metrics, trainer
from dvdrl.runs.presets import resolve
from stopped_runs import assert_same_run, numbers, started

SMALL = dvdrl.DvDES(task="Point-v0", population=2, sensings=4, hidden=(4,), iterations=30, state_interval=7)
TRAIN = [
    *("train", "dvd-es", "--task", "Point-v0", "--population", "2", "--sensings", "4", "--hidden", "4"),
    *("--state-interval", "7"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    loop.train(replace(SMALL, out=directory))
    return directory


def test_a_run_is_its_directory(whole: Path) -> None:
    run = dvdrl.Run(str(whole))  # as a user may write it
    assert [line["iteration"] for line in run.metrics] == list(range(1, 31))
    for line in run.metrics:
        assert line["env_steps"] == line["iteration"] * (2 + 2 * 2 * 4) * 50  # members and perturbations, 50 steps each
        assert line["best_return"] == max(line["member_returns"])
        assert line["mean_return"] == pytest.approx(np.mean(line["member_returns"]))
        assert line["lambda"] in (0.0, 0.5)
        # Beta(1, 1) and a pull for every iteration but the first, which only set the reference.
        assert sum(line["arm_alpha"]) + sum(line["arm_beta"]) == 4 + line["iteration"] - 1
        assert line["det"] == pytest.approx(np.exp(line["log_det"]))
        assert 1 <= line["vendi_1"] <= 2 + 1e-4
        assert line["log_det_per_member"] == pytest.approx(line["log_det"] / 2)
        assert 0 < line["outside_simulation"] < 1
        (similarity,), (distance,) = line["similarities"], line["distances"]  # of the one pair
        assert distance == pytest.approx(line["min_distance"])
        assert similarity == pytest.approx(np.exp(-(distance**2)), abs=1e-6)  # the authors' kernel
        assert line["det"] == pytest.approx(1 - similarity**2, abs=1e-3)
    assert run.config == replace(resolve(SMALL), out=None)
    assert checkpoint.iterations(whole / "checkpoints") == [28, 29, 30]
    population = dvdrl.load(whole)
    assert population.act(np.zeros(6)).shape == (2, 2)
    assert population[1].act(np.zeros(6)).shape == (2,)


def test_interrupted_and_killed_runs_go_on_to_the_same_bits(tmp_path: Path) -> None:
    # So long that it is not over before a busy machine has let this process look at it.
    directory, iterations = tmp_path / "run", 500
    train = [*TRAIN, "--iterations", str(iterations), "--out", str(directory)]
    process = started(train, directory, until=3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "`dvdrl resume" in said
    assert "Traceback" not in said
    stopped = len(numbers(directory))
    assert checkpoint.iterations(directory / "checkpoints")[-1] in (stopped, stopped - 1)

    process = started(["resume", str(directory)], directory, until=stopped + 4)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    killed = len(numbers(directory))
    assert stopped < killed < iterations
    # At most the iteration in flight is lost: every line but perhaps the last has its checkpoint.
    assert checkpoint.iterations(directory / "checkpoints")[-1] in (killed, killed - 1)

    # How long a run is does not change its numbers: five iterations more are enough to compare.
    loop.resume(directory, iterations=killed + 5)
    loop.train(replace(SMALL, iterations=killed + 5, out=tmp_path / "whole"))
    assert_same_run(directory, tmp_path / "whole")
    seconds = [line["seconds"] for line in metrics.read(directory / "metrics.jsonl")]
    assert seconds == sorted(seconds)


def test_seeds_together_are_seeds_apart_to_the_bit(whole: Path, tmp_path: Path) -> None:
    runs = loop.train(replace(SMALL, seeds="0..1", out=tmp_path / "runs"))
    assert isinstance(runs, list)
    assert [run.directory.name for run in runs] == ["seed-0", "seed-1"]
    assert_same_run(runs[0].directory, whole)
    assert numbers(runs[1].directory) != numbers(whole)
    # An iteration apart, as after a kill between two checkpoints: both go on from the one that they share.
    (runs[1].directory / "checkpoints" / "00000030.safetensors").unlink()
    before = numbers(runs[1].directory)
    loop.resume(tmp_path / "runs")
    assert_same_run(runs[0].directory, whole)
    assert numbers(runs[1].directory) == before


def test_runs_that_differ_are_not_resumed_together(tmp_path: Path) -> None:
    for seed, sigma in ((0, 0.1), (1, 0.2)):
        (tmp_path / f"seed-{seed}").mkdir()
        options = resolve(replace(SMALL, seed=seed, sigma=sigma))
        (tmp_path / f"seed-{seed}" / "config.json").write_text(file.to_json(options))
    with pytest.raises(DvdrlError, match="differ in more than their seeds"):
        loop.resume(tmp_path)


def test_a_config_file_repeats_the_run(whole: Path, tmp_path: Path) -> None:
    options = replace(file.from_json(whole / "config.json"), out=tmp_path / "again")
    loop.train(options)
    assert_same_run(tmp_path / "again", whole)


def test_ten_repeats_are_the_same_to_the_bit(whole: Path, tmp_path: Path) -> None:
    for repeat in range(10):
        loop.train(replace(SMALL, iterations=3, out=tmp_path / str(repeat)))
        assert_same_run(tmp_path / str(repeat), tmp_path / "0")
    assert numbers(tmp_path / "0") == numbers(whole)[:3]


def test_a_budget_of_steps_ends_the_run(tmp_path: Path) -> None:
    run = loop.train(replace(SMALL, steps=1000, out=tmp_path / "run"))  # 18 episodes of 50 steps are 900
    assert isinstance(run, dvdrl.Run)
    assert [line["env_steps"] for line in run.metrics] == [900, 1800]


class Poisoned(Local):
    """From the third iteration on, one perturbation of member 1 returns NaN."""

    calls = 0

    def run(self, rollouts: Rollouts) -> Episodes:
        episodes = super().run(rollouts)
        self.calls += 1
        if self.calls == 3:
            returns = episodes.returns.copy()
            returns[np.flatnonzero(np.asarray(rollouts.member) == 1)[-1]] = np.nan
            episodes = episodes._replace(returns=returns)
        return episodes


def test_a_return_that_is_not_finite_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "Local", Poisoned)
    with pytest.raises(DvdrlError, match=r"return of member 1 not finite in iteration 3, seed 5; .* iteration 2"):
        loop.train(replace(SMALL, seed=5, out=tmp_path / "run"))
    assert checkpoint.iterations(tmp_path / "run" / "checkpoints")[-1] == 2
    assert len(numbers(tmp_path / "run")) == 2
    assert np.isfinite(dvdrl.load(tmp_path / "run").act(np.zeros(6))).all()


def test_parameters_that_are_not_finite_stop_the_run(tmp_path: Path) -> None:
    # A step of 1e38 times more than 1 leaves the range of single precision.
    with pytest.raises(DvdrlError, match=r"of member \d not finite in iteration \d, seed 0"):
        loop.train(replace(SMALL, step_rule="plain", learning_rate=1e38, out=tmp_path / "run"))
    population = dvdrl.load(tmp_path / "run")
    assert np.isfinite(population.agents.params).all()


def test_what_is_no_run_says_so(tmp_path: Path) -> None:
    for function in (dvdrl.load, dvdrl.evaluate):
        with pytest.raises(DvdrlError, match="not a run directory"):
            function(tmp_path)
    with pytest.raises(DvdrlError, match=r"config\.json"):
        dvdrl.resume(tmp_path)


def test_a_task_that_a_gpu_cannot_run_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "libraries", lambda: None)  # as if there were one
    options = dvdrl.ES(task="Humanoid-v5", executor="device", out=tmp_path / "run")
    with pytest.raises(DvdrlError, match="Humanoid-v5: MuJoCo Warp has no PGS solver"):
        loop.train(options)
    assert not list(tmp_path.iterdir())
    # A task in a module of one's own is found by its name, as elsewhere.
    point = resolve(replace(options, task="dvdrl.tasks.point:Point-v0"))
    evolution.make_executor(point, trainer.make_policy(point)).close()


def test_members_in_turn_are_asked_for_as_such(tmp_path: Path) -> None:
    run = loop.train(replace(SMALL, members="one", iterations=1, out=tmp_path / "run"))
    assert isinstance(run, dvdrl.Run)
    # Two members as they are and one of them perturbed in four directions, both ways; 50 steps each.
    assert run.metrics[0]["env_steps"] == (2 + 2 * 4) * 50
