"""Sizes that cannot fit are refused, by an estimate that is never more than what is there."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.runs import evolution, loop, memory
from dvdrl.runs.presets import resolve
from dvdrl.runs.trainer import make_policy
from dvdrl.runs.training import Training
from written_runs import write_still_run

ES = dvdrl.ES(task="Point-v0", population=2, hidden=(4,))
E_TD3 = dvdrl.ETD3(task="Point-v0", population=2, hidden=(4,))


@pytest.mark.parametrize(
    ("options", "named", "what"),
    [
        (replace(ES, sensings=10**10), "sensings, hidden, population", "the rollouts of an iteration"),
        (replace(ES, sensings=10**15), "sensings, hidden, population", "the rollouts of an iteration"),
        (
            replace(ES, hidden=(2**19, 2**19)),
            "sensings, hidden, population",
            "the rollouts of an iteration",
        ),
        (replace(ES, evaluation_episodes=10**11), "evaluation_episodes, hidden, population", "the rollouts of an eva"),
        (replace(ES, num_states=10**11), "num_states, sensings, population", "states and what policies do"),
        (
            dvdrl.DvDES(task="Point-v0", population=2, sensings=10**4, num_states=10**7),
            "num_states, sensings, population",
            "states and what policies do",
        ),
        (
            replace(ES, state_rule="k-dpp", state_pool=10**6, sensings=10**6),
            "state_pool, sensings",
            "the states to choose from",
        ),
        (
            replace(ES, sensings=10**6, seeds="0..9999"),
            "sensings, hidden, population, seeds",
            "the rollouts of an iteration",
        ),
        (dvdrl.NicheES(task="Point-v0", population=600, hidden=(10**5, 10**5)), "sensings, hidden", "the rollouts"),
        (replace(E_TD3, hidden=(10**6, 10**6)), "hidden, population", "networks and their optimizers"),
        (replace(E_TD3, iteration_steps=2**31 - 10), "iteration_steps, simulations", "the transitions of an iteration"),
        (replace(E_TD3, simulations=10**12), "iteration_steps, simulations", "the transitions of an iteration"),
        (replace(E_TD3, policy_delay=10**12), "iteration_steps, simulations", "the transitions of an iteration"),
        (replace(E_TD3, batch_size=10**11), "batch_size, hidden, population", "the hidden layers of policies"),
        (replace(E_TD3, evaluation_episodes=10**12), "evaluation_episodes, population", "the observations of an eva"),
    ],
)
def test_what_no_machine_can_hold_is_refused_before_anything_is_written(
    options: Training, named: str, what: str, tmp_path: Path
) -> None:
    with pytest.raises(DvdrlError) as error:
        loop.train(replace(options, out=tmp_path / "run"))
    assert str(error.value).startswith(f"{named}")
    assert f"GB of it for {what}" in str(error.value)
    assert not list(tmp_path.iterdir())


def test_episodes_that_no_machine_can_hold_are_refused(tmp_path: Path) -> None:
    write_still_run(tmp_path / "run", "Point-v0", (6, 2), 1)
    with pytest.raises(DvdrlError, match=r"^episodes: this takes at least [\d,.]+ GB of memory"):
        dvdrl.evaluate(tmp_path / "run", episodes=4 * 10**9)


def test_what_is_estimated_is_what_is_asked_for() -> None:
    # An agent has 6 x 4 + 4 + 4 x 2 = 36 parameters and a filter of 2 x 6 numbers. 2 + 2 x 2 x 3 = 14 rollouts have
    # one each, twice: as asked for, and in the batch. 3 x 6 numbers come back from each.
    options = resolve(replace(ES, sensings=3, num_states=5, evaluation_episodes=1))
    policy = make_policy(options)
    of_members, rollouts, on_states, pool = evolution._needs(options, 1, policy)
    assert rollouts.size == 4 * 14 * (2 * (36 + 12) + 18)
    algorithm = evolution.make_algorithm(options, policy)
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    asked = jax.eval_shape(algorithm.ask, state)
    assert memory.bytes_of(asked.agents) == 4 * 14 * (36 + 12)
    assert of_members.size == 4 * 2 * 36 * 3  # parameters, and Adam's two moments
    assert memory.bytes_of((state.params, state.optimizer)) == of_members.size + 4 * 2  # and two counters
    assert on_states.size == 4 * 5 * (6 + 2 * 2)  # five states of six numbers, in which two members do two things
    assert pool.size == 4 * 14 * 6
    of_three = evolution._needs(options, 3, policy)
    assert [need.size for need in of_three] == [3 * need.size for need in (of_members, rollouts, on_states, pool)]


def test_needs_are_compared_with_what_is_available_together(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = [memory.Need("rows", ("buffer_size",), 12 * 10**9), memory.Need("others", ("hidden",), 11 * 10**9)]
    monkeypatch.setattr(memory, "available", lambda: 23e9)
    memory.refuse_what_cannot_fit(needs)
    monkeypatch.setattr(memory, "available", lambda: 22.9e9)
    with pytest.raises(DvdrlError) as error:
        memory.refuse_what_cannot_fit(needs)
    said = "buffer_size: this takes at least 23.0 GB of memory, 12.0 GB of it for rows; 22.9 GB are available"
    assert str(error.value) == said


def test_what_is_available_is_that_of_the_machine_the_container_or_the_accelerator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0 < memory.available() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 100  # with swap
    info = tmp_path / "meminfo"
    info.write_text("MemTotal:  900 kB\nMemAvailable:  500 kB\nSwapFree:  20 kB\n")
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_AVAILABLE", info)
    monkeypatch.setattr(memory, "_LIMITS", (limit,))
    assert memory.available() == 520 * 1024
    limit.write_text("max\n")
    assert memory.available() == 520 * 1024
    limit.write_text("4096\n")
    assert memory.available() == 4096
    device = SimpleNamespace(memory_stats=lambda: {"bytes_limit": 1000, "bytes_in_use": 300})
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert memory.available() == 700
