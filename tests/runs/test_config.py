import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dvdrl import bandits, diversity
from dvdrl.errors import DvdrlError
from dvdrl.runs import config
from dvdrl.runs.config import ES, ETD3, NSRES, TD3, DvDES, DvDTD3
from dvdrl.runs.trainer import make_controller


def test_configs_are_had_without_jax() -> None:
    # So that `dvdrl train --help` answers at once.
    code = "import sys, dvdrl, dvdrl.cli; dvdrl.DvDES; sys.exit('jax' in sys.modules or 'mujoco' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_controller_plateau_has_its_own_arms_and_its_patience() -> None:
    for kind in (DvDES, DvDTD3):
        resolved = config.resolve(kind(task="Point-v0", controller="plateau", patience=3))
        assert resolved.arms == inspect.signature(bandits.plateau).parameters["arms"].default
        assert config.resolve(kind(task="Point-v0", controller="plateau", arms=(0.0, 0.5))).arms == (0.0, 0.5)
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
    resolved = config.resolve(DvDES(task=task))
    assert (resolved.population, resolved.sensings, resolved.sigma) == (population, sensings, sigma)
    assert (resolved.learning_rate, resolved.hidden) == (learning_rate, hidden)
    assert (resolved.num_states, resolved.state_rule, resolved.state_interval) == (20, "uniform", 20)
    assert (resolved.step_rule, resolved.controller, resolved.arms) == ("plain", "thompson", (0.0, 0.5))


def test_the_authors_preset_differs_from_the_papers_where_their_code_does() -> None:
    resolved = config.resolve(DvDES(task="Point-v0", preset="authors"))
    assert (resolved.step_rule, resolved.controller, resolved.state_interval) == ("authors", "authors-thompson", 1)


def test_what_is_given_is_kept() -> None:
    resolved = config.resolve(ES(task="Point-v0", preset="authors", sigma=0.3, step_rule="adam"))
    assert (resolved.sigma, resolved.step_rule) == (0.3, "adam")


@pytest.mark.parametrize("kind", [ES, NSRES, DvDES])
def test_a_file_repeats_the_config(kind: type[ES], tmp_path: Path) -> None:
    resolved = config.resolve(kind(task="Point-v0", task_options={"wall_half_width": 4.0, "horizon": 9}, seed=3))
    (tmp_path / "config.json").write_text(config.to_json(resolved))
    assert config.from_json(tmp_path / "config.json") == resolved
    assert isinstance(config.from_json(tmp_path / "config.json").task_options["horizon"], int)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"algorithm": "es"}', '{"algorithm": "es", "task": "x", "nothing": 1}', "[]"]
)
def test_a_file_that_is_no_config_says_so(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(DvdrlError, match=r"config\.json"):
        config.from_json(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (DvDES(task="Point-v0", population=0), "population: expected at least 1, got 0"),
        (ETD3(task="Point-v0", population=2048), "population: expected at most 2047, got 2048"),
        (DvDES(task="Point-v0", sigma=-0.1), "sigma: expected a positive number, got -0.1"),
        (DvDES(task="Point-v0", learning_rate=float("nan")), "learning_rate: expected a positive number, got nan"),
        (DvDES(task="Point-v0", arms=()), "arms: expected values from 0 to 1, got none"),
        (NSRES(task="Point-v0", novelty_weight=1.5), "novelty_weight: expected values from 0 to 1, got 1.5"),
        (ES(task="Point-v0", hidden=(16, 0)), "hidden"),
        (ES(task="Point-v0", seed=-1), "seed: expected 0 or more, got -1"),
        (TD3(task="Point-v0", steps=2**31), "steps: expected less than 2**31"),
        (TD3(task="Point-v0", simulations="two"), "simulations: expected int, got 'two'"),  # type: ignore[arg-type]
        (ES(task="Point-v0", task_options={"a": "b"}), "task_options: expected a number for a, got 'b'"),
    ],
)
def test_what_no_run_can_have_is_said_in_one_line(options: ES, said: str) -> None:
    with pytest.raises(DvdrlError) as error:
        config.resolve(options)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_populations_are_refused_where_their_determinant_would_be() -> None:
    most = config._MOST_MEMBERS
    assert diversity.least_shrinkage(most) <= 1 < diversity.least_shrinkage(most + 1)


@pytest.mark.parametrize("seeds", ["3", "2..1", f"0..{2**32}", "0..99999999999999", [0, 1], 2])
def test_seeds_that_are_none_are_said(seeds: Any) -> None:
    with pytest.raises(DvdrlError, match="seeds: expected"):
        config.runs_of(ES(task="Point-v0", seeds=seeds))


def test_lists_are_taken_for_tuples() -> None:
    resolved = config.resolve(DvDTD3(task="Point-v0", arms=[0.0, 0.5], hidden=[2]))  # type: ignore[arg-type]
    assert (resolved.arms, resolved.hidden) == ((0.0, 0.5), (2,))


def test_iterations_are_those_that_there_will_be() -> None:
    # Of 120 steps each, as an update is for three members and two simulations, and every second one of policies too.
    options = DvDTD3(task="Point-v0", population=3, simulations=2, policy_delay=4, iteration_steps=110, steps=240)
    assert config.whole_iteration(options) == 120
    assert config.resolve(options).iterations == 2


def test_seeds_are_runs_of_their_own() -> None:
    runs = config.runs_of(ES(task="Point-v0", seeds="2..4", out=Path("here")))
    assert [(path, each.seed) for path, each in runs] == [(Path(f"here/seed-{i}"), i) for i in (2, 3, 4)]
    for wrong in ("3", "4..2", "a..b"):
        with pytest.raises(DvdrlError, match="seeds"):
            config.runs_of(ES(task="Point-v0", seeds=wrong))


def test_weights_and_biases_that_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "find_spec", lambda name: None)
    with pytest.raises(DvdrlError, match=r"pip install 'dvdrl\[wandb\]'"):
        config.resolve(ES(task="Point-v0", wandb=True))
