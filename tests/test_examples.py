"""Every example runs, as small as it goes, and does what it says."""

import importlib
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.views.render import backend

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL: dict[str, Any] = {"population": 2, "sensings": 2, "hidden": (4,), "iterations": 2, "num_states": 5}


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """By its name; worker processes find it too."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


def test_every_example_is_listed_and_tested() -> None:
    listed, tested = (EXAMPLES / "README.md").read_text(), Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f"]({path.name})" in listed
        assert f'example("{path.stem}")' in tested


def test_the_term_makes_members_differ_in_a_plain_loop(example: Any) -> None:
    module = example("jax_loop")
    paid, different = module.main(steps=150)
    alone_paid, alone_different = module.main(steps=150, diversity_weight=0.0)
    assert different > alone_different + 0.3
    assert paid > -0.02
    assert alone_paid > -0.02


def test_a_task_from_a_file_in_less_than_40_lines(example: Any, tmp_path: Path) -> None:
    assert len((EXAMPLES / "mjcf_task.py").read_text().splitlines()) < 40
    example("mjcf_task")
    envs = dvdrl.make_vec("SwingUp-v0", 2)
    observation, _ = envs.reset(seed=0)
    assert observation.shape == (2, 3)
    _, rewards, _, _, _ = envs.step(np.zeros((2, 1)))
    np.testing.assert_allclose(rewards, -1, atol=0.02)  # it hangs down
    dvdrl.train(dvdrl.ES(task="SwingUp-v0", out=tmp_path / "run", **SMALL))


def test_an_environment_of_ones_own(example: Any, tmp_path: Path) -> None:
    population = example("gymnasium_environment").main(tmp_path / "run", **SMALL)
    assert population.act(np.zeros(2)).shape == (2, 1)


def test_a_study_on_ray(example: Any, tmp_path: Path) -> None:
    mean, half = example("ray_study").main(tmp_path / "study", seeds="0..1", **SMALL)
    best = [max(line["best_return"] for line in dvdrl.Run(tmp_path / "study" / f"seed-{i}").metrics) for i in (0, 1)]
    assert mean == pytest.approx(np.mean(best))
    # Of two values the deviation of the mean is half their difference, and t_{0.975, 1} = 12.7062.
    assert half == pytest.approx(12.7062 * abs(best[0] - best[1]) / 2, rel=1e-4)


@pytest.mark.skipif(find_spec("optuna") is None, reason="Optuna is not installed: make install")
def test_a_search_is_stored_pruned_and_resumed(example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna

    module = example("optuna_search")
    options = {"seeds": 2, "task": "Point-v0", "task_options": {"horizon": 3}, **SMALL}
    train = dvdrl.train

    def interrupted(options: Any, on_iteration: Any) -> Any:
        def look(done: dvdrl.Iteration) -> None:
            on_iteration(done)
            if done.run.directory.name == "seed-1":
                raise KeyboardInterrupt

        return train(options, on_iteration=look)

    monkeypatch.setattr(dvdrl, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        module.main(tmp_path / "search", trials=1, **options)
    monkeypatch.undo()
    # The interrupted trial goes on where it was, with the same options, and is not counted twice.
    study = module.main(tmp_path / "search", trials=1, **options)
    first, again = study.trials
    assert (first.state.name, again.state.name) == ("FAIL", "COMPLETE")
    assert again.params == first.params
    assert first.user_attrs["run"] == again.user_attrs["run"] == "trial-0"
    runs = [dvdrl.Run(tmp_path / "search" / "trial-0" / f"seed-{seed}") for seed in (0, 1)]
    means = [np.mean([run.metrics[iteration]["best_return"] for run in runs]) for iteration in (0, 1)]
    assert again.intermediate_values == pytest.approx({1: means[0], 2: means[1]})
    assert again.value == pytest.approx(means[1])
    assert runs[0].config.sigma == pytest.approx(again.params["sigma"])
    # A second trial, of which nothing is good enough: it is given up after its first iteration.
    pruner = optuna.pruners.ThresholdPruner(lower=0)
    study = module.main(tmp_path / "search", trials=2, pruner=pruner, **options)
    assert [trial.state.name for trial in study.trials] == ["FAIL", "COMPLETE", "PRUNED"]
    assert len(dvdrl.Run(tmp_path / "search" / "trial-2" / "seed-1").metrics) == 1
    assert module.main(tmp_path / "search", trials=2, **options).trials == study.trials  # nothing is left to do


def test_a_broken_leg_is_adapted_to_and_filmed(example: Any, tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    try:
        backend()
    except DvdrlError as error:
        pytest.skip(str(error))
    module = example("adapt_to_damage")
    found = module.main(tmp_path, steps=3, task_options={"horizon": 5}, **SMALL)
    assert found["perturb"] == module.BROKEN
    assert 1 <= found["trials"] <= 4
    with av.open(tmp_path / "damage.mp4") as film:
        shapes = {frame.to_ndarray(format="rgb24").shape for frame in film.decode(video=0)}
    assert shapes == {(240, 3 * 320, 3)}  # three side by side


@pytest.mark.skipif(
    find_spec("stable_baselines3") is None,
    reason="Stable-Baselines3 brings PyTorch, so it is not installed unasked: make sb3",
)
def test_the_term_in_stable_baselines3(example: Any) -> None:
    module = example("stable_baselines3_callback")
    options = {"agents": 2, "rounds": 1, "steps": 60}
    assert module.main(**options) > module.main(**options, learning_rate=0.0)
