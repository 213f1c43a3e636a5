"""The presets are what they say, and what is left open follows from them or from other options."""

import inspect

import pytest

from dvdrl import bandits
from dvdrl.errors import DvdrlError
from dvdrl.runs import presets
from dvdrl.runs.options import ES, DvDES, DvDTD3
from dvdrl.runs.presets import resolve
from dvdrl.runs.trainer import make_controller


def test_the_controller_plateau_has_its_own_arms_and_its_patience() -> None:
    for kind in (DvDES, DvDTD3):
        resolved = resolve(kind(task="Point-v0", controller="plateau", patience=3))
        assert resolved.arms == inspect.signature(bandits.plateau).parameters["arms"].default
        assert resolve(kind(task="Point-v0", controller="plateau", arms=(0.0, 0.5))).arms == (0.0, 0.5)
        controller = make_controller("plateau", 2, resolved.arms, resolved.patience)
        assert controller.init().records.shape == (3,)


@pytest.mark.parametrize(
    ("task", "population", "sensings", "sigma", "learning_rate", "hidden"),
    [  # tables 3 and 4 of the paper's appendix, and section 5 for M
        ("Point-v0", 5, 100, 0.1, 0.05, (16, 16)),
        ("Swimmer-v5", 5, 100, 0.1, 0.05, (16, 16)),
        ("HalfCheetah-v5", 5, 100, 0.1, 0.05, (32, 32)),
        ("Walker2d-v5", 5, 100, 0.1, 0.05, (32, 32)),
        ("BipedalWalker-v3", 5, 100, 0.1, 0.05, (32, 32)),
        ("HalfCheetah-FwdBwd-v0", 3, 100, 0.001, 0.001, (32, 32)),
        ("Ant-FwdBwd-v0", 3, 300, 0.001, 0.001, (64, 64)),
    ],
)
def test_the_paper_preset_is_its_tables(
    task: str, population: int, sensings: int, sigma: float, learning_rate: float, hidden: tuple[int, int]
) -> None:
    resolved = resolve(DvDES(task=task, preset="paper"))
    assert resolved.starts == "same"
    assert (resolved.population, resolved.sensings, resolved.sigma) == (population, sensings, sigma)
    assert (resolved.learning_rate, resolved.hidden) == (learning_rate, hidden)
    assert (resolved.num_states, resolved.state_rule, resolved.state_interval) == (20, "uniform", 20)
    assert (resolved.step_rule, resolved.controller, resolved.arms) == ("plain", "thompson", (0.0, 0.5))


def test_the_authors_preset_differs_from_the_papers_where_their_code_does() -> None:
    resolved = resolve(DvDES(task="Point-v0", preset="authors"))
    assert (resolved.step_rule, resolved.controller, resolved.state_interval) == ("authors", "authors-thompson", 1)


def test_what_is_given_is_kept() -> None:
    resolved = resolve(ES(task="Point-v0", preset="authors", sigma=0.3, step_rule="adam"))
    assert (resolved.sigma, resolved.step_rule) == (0.3, "adam")


def test_lists_are_taken_for_tuples() -> None:
    resolved = resolve(DvDTD3(task="Point-v0", arms=[0.0, 0.5], hidden=[2]))  # type: ignore[arg-type]
    assert (resolved.arms, resolved.hidden) == ((0.0, 0.5), (2,))


def test_iterations_are_those_that_there_will_be() -> None:
    # Of 120 steps each, as an update is for three members and two simulations, and every second one of policies too.
    options = DvDTD3(task="Point-v0", population=3, simulations=2, policy_delay=4, iteration_steps=110, steps=240)
    assert options.whole_iteration() == 120
    assert resolve(options).iterations == 2


def test_weights_and_biases_that_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "find_spec", lambda name: None)
    with pytest.raises(DvdrlError, match=r"pip install 'dvdrl\[wandb\]'"):
        resolve(ES(task="Point-v0", wandb=True))
