"""Exported policies act as those of the run, for every member, wherever they run."""

import subprocess
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from dvdrl.errors import DvdrlError
from dvdrl.off_policy import make_policy
from dvdrl.policies import MLP, Agents, Population, Standing
from dvdrl.runs import policies
from dvdrl.runs.kept import Keeper
from dvdrl.views import export as module
from dvdrl.views.export import export
from dvdrl.views.rounding import exact_actions
from stopped_runs import DVDRL
from written_runs import write_run

TASK = "Elsewhere-v0"
"""Not of this machine: what members do in it can be checked, not whether it takes that."""


@pytest.mark.parametrize(
    "policy",
    [MLP((6, 16, 16, 2)), MLP((17, 6)), MLP((4, 8, 1)), make_policy(6, 2, (32, 32)).network],
    ids=["of ES", "without hidden layers", "with one action", "of TD3"],
)
def test_onnx_acts_as_every_member(policy: MLP, tmp_path: Path) -> None:
    sizes = policy.sizes
    population = write_run(tmp_path / "run", policy, task=TASK)
    paths = export(tmp_path / "run", "onnx")
    names = ["population.onnx", "member-0.onnx", "member-1.onnx", "member-2.onnx"]
    assert [path.relative_to(tmp_path / "run" / "exports") for path in paths] == [Path(name) for name in names]
    obs = np.random.default_rng(7).normal(0, 3, (50, sizes[0])).astype(np.float32)
    expected = population.act(obs)
    together = onnxruntime.InferenceSession(paths[0])
    for member, path in enumerate(paths[1:]):
        (alone,) = onnxruntime.InferenceSession(path).run(None, {"observation": obs})
        np.testing.assert_allclose(alone, expected[member], rtol=0, atol=1e-5)
        (shared,) = together.run(None, {"observation": obs, "member": np.full(50, member)})
        np.testing.assert_allclose(shared, expected[member], rtol=0, atol=1e-5)
    # Every observation can have a member of its own.
    whose = np.arange(50) % 3
    (mixed,) = together.run(None, {"observation": obs, "member": whose})
    np.testing.assert_allclose(mixed, expected[whose, np.arange(50)], rtol=0, atol=1e-5)


def test_graphs_have_standard_operators_alone(tmp_path: Path) -> None:
    write_run(tmp_path / "run", MLP((6, 16, 16, 2)), task=TASK)
    for path in export(tmp_path / "run", "onnx"):
        model = onnx.load(path)
        assert [(each.domain, each.version) for each in model.opset_import] == [("", 17)]
        assert {node.domain for node in model.graph.node} == {""}
        about = {each.key: each.value for each in model.metadata_props}
        assert about["task"] == TASK
        assert about["algorithm"] == "dvd-es"


def test_safetensors_hold_the_same_policies(tmp_path: Path) -> None:
    population = write_run(tmp_path / "run", MLP((6, 16, 16, 2)), task=TASK)
    together, *alone = export(tmp_path / "run", "safetensors", tmp_path / "elsewhere")
    assert together == tmp_path / "elsewhere" / "population.safetensors"
    everyone = load_file(together)
    obs = np.random.default_rng(7).normal(0, 3, (50, 6)).astype(np.float32)
    for member, path in enumerate(alone):
        tensors = load_file(path)
        np.testing.assert_array_equal(tensors["weights.1"], everyone["weights.1"][member])
        # As `how_to_run` in the file says.
        x = (obs - tensors["shift"]) * tensors["scale"]
        x = np.tanh(x @ tensors["weights.0"] + tensors["bias.0"])
        x = np.tanh(x @ tensors["weights.1"] + tensors["bias.1"])
        x = np.tanh(x @ tensors["weights.2"])
        low, high = tensors["action_low"], tensors["action_high"]
        action = (high + low) / 2 + x * (high - low) / 2
        np.testing.assert_allclose(action, population.act(obs)[member], rtol=0, atol=1e-5)


def test_safetensors_of_td3_are_checked_as_well(tmp_path: Path) -> None:
    write_run(tmp_path / "run", make_policy(6, 2, (32, 32)).network, task=TASK)
    together, *_ = export(tmp_path / "run", "safetensors")
    tensors = load_file(together)
    assert tensors["bias.2"].shape == (3, 2)  # its last layer has a bias


@pytest.mark.parametrize("to", ["onnx", "safetensors"])
def test_what_acts_otherwise_is_not_written(to: module.Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "run", MLP((6, 4, 2)), task=TASK)
    right = module._tensors

    def wrong(population: Population, member: int | None) -> module.Tensors:
        return {
            name: tensor * 1.001 if name == "bias.0" else tensor for name, tensor in right(population, member).items()
        }

    monkeypatch.setattr(module, "_tensors", wrong)
    with pytest.raises(
        DvdrlError, match=r"an action of member 0 differs .* of which rounding explains .*; nothing was"
    ):
        export(tmp_path / "run", to)
    assert not (tmp_path / "run" / "exports").exists()


