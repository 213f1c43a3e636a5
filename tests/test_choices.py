"""Options that choose between ways to do something, each by what a run then does: controllers, objective, filter."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import dvdrl

SMALL: dict[str, Any] = {
    "task": "Point-v0",
    "task_options": {"horizon": 3},
    "population": 2,
    "hidden": (4,),
    "num_states": 3,
}


def train(out: Path, **options: Any) -> dvdrl.Run:
    run = dvdrl.train(dvdrl.DvDES(**(SMALL | options), out=out))
    assert isinstance(run, dvdrl.Run)
    return run


Pulls = Sequence[tuple[int, float]]
"""Which arm, and its reward, from the first to the last."""


def since(window: int, discount: float = 1.0) -> Callable[[Pulls], tuple[list[float], list[float]]]:
    """The posterior of two arms from the latest pulls, of which one counts `discount` to the power of its age."""

    def posterior(pulls: Pulls) -> tuple[list[float], list[float]]:
        alpha, beta = [1.0, 1.0], [1.0, 1.0]
        for age, (arm, reward) in enumerate(reversed(pulls[-window:])):
            alpha[arm] += discount**age * reward
            beta[arm] += discount**age * (1 - reward)
        return alpha, beta

    return posterior


# By name: with the best of how many scores a score is compared, and what is then remembered.
BANDITS = {
    "thompson": (1, since(10**6)),
    "authors-thompson": (5, since(50)),
    "sliding-window": (1, since(50)),
    "discounted": (1, since(10**6, discount=0.95)),
}


def posterior_of(name: str, lines: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """What the bandit of that name makes of a run's returns and of the arms that were chosen in it."""
    num_compared, remembered = BANDITS[name]
    scores = [float(np.mean(line["member_returns"])) for line in lines]
    arms = [(0.0, 0.5).index(line["lambda"]) for line in lines]
    # A score is what the arm of the iteration before led to; the first one is the reference alone.
    pulls = [(arms[t - 1], float(scores[t] > max(scores[max(0, t - num_compared) : t]))) for t in range(1, len(lines))]
    return remembered(pulls)


@pytest.mark.parametrize("name", BANDITS)
def test_a_bandit_is_the_one_of_its_name(name: str, tmp_path: Path) -> None:
    # Swimmers start elsewhere in each iteration, so returns rise and fall. After 50 pulls a window forgets something,
    # and no two rules agree.
    options = {"task": "Swimmer-v5", "starts": "per-iteration", "controller": name, "sensings": 1, "iterations": 60}
    lines = train(tmp_path / "run", **options).metrics
    found = {other: posterior_of(other, lines) for other in BANDITS}
    np.testing.assert_allclose((lines[-1]["arm_alpha"], lines[-1]["arm_beta"]), found[name], rtol=1e-5)
    for other in BANDITS.keys() - {name}:
        assert not np.allclose(found[other], found[name])
    assert {line["lambda"] for line in lines} == {0.0, 0.5}


def test_the_plateau_of_its_name_waits_and_searches(tmp_path: Path) -> None:
    # Steps of 1e-30 change no parameter, so returns never rise. Patience is 1: the first round is no plateau yet; then
    # come 3 rounds in which all but the best member, one of two, have the arm 0.5, and 1 in which all have 0; then the
    # same with the arm 0.8, the last one, again and again.
    run = train(
        tmp_path / "run",
        controller="plateau",
        patience=1,
        sensings=1,
        learning_rate=1e-30,
        step_rule="plain",
        state_filter=False,
        starts="same",
        iterations=13,
    )
    lambdas = [line["lambda"] for line in run.metrics]
    np.testing.assert_allclose(lambdas, [0, *[0.25] * 3, 0, *[0.4] * 3, 0, *[0.4] * 3, 0], rtol=1e-6)
    assert len({tuple(line["member_returns"]) for line in run.metrics}) == 1


@pytest.mark.parametrize("state_filter", [True, False])
def test_without_a_state_filter_policies_see_observations_as_they_are(state_filter: bool, tmp_path: Path) -> None:
    run = train(tmp_path / "run", sensings=2, iterations=2, state_filter=state_filter)
    for member in range(2):
        arrays = load_file(run.directory / "policies" / f"member-{member}.safetensors")
        as_they_are = (arrays["shift"] == 0).all() and (arrays["scale"] == 1).all()
        assert as_they_are == (not state_filter)


def test_the_logarithm_changes_how_much_larger_a_score_is_and_not_which_is(tmp_path: Path) -> None:
    # Lambda is 1: scores are determinants alone, standardised. Of two scores that leaves 1 and -1, with or without a
    # logarithm; of four it leaves their ratios too.
    def params(objective: str, sensings: int) -> np.ndarray[Any, Any]:
        out = tmp_path / f"{objective}-{sensings}"
        run = train(out, objective=objective, sensings=sensings, arms=(1.0,), iterations=2)
        arrays = [load_file(run.directory / "policies" / f"member-{member}.safetensors") for member in range(2)]
        return np.stack([each["weights.0"] for each in arrays])

    np.testing.assert_allclose(params("det", 1), params("log-det", 1), rtol=1e-4, atol=1e-5)
    assert np.abs(params("det", 2) - params("log-det", 2)).max() > 1e-3
