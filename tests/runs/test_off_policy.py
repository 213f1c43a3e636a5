"""Off-policy runs: their numbers, stopping and going on, seeds together, divergence. On Point, and small."""

import shutil
import signal
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.off_policy import replay, unpack
from dvdrl.runs import checkpoint, loop
from dvdrl.runs.learners import make_trainer
from dvdrl.runs.presets import resolve
from stopped_runs import assert_same_run, numbers, started

# An iteration is 30 steps of each simulation and an episode 50: episodes go on over iterations.
SMALL = dvdrl.DvDTD3(
    task="Point-v0",
    population=2,
    hidden=(8,),
    steps=480,
    iteration_steps=60,
    random_steps=90,
    batch_size=16,
    buffer_size=200,
    evaluation_episodes=2,
    num_states=5,
    keep_checkpoints=8,
)
TRAIN = [
    *("train", "dvd-td3", "--task", "Point-v0", "--population", "2", "--hidden", "8", "--steps", "480"),
    *("--iteration-steps", "60", "--random-steps", "90", "--batch-size", "16", "--buffer-size", "200"),
    *("--evaluation-episodes", "2", "--num-states", "5", "--keep-checkpoints", "8"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    loop.train(replace(SMALL, out=directory))
    return directory


def test_lambda_is_chosen_every_so_many_rounds(tmp_path: Path) -> None:
    loop.train(replace(SMALL, pull_interval=2, arms=(0.25, 0.5), out=tmp_path / "run"))
    lines = dvdrl.Run(tmp_path / "run").metrics
    # Rounds end with every member's episodes, as without the option; five begin, of which the first, third and fifth
    # are with a choice. The controller has seen the ends of rounds two and four: one for reference, one that counts.
    assert lines[-1]["rounds"] == 5
    assert sum(lines[-1]["arm_alpha"]) + sum(lines[-1]["arm_beta"]) == 4 + 1
    # The second round, after steps 50 to 100, is with the lambda of the first, from step 45: iteration 2 ends at step
    # 60 with 15 steps of it, iteration 3 has it for all of its 30.
    assert lines[2]["lambda"] == pytest.approx(2 * lines[1]["lambda"])


def test_a_run_is_its_directory(whole: Path) -> None:
    run = dvdrl.Run(whole)
    lines = run.metrics
    assert [line["iteration"] for line in lines] == list(range(1, 9))
    assert [line["env_steps"] for line in lines] == [60 * i for i in range(1, 9)]
    # One update for each step but the 90 random ones.
    assert [line["updates"] for line in lines] == [max(0, 60 * i - 90) for i in range(1, 9)]
    for line in lines:
        assert line["best_return"] == max(line["member_returns"])
        assert line["mean_return"] == pytest.approx(np.mean(line["member_returns"]))
        assert -2000 < line["mean_return"] < -400  # Point pays minus the distance, about 25, in each of 50 steps
        assert line["log_det"] <= 0
        assert ("critic_loss" in line) == (line["iteration"] > 1)
    # Both members' episodes end after steps 50, 100, 150 and 200: in iterations 2, 4, 5 and 7.
    assert [line.get("training_episodes", 0) for line in lines] == [0, 2, 0, 2, 2, 0, 2, 0]
    # The first round begins with step 45, so the episodes after 50, 100, .. are in it and end one after the other.
    assert [line["rounds"] for line in lines] == [0, 2, 2, 3, 4, 4, 5, 5]
    # Of an iteration's 30 steps so many had lambda 0.5: rounds began after 45, 50, 100, 150 and 200 steps.
    possible = [{0}, {0, 5, 10, 15}, {0, 30}, {0, 10, 20, 30}, {0, 30}, {0, 30}, {0, 10, 20, 30}, {0, 30}]
    had = [round(line["lambda"] / 0.5 * 30, 6) for line in lines]
    assert all(count in counts for count, counts in zip(had, possible, strict=True))
    assert sum(had) > 0
    assert sum(lines[-1]["arm_alpha"]) + sum(lines[-1]["arm_beta"]) == 4 + 3  # four rounds ended, one for reference
    population = dvdrl.load(whole)
    assert population.policy.network.activation == "relu"
    assert population.act(np.zeros(6)).shape == (2, 2)
    result = dvdrl.evaluate(whole, episodes=2)
    assert len(result["member_returns"]) == 2
    assert result["log_det"] == pytest.approx(lines[-1]["log_det"], abs=1e-4)
    assert dvdrl.Run(whole).config == replace(resolve(SMALL), out=None)


def test_only_what_is_new_is_written_and_only_what_is_needed_kept(whole: Path, tmp_path: Path) -> None:
    sizes = {len(load_file(path)["rows"]) for path in (whole / "replay").iterdir()}
    assert sizes == {60}
    run = loop.train(replace(SMALL, keep_checkpoints=2, out=tmp_path / "run"))
    assert isinstance(run, dvdrl.Run)
    assert_same_run(run.directory, whole)
    # 200 transitions are in four iterations, and the older of two checkpoints needs those up to 7.
    assert sorted(int(path.stem) for path in (run.directory / "replay").iterdir()) == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("iteration", [1, 2, 6])
def test_resumed_is_uninterrupted(whole: Path, tmp_path: Path, iteration: int) -> None:
    # While actions are random; when learning has begun; when the buffer, 200 transitions, is full and has wrapped.
    shutil.copytree(whole, tmp_path / "run")
    for later in range(iteration + 1, 9):
        (tmp_path / "run" / "checkpoints" / f"{later:08d}.safetensors").unlink()
    loop.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)


@pytest.mark.parametrize(("steps", "end"), [(60, {"steps": 480}), (180, {"iterations": 8})])
def test_extended_is_uninterrupted(whole: Path, tmp_path: Path, steps: int, end: dict[str, int]) -> None:
    # A buffer never holds more than a run's steps: here 60 or 180, and 200 in the longer run.
    run = loop.train(replace(SMALL, steps=steps, out=tmp_path / "run"))
    assert isinstance(run, dvdrl.Run)
    assert run.finished
    loop.resume(run.directory, **end)
    assert_same_run(run.directory, whole)
    assert run.config == dvdrl.Run(whole).config


def test_interrupted_and_killed_runs_go_on_to_the_same_bits(whole: Path, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    process = started([*TRAIN, "--out", str(directory)], directory, until=1)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    killed = len(numbers(directory))
    assert killed < 8
    loop.resume(directory)
    assert_same_run(directory, whole)


def test_damage_to_the_replay_buffer_is_named_and_an_earlier_checkpoint_used(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    path = tmp_path / "run" / "replay" / "00000006.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    loop.resume(tmp_path / "run")
    said = capsys.readouterr().err
    assert said.count("00000006.safetensors: the file has changed since it was written") == 3  # 6, 7 and 8 need it
    assert "  6/8  best" in said  # so it goes on from 5
    assert "  5/8  best" not in said
    assert_same_run(tmp_path / "run", whole)
    for iteration in range(1, 9):
        (tmp_path / "run" / "replay" / f"{iteration:08d}.safetensors").unlink()
    (tmp_path / "run" / "checkpoints" / "00000000.safetensors").unlink(missing_ok=True)
    with pytest.raises(DvdrlError, match="no checkpoint that is intact and has its metrics; start the run anew"):
        loop.resume(tmp_path / "run")


def test_ten_repeats_are_the_same_to_the_bit(whole: Path, tmp_path: Path) -> None:
    for repeat in range(10):
        loop.train(replace(SMALL, iterations=2, out=tmp_path / str(repeat)))  # 30 updates
        assert_same_run(tmp_path / str(repeat), tmp_path / "0")
    assert numbers(tmp_path / "0") == numbers(whole)[:2]


def test_seeds_together_agree_with_seeds_apart(whole: Path, tmp_path: Path) -> None:
    runs = loop.train(replace(SMALL, seeds="0..1", steps=180, out=tmp_path / "runs"))
    assert isinstance(runs, list)
    together, apart = numbers(runs[0].directory), numbers(whole)
    # Random steps are equal to the bit. After 90 updates, at a rate of 3e-4, rounding in another order has grown to
    # about 1e-4 of the actions and so of the returns.
    assert together[0] == apart[0]
    for mine, alone in zip(together[1:], apart[1:3], strict=True):
        np.testing.assert_allclose(mine["member_returns"], alone["member_returns"], rtol=1e-3)
        np.testing.assert_allclose(mine["critic_loss"], alone["critic_loss"], rtol=1e-2)
    assert numbers(runs[1].directory) != numbers(runs[0].directory)
    left = dvdrl.load(runs[0].directory).agents.params
    assert np.isfinite(left).all()


def test_e_td3_with_one_member_is_td3_and_dvd_td3_with_lambda_0_is_e_td3_to_the_bit(tmp_path: Path) -> None:
    names = {field.name for field in fields(dvdrl.TD3)} - {"population"}
    shared = {name: getattr(SMALL, name) for name in names} | {"steps": 180}
    pairs = {
        "td3": (dvdrl.TD3(**shared), dvdrl.ETD3(population=1, **shared)),
        "e-td3": (dvdrl.ETD3(population=2, **shared), dvdrl.DvDTD3(population=2, arms=(0.0,), **shared)),
    }
    for name, pair in pairs.items():
        params, lines = [], []
        for index, options in enumerate(pair):
            run = loop.train(replace(options, out=tmp_path / f"{name}-{index}"))
            assert isinstance(run, dvdrl.Run)
            params.append(run.population.agents.params)
            lines.append([line["member_returns"] for line in run.metrics])
        np.testing.assert_array_equal(*params)
        assert lines[0] == lines[1]


def test_gymnasiums_own_environments_resume_too(tmp_path: Path) -> None:
    # They cannot be saved: every iteration begins new episodes, so it does not matter who runs it.
    options = replace(SMALL, task="Pendulum-v1", simulations=2, steps=240, out=tmp_path / "whole")
    loop.train(options)
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    for later in (3, 4):
        (tmp_path / "run" / "checkpoints" / f"{later:08d}.safetensors").unlink()
    loop.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_divergence_stops_the_run_and_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    # Steps of 1e30: values overflow, and the policies are not numbers any more.
    with jax.debug_nans(False), pytest.raises(DvdrlError) as error:
        loop.train(replace(SMALL, learning_rate=1e30, seed=5, out=tmp_path / "run"))
    assert "of member 0 not finite in iteration 2, seed 5; the last good checkpoint in" in str(error.value)
    assert checkpoint.iterations(tmp_path / "run" / "checkpoints")[-1] == 1
    assert np.isfinite(dvdrl.load(tmp_path / "run").agents.params).all()


def test_divergence_in_the_last_update_of_an_iteration_is_found_before_it_is_evaluated(tmp_path: Path) -> None:
    # An iteration of one step of each member and its two updates, which move parameters by 1e38.
    options = replace(SMALL, learning_rate=1e38, random_steps=0, steps=40, iteration_steps=2, out=tmp_path / "run")
    with jax.debug_nans(False), pytest.raises(DvdrlError, match=r"(parameters|loss) of .* not finite in iteration \d+"):
        loop.train(options)


def test_what_may_not_be_meant_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    make_trainer(resolve(replace(SMALL, random_steps=480)), 1).close()
    assert "nothing will be learned: all 480 steps are random" in capsys.readouterr().err
    # 60 steps of two members: a simulation makes 30 of an episode's 200, and is not saved.
    make_trainer(resolve(replace(SMALL, task="Pendulum-v1")), 1).close()
    said = capsys.readouterr().err
    assert "cut short after the 30 that a simulation makes per iteration" in said
    assert "--iteration-steps 400 lets them end" in said


def test_a_replay_buffer_is_recalled_in_parts_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    # 470 rows of which the first number is their own number, into a ring of 200; in parts of 30 at most.
    monkeypatch.setattr(replay, "_RECALLED_AT_ONCE", 30)
    trainer = make_trainer(resolve(SMALL), 2)
    width = trainer._learner.row_size
    stored = [np.tile(np.arange(470, dtype=np.float32)[:, None] + 1000 * run, (1, width)) for run in (0, 1)]
    state = trainer.init(0)._replace(env_steps=np.asarray(470))
    trainer.recall([state, state], stored)
    rows = np.asarray(trainer._pipeline._replay.rows)
    assert rows.shape[1] == 200
    for place in range(200):
        last = max(number for number in range(470) if number % 200 == place)  # of those that were put there
        assert rows[:, place, 0].tolist() == [last, last + 1000]
    with pytest.raises(ValueError, match=f"expected rows of {width} numbers, got 3"):
        trainer.recall([state, state], [each[:, :3] for each in stored])
    trainer.close()


def test_replay_buffers_that_no_machine_can_hold_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    # A transition of Point is 2 x 6 + 2 + 2 numbers, 64 bytes; times 1.8e9, times 200 seeds.
    with pytest.raises(
        DvdrlError, match=r"^buffer_size, seeds: .*, 23,040.0 GB of it for replay buffers; .* available"
    ):
        loop.train(replace(SMALL, buffer_size=10**12, steps=18 * 10**8, seeds="0..199", out=tmp_path / "runs"))
    assert not list(tmp_path.iterdir())


def test_actions_are_random_at_first_and_then_the_policies_with_noise() -> None:
    # Policies that do not learn, so that those of the beginning are those of every step.
    options = replace(SMALL, learning_rate=1e-30, iteration_steps=1200, random_steps=1200, exploration_noise=0.05)
    trainer = make_trainer(resolve(replace(options, steps=2400, simulations=2)), 1)
    try:
        before = trainer.init(3)
        (first,) = trainer.iterate([before])
        (second,) = trainer.iterate([first.state])
        population = trainer.population(before)
    finally:
        trainer.close()
    random, noisy = (unpack(outcome.transitions, 6) for outcome in (first, second))
    # Two members with two simulations each, whose episodes of 50 steps go on from row to fourth next row.
    steps = np.arange(1200 // 4).repeat(4)
    for episodes in (random, noisy):
        goes_on = steps[:-4] % 50 != 49
        np.testing.assert_array_equal(episodes.obs[4:][goes_on], episodes.next_obs[:-4][goes_on])
    # 1200 draws in each of two directions: means within 3.5 deviations of them, and the deviation of U(-1, 1).
    np.testing.assert_allclose(random.action.mean(axis=0), 0.0, atol=3.5 * 3**-0.5 / 1200**0.5)
    np.testing.assert_allclose(random.action.std(axis=0), 3**-0.5, rtol=0.1)
    intended = np.stack([population[i % 2].act(obs) for i, obs in enumerate(noisy.obs)])
    noise = (noisy.action - intended)[np.abs(intended).max(axis=1) < 0.8]  # four deviations from where it is clipped
    assert len(noise) > 500
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=3.5 * 0.05 / 500**0.5)
    np.testing.assert_allclose(noise.std(axis=0), 0.05, rtol=0.1)


def test_several_simulations_of_a_member_go_on_after_a_stop(tmp_path: Path) -> None:
    options = replace(SMALL, simulations=3, steps=240)
    run = loop.train(replace(options, out=tmp_path / "whole"))
    assert isinstance(run, dvdrl.Run)
    # Two members with three each make six steps at a time, and still an update for each step but the random ones.
    assert [line["env_steps"] for line in run.metrics] == [60, 120, 180, 240]
    assert run.metrics[-1]["updates"] == 240 - 90
    shutil.copytree(run.directory, tmp_path / "run")
    for later in (3, 4):
        (tmp_path / "run" / "checkpoints" / f"{later:08d}.safetensors").unlink()
    loop.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", run.directory)


def test_td3_has_one_member(tmp_path: Path) -> None:
    with pytest.raises(DvdrlError, match="population: td3 has one member, got 2; e-td3"):
        loop.train(dvdrl.TD3(task="Point-v0", population=2, out=tmp_path / "run"))


def test_the_buffer_is_as_large_as_the_run_at_most() -> None:
    # 8 iterations of 60 steps. Of 500 steps asked for, 9 iterations are made. Three members with two simulations take
    # six steps at a time: 61 asked for are 66.
    for options, steps in (
        (replace(SMALL, steps=480), 480),
        (replace(SMALL, steps=500), 540),
        (replace(SMALL, population=3, simulations=2, iteration_steps=61, steps=480), 8 * 66),
    ):
        trainer = make_trainer(resolve(replace(options, buffer_size=10_000)), 1)
        assert trainer.replay_capacity == steps
        trainer.close()


def test_episodes_that_end_together_end_one_round(tmp_path: Path) -> None:
    # All of Point's episodes take 50 steps, and each member has three simulations in step. Six env steps at a time: the
    # first round begins after 90 random ones, step 15, and others after steps 50 and 100.
    run = loop.train(
        replace(SMALL, simulations=3, steps=720, iteration_steps=360, arms=(0.25, 0.5), out=tmp_path / "run")
    )
    assert isinstance(run, dvdrl.Run)
    assert [line["rounds"] for line in run.metrics] == [2, 3]
    assert [line["training_episodes"] for line in run.metrics] == [6, 6]
    # The first end is for reference: one of the two arms has been rewarded or not, beside the two of the prior each.
    assert sum(run.metrics[-1]["arm_alpha"]) + sum(run.metrics[-1]["arm_beta"]) == 4 + 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 0}, r"steps: expected at least 1 and less than 2\*\*31, got 0"),
        ({"population": "3"}, "population: expected int, got '3'"),
        ({"hidden": 8}, "hidden: expected a tuple of int"),
        ({"kernel": "rbf"}, "kernel: expected one of squared-exponential, .*, got 'rbf'"),
    ],
)
def test_options_that_no_run_can_have_are_named(options: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(DvdrlError, match=said):
        dvdrl.train(replace(SMALL, **options, out=tmp_path / "run"))
    assert not list(tmp_path.iterdir())


def test_an_embedding_has_states_of_a_batch(tmp_path: Path) -> None:
    with pytest.raises(DvdrlError, match="num_states: a batch has 16 states, got 17"):
        loop.train(replace(SMALL, num_states=17, out=tmp_path / "run"))
    assert not list(tmp_path.iterdir())
