"""The experiment on adaptation: its damages, and its numbers for robots whose returns are known."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dvdrl.runs.directory import Run
from dvdrl.studies import adaptation
from dvdrl.studies.measures import Outcome
from dvdrl.studies.statistics import mean, ratio
from dvdrl.tasks import registry
from dvdrl.tasks.perturbations import checked, of_model


@pytest.mark.parametrize("setting", adaptation.DAMAGES)
def test_each_robot_has_these_damages_and_each_strength_is_another_one(setting):
    known = of_model(registry.make(setting).model)
    assert tuple(adaptation.DAMAGES[setting]) == adaptation.KINDS
    for damage in adaptation.DAMAGES[setting].values():
        given = [checked(setting, known, damage(strength / 8)) for strength in range(1, 9)]
        assert len({str(each) for each in given}) == 8
        assert all(given)  # none changes nothing


class Table:
    """Simulations of two members. A damage takes its strength from what member 0 returns; member 1 returns 60."""

    def __init__(self, options: Any, population: Any):
        pass

    def returns(self, members: Any, perturb: Any) -> np.ndarray:
        strength = [1 - next(iter(each.values()), 1.0) for each in perturb]
        return np.where(np.asarray(members) == 0, 100 * (1 - np.array(strength)), 60.0)

    def undamaged(self, episodes: int) -> np.ndarray:
        return np.repeat(self.returns([0, 1], [{}, {}])[:, None], episodes, axis=1)

    def fresh(self, episodes: int, members: Any, perturb: Any) -> np.ndarray:
        rows = [[self.returns([member], [each])[0] for member in members] for each in perturb]
        return np.repeat(np.array(rows)[..., None], episodes, axis=-1)

    def trials(self, members: Any, numbers: Any, perturb: Any) -> list[float]:
        assert all(0 <= number < 4 for number in numbers)  # two for each member
        return self.returns(members, perturb).tolist()


def test_what_a_run_returns_on_damaged_robots_by_hand(monkeypatch):
    weak = {"motor": lambda strength: {"motor": 1 - strength}, "all": lambda strength: {"motor": 1 - strength}}
    monkeypatch.setattr(adaptation, "DAMAGES", {"robot": weak})
    monkeypatch.setattr(adaptation, "KINDS", ("motor", "all"))
    monkeypatch.setattr(adaptation, "Simulations", Table)
    monkeypatch.setattr(adaptation, "population_of", lambda run, which: (1, [0, 1]))
    found = adaptation.Adapted(Outcome("robot", SimpleNamespace(config=None), np.arange(1), [{}], 5))
    assert found.undamaged == 100
    left = 100 * (1 - np.arange(1, 9) / 8)
    np.testing.assert_allclose(found.unadapted, [left, left])
    np.testing.assert_allclose(found.in_hindsight, [np.maximum(left, 60)] * 2)
    np.testing.assert_allclose(found.chosen, found.in_hindsight)  # nothing varies, so the choice is right
    assert found.near_best.all()
    assert found.trials.min() >= 1
    assert found.trials.max() <= 4


def test_a_runs_damages_are_simulated_once_for_all_measures(monkeypatch):
    calls = []

    def adapted(outcome: Outcome) -> Any:
        calls.append(outcome)
        numbers = np.arange(40.0).reshape(5, 8)
        return SimpleNamespace(
            undamaged=50.0,
            chosen=numbers,
            unadapted=numbers - 1,
            in_hindsight=numbers + 1,
            near_best=numbers >= 10,
            trials=numbers * 0 + 3,
        )

    monkeypatch.setattr(adaptation, "Adapted", adapted)
    outcome = Outcome("Hopper-v5", Run("nowhere"), np.arange(1), [{}], 5)
    found = {name: measure.of(outcome) for name, measure in adaptation.MEASURES.items()}
    assert len(calls) == 1
    expected = {"undamaged": 50.0, "adapted": 19.5, "unadapted": 18.5, "in_hindsight": 20.5, "trials": 3.0}
    expected["near_best"] = 30 / 40
    assert {name: found[name] for name in expected} == expected
    assert found["adapted_stuck"] == np.mean(np.arange(8, 16))  # the second kind
    assert (found["motor_1"], found["mass_8"]) == (0.0, 39.0)


def test_means_and_ratios_by_hand():
    assert mean([1.0, 2.0, 6.0]).value == 3.0
    assert mean([1.0, 2.0, 6.0]).low == 1.0  # a bootstrap draws 1 alone in 1 of 27 samples, more than 2.5 %
    assert ratio([2.0, 4.0], [1.0, 2.0]).value == 2.0
    assert (ratio([2.0, 4.0], [1.0, 2.0]).low, ratio([2.0, 4.0], [1.0, 2.0]).high) == (1.0, 4.0)  # 2 / 2 and 4 / 1