@pytest.mark.parametrize("to", ["onnx", "safetensors"])
def test_only_distinct_members_if_asked_for(to: module.Format, tmp_path: Path) -> None:
    run = tmp_path / "run"
    population = write_run(run, MLP((6, 4, 2)), members=4, task=TASK)
    standing = Standing(np.float32([1, 0.9, 0.1, 0.8]), np.array([True, False, False, True]))
    policies.save(run / "policies", replace(population, standing=standing))
    paths = export(run, to, distinct=True)
    assert [path.name for path in paths] == [f"population.{to}", f"member-0.{to}", f"member-3.{to}"]
    obs = np.random.default_rng(7).normal(size=(5, 6)).astype(np.float32)
    expected = population.act(obs)[[0, 3]]
    load = module._run_safetensors if to == "safetensors" else module._run_onnx
    for member, path in enumerate(paths[1:]):
        found = load(path.read_bytes(), population.policy)(obs, np.zeros(5, np.int64))
        np.testing.assert_allclose(found, expected[member], rtol=0, atol=1e-5)
        together = load(paths[0].read_bytes(), population.policy)(obs, np.full(5, member))
        np.testing.assert_allclose(together, expected[member], rtol=0, atol=1e-5)
    # Who of the run each member of the population's file is.
    if to == "onnx":
        about = onnxruntime.InferenceSession(paths[0]).get_modelmeta().custom_metadata_map
    else:
        with safe_open(paths[0], framework="numpy") as file:
            about = file.metadata()
    assert (about["members"], about["numbers"]) == ("2", "[0, 3]")


def test_without_distinct_members_nothing_is_exported(tmp_path: Path) -> None:
    run = tmp_path / "run"
    population = write_run(run, MLP((6, 4, 2)), task=TASK)
    with pytest.raises(DvdrlError, match=r"expected members of which it is known .*; leave out --distinct"):
        export(run, "safetensors", distinct=True)
    standing = Standing(np.ones(3, np.float32), np.zeros(3, bool))
    policies.save(run / "policies", replace(population, standing=standing))
    with pytest.raises(DvdrlError, match=r"none of its 3 members is good and different .*; train longer, or leave out"):
        export(run, "safetensors", distinct=True)
    Keeper(run, 0).evaluated(1, population, np.arange(3.0))
    with pytest.raises(
        DvdrlError, match=r"distinct: members that were best in different .*; choose another population"
    ):
        export(run, "safetensors", distinct=True, which="best-each")
    assert not (run / "exports").exists()
    assert len(export(run, "safetensors")) == 4


def test_errors_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DvdrlError, match="not a run directory"):
        export(tmp_path, "onnx")
    write_run(tmp_path / "run", MLP((6, 4, 2)), task=TASK)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DvdrlError, match="--out chooses another"):
        export(tmp_path / "run", "safetensors", tmp_path / "file" / "out")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(DvdrlError, match=r"onnx and onnxruntime not installed; pip install 'dvdrl\[onnx\]'"):
        export(tmp_path / "run", "onnx")


def test_on_the_command_line(tmp_path: Path) -> None:
    write_run(tmp_path / "run", MLP((6, 4, 2)), members=1, task=TASK)
    command = [*DVDRL, "export", "run", "--format", "safetensors"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert said.splitlines() == ["run/exports/population.safetensors", "run/exports/member-0.safetensors"]
    refused = subprocess.run([*command, "--distinct"], capture_output=True, text=True, cwd=tmp_path)
    assert refused.returncode == 2
    assert "leave out --distinct to export all" in refused.stderr


@pytest.mark.parametrize("to", ["onnx", "safetensors"])
@pytest.mark.parametrize("factor", [1, 8, 64])
def test_what_rounding_explains_is_no_difference(to: module.Format, factor: float, tmp_path: Path) -> None:
    # Larger parameters, as after long training, round more: JAX and NumPy then differ by more than 1e-5 of the range.
    population = write_run(tmp_path / "run", MLP((6, 64, 64, 2)), task=TASK)
    larger = population.agents._replace(params=population.agents.params * np.float32(factor))
    population = Population(TASK, population.policy, larger)
    policies.save(tmp_path / "run" / "policies", population)
    assert len(export(tmp_path / "run", to)) == 4


@pytest.mark.parametrize("network", [MLP((6, 64, 64, 2)), make_policy(6, 2, (32, 32)).network], ids=["tanh", "relu"])
@pytest.mark.parametrize("factor", [0.1, 1, 10])
def test_bounds_of_rounding_hold_and_are_not_wide(network: MLP, factor: float, tmp_path: Path) -> None:
    population = write_run(tmp_path / "run", network, task=TASK)
    rng, policy = np.random.default_rng(1), population.policy
    for member in range(3):
        agent = Agents(*(array[member] for array in population.agents))
        agent = agent._replace(params=agent.params * np.float32(factor))
        obs = rng.normal(size=(500, 6)).astype(np.float32)
        exact, tolerance = exact_actions(policy, agent, obs)
        for single in (policy.act(agent, obs), policy.act(Agents(*map(jnp.asarray, agent)), jnp.asarray(obs))):
            assert np.all(policy.head.differences(np.asarray(single), exact) <= tolerance)
        # Worst cases of sums of 64 terms in three layers, each multiplied by the sizes of the weights.
        assert np.median(tolerance) < 1e-4 * max(1, factor) ** 3
        wrong = agent._replace(params=agent.params * np.float32(1.01))
        assert np.any(policy.head.differences(policy.act(wrong, obs), exact) > tolerance)
