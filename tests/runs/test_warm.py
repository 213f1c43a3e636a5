"""Runs that start from the policies of other runs, or of their exports."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.policies import MLP, Population
from dvdrl.policies.filter import affine, as_of
from dvdrl.runs import checkpoint, file, loop, warm
from dvdrl.views.export import export
from stopped_runs import assert_same_run
from written_runs import write_run

ES = dvdrl.ES(task="Point-v0", task_options={"horizon": 5}, population=2, sensings=2, hidden=(4,), iterations=2)
TD3 = dvdrl.ETD3(
    task="Point-v0",
    population=2,
    hidden=(4,),
    steps=60,
    iteration_steps=60,
    random_steps=60,
    batch_size=4,
    num_states=2,
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three members, with filters, and its export."""
    directory = tmp_path_factory.mktemp("source") / "run"
    write_run(directory, MLP((6, 4, 2)), members=3)
    export(directory, "safetensors")
    return directory


def first(directory: Path) -> Any:
    """The parameters with which a run began."""
    return checkpoint.load_tensor(directory / "checkpoints", 0, "params")


def test_a_run_starts_from_the_policies_of_another_with_their_filters(source: Path, tmp_path: Path) -> None:
    population = dvdrl.load(source)
    seen: list[Population] = []
    # Steps of 1e-30 change no parameter, and an iteration of five steps hardly a filter of 1,000 observations.
    options = replace(ES, population=3, learning_rate=1e-30, step_rule="plain", keep_checkpoints=9, from_=source)
    run = dvdrl.train(
        replace(options, iterations=1, state_filter=False, out=tmp_path / "run"),
        on_iteration=lambda done: seen.append(done.population),
    )
    assert isinstance(run, dvdrl.Run)
    np.testing.assert_array_equal(first(run.directory), population.agents.params)
    obs = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    np.testing.assert_allclose(seen[0].act(obs), population.act(obs), rtol=1e-4, atol=1e-5)
    assert file.from_json(run.directory / "config.json").from_digest == warm.start(options).digest


