"""What docs/architecture.md says under "How to add": a small one of each, through public names."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import dvdrl
from drift import Drift
from dvdrl import bandits, es
from dvdrl.diversity import KERNELS
from dvdrl.engines import ENGINES, make_vec, register_engine
from dvdrl.engines.jax import JaxEngine
from dvdrl.policies import HEADS, Policy, register_head
from dvdrl.runs.options import ALGORITHMS, ETD3
from dvdrl.studies.experiment import Experiment, Scale
from dvdrl.studies.experiments import EXPERIMENTS
from dvdrl.studies.measures import SHARE, Measure
from dvdrl.studies.study import reproduce
from dvdrl.tasks.point import Point
from dvdrl.tasks.registry import TASKS, register
from dvdrl.views.export import export
from probes import Probe
from toy_head import Choice

TINY: dict[str, Any] = {"population": 2, "sensings": 2, "hidden": (4,), "iterations": 2, "num_states": 3}


def where_they_were(*given: Any) -> Float[Array, "n obs"]:
    """A behaviour: the mean observation of each episode."""
    policy, agents, states, episodes, seen = given
    assert isinstance(policy, Policy)
    assert len(agents.params) == len(episodes.returns)
    assert states.shape[1] == policy.num_observed == seen.mean.shape[0]
    return episodes.moments.mean


def test_a_behaviour() -> None:
    probe = Probe(lambda actions: actions[:, 0])
    algorithm = es.evolution_strategy(
        probe.policy,
        population=2,
        sensings=1,
        sigma=0.1,
        learning_rate=0.1,
        kernel=KERNELS["squared-exponential"](),
        controller=bandits.fixed(0.5),
        behaviour=where_they_were,
        diversity=es.novelty(),
    )
    state = algorithm.init(jax.random.key(0))
    episodes = probe(algorithm.ask(state))
    # Two members, then both signs of one perturbation of each. Members are at (0, 0) and (3, 4): 5 / sqrt(2) apart.
    means = jnp.asarray([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0], [2.0, 0.0], [3.0, 4.0], [3.0, 4.0]])
    _, info = algorithm.tell(state, episodes._replace(moments=episodes.moments._replace(mean=means)))
    np.testing.assert_allclose(info.diversity["distances"], [5 / 2**0.5], rtol=1e-6)


@dataclass(frozen=True, kw_only=True)
class ToyOptions(ETD3[Any]):
    """An off-policy learner: its options name what makes its trainer."""

    algorithm: ClassVar[str] = "toy"
    trainer: ClassVar[str] = "toy_learner:make_trainer"


def test_an_off_policy_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toy_learner import OPTIONS

    monkeypatch.setitem(ALGORITHMS, "toy", ToyOptions)
    given = {field.name: getattr(OPTIONS, field.name) for field in dataclasses.fields(OPTIONS)}
    run = dvdrl.train(ToyOptions(**{**given, "out": tmp_path / "run"}))
    assert isinstance(run, dvdrl.Run)
    assert run.config.algorithm == "toy"
    assert run.metrics[-1]["surprise"] == 3.0  # what the learner reports: 3 for each update
    assert dvdrl.load(tmp_path / "run").act(np.zeros(6)).shape == (2, 2)


@pytest.fixture
def choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dvdrl.policies.heads.HEADS", HEADS)
    monkeypatch.delitem(HEADS, "categorical")  # as if there were no other head for such actions
    register_head(Choice)


@pytest.mark.usefixtures("choice")
def test_an_action_head(tmp_path: Path) -> None:
    run = dvdrl.train(dvdrl.DvDES(task="CartPole-v1", out=tmp_path / "run", **TINY))
    assert isinstance(run, dvdrl.Run)
    # CartPole pays 1 for each step until it falls, which it does within a second or two of doing the same.
    assert 5 < run.metrics[-1]["best_return"] <= 500
    population = dvdrl.load(tmp_path / "run")
    actions = population.act(np.random.default_rng(0).normal(size=(50, 4)))
    assert actions.shape == (2, 50)
    assert set(np.unique(actions)) <= {0, 1}
    assert dvdrl.evaluate(tmp_path / "run", episodes=2)["best_return"] > 5
    for to in ("onnx", "safetensors"):  # compared with the run's own actions before they are written
        assert len(export(tmp_path / "run", to)) == 3


def short_point(name: str, num_envs: int, **options: Any) -> Any:
    """An engine: Point cut to five steps."""
    assert name == "Point"
    return make_vec(Point(horizon=5), num_envs, autoreset_mode=options["autoreset_mode"])


def test_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dvdrl.engines.ENGINES", dict(ENGINES))
    register_engine("short", short_point)
    run = dvdrl.train(dvdrl.ES(task="short:Point", out=tmp_path / "run", **TINY))
    assert isinstance(run, dvdrl.Run)
    # Two members, and both signs of two perturbations of each: ten episodes of five steps, twice.
    assert run.metrics[-1]["env_steps"] == 2 * 10 * 5
    assert len(dvdrl.evaluate(tmp_path / "run", episodes=2)["member_returns"]) == 2


def test_a_jax_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dvdrl.engines.ENGINES", dict(ENGINES))
    register_engine("drift", JaxEngine(lambda name: Drift(horizon=5)))
    run = dvdrl.train(dvdrl.ES(task="drift:any", out=tmp_path / "run", **TINY))
    assert isinstance(run, dvdrl.Run)
    assert run.metrics[-1]["env_steps"] == 2 * 10 * 5


@dataclass(frozen=True, kw_only=True)
class Nearby(Point):
    """A task: Point for three steps."""

    id: ClassVar[str] = "Nearby-v0"
    horizon: int = 3


def test_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dvdrl.tasks.registry.TASKS", dict(TASKS))
    register(Nearby)
    run = dvdrl.train(dvdrl.ES(task="Nearby-v0", out=tmp_path / "run", **TINY))
    assert isinstance(run, dvdrl.Run)
    assert run.metrics[-1]["env_steps"] == 2 * 10 * 3
    # Three steps from (0, 0), the goal at (25, 0) is still almost 25 away, and each of them pays minus that.
    assert -76 < run.metrics[-1]["best_return"] < -70


def test_an_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = Experiment(
        figure="",
        claim="Point is far from its goal.",
        settings={"Point-v0": {"task": "Point-v0", "preset": "paper"}},
        variants={"es": (dvdrl.ES, {})},
        scales={"smoke": Scale("0..1", {"Point-v0": 1}, TINY)},
        subject="es",
        measures={"far": Measure(lambda outcome: float(outcome.best[-1] < -100), (SHARE,))},
    )
    monkeypatch.setitem(EXPERIMENTS, "toy", experiment)
    reproduce("toy", tmp_path / "results", scale="smoke", seeds=None, executor="local")
    header, row = (tmp_path / "results" / "summary.csv").read_text().splitlines()
    assert dict(zip(header.split(","), row.split(","), strict=True))["far"] == "2"  # of two seeds