def test_filters_come_back_as_they_were() -> None:
    # A coordinate that never varied has a scale of 0; a filter of no observation leaves all as it is.
    shift, scale = np.asarray([[3.0, -1.0], [0.0, 0.0]], np.float32), np.asarray([[0.25, 0.0], [1.0, 1.0]], np.float32)
    moments = as_of(shift, scale, 1000)
    np.testing.assert_array_equal(moments.num, [1000, 0])
    for found, expected in zip(affine(moments), (shift, scale), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_further_members_are_noisy_copies(source: Path) -> None:
    begun = warm.start(replace(ES, from_=source, from_members=(0, 2)))
    assert begun is not None
    population = dvdrl.load(source)
    agents = warm.agents_for(begun, population.policy, 6, seed=3)
    np.testing.assert_array_equal(agents.params[:2], population.agents.params[[0, 2]])
    np.testing.assert_array_equal(agents.scale, population.agents.scale[[0, 2, 0, 2, 0, 2]])
    # The noise has a tenth of the size of the parameters: of 38 numbers each, within a factor of two.
    for copy, parent in ((2, 0), (3, 2), (4, 0), (5, 2)):
        noise = agents.params[copy] - population.agents.params[parent]
        size = np.sqrt(np.mean(np.square(noise)) / np.mean(np.square(population.agents.params[parent])))
        assert 0.05 < size < 0.2
    assert not np.array_equal(agents.params[2], agents.params[4])
    other = warm.agents_for(begun, population.policy, 6, seed=4)
    assert not np.array_equal(other.params[2:], agents.params[2:])


def test_an_export_is_as_good_as_its_run(source: Path) -> None:
    of_run = warm.start(replace(ES, from_=source))
    for where in (source / "exports", source / "exports" / "population.safetensors"):
        of_export = warm.start(replace(ES, from_=where))
        assert of_run is not None
        assert of_export is not None
        assert (of_export.digest, of_export.about) == (of_run.digest, of_run.about)
    one = warm.start(replace(ES, from_=source / "exports" / "member-1.safetensors"))
    chosen = warm.start(replace(ES, from_=source, from_members=(1,)))
    assert one is not None
    assert chosen is not None
    assert (one.digest, one.about) == (chosen.digest, chosen.about)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"population": 3, "hidden": (5,)}, "have layers of sizes [6, 4, 2], those of this run [6, 5, 2]"),
        (
            {"population": 3, "task": "Hopper-v5", "task_options": {}},
            "have layers of sizes [6, 4, 2], those of this run",
        ),
        ({"population": 2}, "from: 3 policies for 2 members; --from-members chooses"),
        ({"from_members": (0, 3)}, "has 3 members, from 0 on, got 3"),
        ({"from_digest": "abc"}, "has other policies than those that the run began with"),
        ({"from_": Path("nowhere")}, "from: nowhere is no run, and no file or directory of `dvdrl export"),
        ({"from_": None, "from_members": (0,)}, "from_members: only with --from"),
        ({"from_": None, "from_digest": "abc"}, "this run began with policies of another one; --from names that one"),
    ],
)
def test_what_does_not_fit_is_one_line_and_nothing_is_written(
    options: dict[str, Any], said: str, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(DvdrlError) as error:
        dvdrl.train(replace(ES, **{"from_": source, "out": tmp_path / "run", **options}))
    assert said in str(error.value)
    assert not (tmp_path / "run").exists()


def test_td3_starts_from_policies_of_its_kind(source: Path, tmp_path: Path) -> None:
    before = dvdrl.train(replace(TD3, out=tmp_path / "before"))
    assert isinstance(before, dvdrl.Run)
    # All steps are random and nothing is learned: its policies stay as they are.
    run = dvdrl.train(replace(TD3, population=3, from_=tmp_path / "before", out=tmp_path / "run"))
    assert isinstance(run, dvdrl.Run)
    np.testing.assert_array_equal(run.population.agents.params[:2], before.population.agents.params)
    with pytest.raises(DvdrlError, match="have activation tanh, those of this run relu"):
        dvdrl.train(replace(TD3, population=3, from_=source, out=tmp_path / "other"))


def test_xqc_starts_from_policies_with_their_filter(tmp_path: Path) -> None:
    options = {field.name: getattr(TD3, field.name) for field in fields(dvdrl.XQC) if hasattr(TD3, field.name)}
    xqc = dvdrl.XQC(**{**options, "critic_hidden": (4,), "policy_delay": 2})
    before = dvdrl.train(replace(xqc, out=tmp_path / "before"))
    assert isinstance(before, dvdrl.Run)
    # All steps are random and nothing is learned but the filter: 60 observations more than 1,000.
    run = dvdrl.train(replace(xqc, population=3, from_=tmp_path / "before", out=tmp_path / "run"))
    assert isinstance(run, dvdrl.Run)
    mine, others = run.population.agents, before.population.agents
    np.testing.assert_array_equal(mine.params[:2], others.params)
    np.testing.assert_allclose(mine.scale[:2], others.scale, rtol=0.1)
    assert (mine.shift == mine.shift[:1]).all()


def test_it_is_resumed_and_repeated_as_it_began(source: Path, tmp_path: Path) -> None:
    options = replace(ES, population=4, iterations=4, from_=source)
    dvdrl.train(replace(options, out=tmp_path / "whole"))
    dvdrl.train(replace(options, iterations=1, out=tmp_path / "run"))
    dvdrl.resume(tmp_path / "run", iterations=4)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    described = file.from_json(tmp_path / "whole" / "config.json")
    with pytest.raises(DvdrlError, match="--from names that one"):
        dvdrl.train(replace(described, out=tmp_path / "again"))
    dvdrl.train(replace(described, from_=source / "exports", out=tmp_path / "again"))
    assert_same_run(tmp_path / "again", tmp_path / "whole")
    # Killed before its first checkpoint, it cannot begin as it would have.
    (tmp_path / "again" / "metrics.jsonl").unlink()
    for path in (tmp_path / "again" / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(DvdrlError, match="killed before its first checkpoint"):
        loop.resume(tmp_path / "again")
