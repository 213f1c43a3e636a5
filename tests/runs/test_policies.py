import json
import re
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from dvdrl.errors import DvdrlError
from dvdrl.policies import MLP, Agents, Bounded, Places, Policy, Population, Standing
from dvdrl.runs import policies
from dvdrl.runs.tensors import digest


@pytest.fixture
def population() -> Population:
    policy, rng = Policy(MLP((4, 8, 8, 2)), Bounded((-1.0, 0.0), (1.0, 10.0))), np.random.default_rng(0)
    params = np.asarray(jax.vmap(policy.network.init)(jax.random.split(jax.random.key(0), 3)))
    shift, scale = rng.normal(size=(3, 4)).astype(np.float32), rng.uniform(1, 2, (3, 4)).astype(np.float32)
    return Population("Point-v0", policy, Agents(params, shift, scale))


def test_files_hold_the_population(population: Population, tmp_path: Path) -> None:
    policies.save(tmp_path, population)
    loaded = policies.load(tmp_path)
    obs = np.random.default_rng(1).normal(size=(5, 4))
    np.testing.assert_array_equal(loaded.act(obs), population.act(obs))
    assert (loaded.task, len(loaded)) == ("Point-v0", 3)


def test_shapes_of_actions(population: Population) -> None:
    obs = np.zeros(4)
    assert population.act(obs).shape == (3, 2)
    assert population.act(np.zeros((7, 4))).shape == (3, 7, 2)
    assert population[1].act(obs).shape == (2,)
    some = np.random.default_rng(2).normal(size=(7, 4))
    for member in range(len(population)):  # by itself it does, to the bit, what it does among the others
        np.testing.assert_array_equal(population[member].act(some), population.act(some)[member])
    np.testing.assert_array_equal(population[-1].act(obs), population.act(obs)[2])
    with pytest.raises(IndexError, match="expected an index into 3 members, got 3"):
        population[3]


@pytest.mark.parametrize("shape", [(5,), (4, 1), (7, 3), (1,), ()])
def test_observations_of_another_size_are_named(shape: tuple[int, ...], population: Population) -> None:
    for act in (population.act, population[0].act):
        with pytest.raises(ValueError, match=re.escape(f"obs: expected shape (..., 4), got {shape}")):
            act(np.zeros(shape))


def test_actions_are_in_the_bounds_of_the_task(population: Population) -> None:
    # The second action goes from 0 to 10: its middle is 5, where a policy with all parameters 0 is.
    agents = population.agents
    still = replace(population, agents=agents._replace(params=np.zeros_like(agents.params)))
    np.testing.assert_array_equal(still.act(np.ones(4)), [[0, 5]] * 3)
    actions = population.act(np.random.default_rng(0).normal(0, 100, (50, 4)))
    assert actions[..., 0].min() >= -1
    assert 0 <= actions[..., 1].min() <= actions[..., 1].max() <= 10


def test_a_directory_without_policies_says_so(tmp_path: Path) -> None:
    with pytest.raises(DvdrlError, match="no policies"):
        policies.load(tmp_path)


@pytest.mark.parametrize("text", ["[]", "{}", '{"sizes": 1}', '{"sizes": ["x", 2], "members": 1}', "[" * 10_000])
def test_what_is_no_description_says_so(text: str, tmp_path: Path) -> None:
    (tmp_path / "policies.json").write_text(text)
    with pytest.raises(DvdrlError, match="no policies to load"):
        policies.load(tmp_path)


def test_a_changed_bit_is_found(population: Population, tmp_path: Path) -> None:
    policies.save(tmp_path, population)
    path = tmp_path / "member-1.safetensors"
    sound = path.read_bytes()
    path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    with pytest.raises(DvdrlError, match=r"no policies to load: .*member-1\.safetensors has changed since"):
        policies.load(tmp_path)


def test_files_that_do_not_fit_say_so(population: Population, tmp_path: Path) -> None:
    policies.save(tmp_path, population)
    about = json.loads((tmp_path / "policies.json").read_text())
    (tmp_path / "policies.json").write_text(json.dumps({**about, "sizes": [4, 8, 9, 2]}))
    with pytest.raises(DvdrlError, match=r"no policies to load: .*policies\.json has changed since it was written"):
        policies.load(tmp_path)
    del about["sha256"]
    (tmp_path / "policies.json").write_text(json.dumps({**about, "sizes": [4, 8, 9, 2]}))
    with pytest.raises(
        DvdrlError,
        match=r"expected weights\.1 finite, float32 of shape \(8, 9\); got float32 of shape \(8, 8\)",
    ):
        policies.load(tmp_path)
    (tmp_path / "policies.json").write_text(json.dumps(about))
    (tmp_path / "member-1.safetensors").write_bytes(b"torn")
    with pytest.raises(DvdrlError, match=r"no policies to load: .*member-1\.safetensors is damaged: ") as error:
        policies.load(tmp_path)
    assert "resume" not in str(error.value)  # no checkpoint is beside them


ROWS = np.float32([[0.1, -2.5], [1e-20, 3e30], [4, 5]])
PLACES = Places(np.float32([3, 2, 1.1]), ROWS, ("x", "</script>"), np.float32([0.7, 0.3]), np.float32([0.01, 0]))


@pytest.mark.parametrize("places", [None, PLACES])
def test_files_say_how_members_compare(places: Places | None, population: Population, tmp_path: Path) -> None:
    standing = Standing(np.float32([1, 0.1, 1 / 3]), np.array([True, False, False]), places)
    policies.save(tmp_path, replace(population, standing=standing))
    loaded = policies.load(tmp_path)
    for found in (loaded.standing, policies.load_standing(tmp_path)):
        assert found is not None
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(standing), strict=True):
            np.testing.assert_array_equal(one, other)  # every bit, as texts have enough digits
    assert loaded.distinct is not None
    assert loaded.distinct.dtype == bool
    np.testing.assert_array_equal(loaded.shares, standing.shares)


def test_files_of_earlier_versions_do_not_say_it(population: Population, tmp_path: Path) -> None:
    policies.save(tmp_path, population)
    assert "shares" not in json.loads((tmp_path / "policies.json").read_text())
    loaded = policies.load(tmp_path)
    assert (loaded.standing, loaded.distinct, loaded.shares) == (None, None, None)
    assert policies.load_standing(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shares", [1, 2]),
        ("shares", ["one", 0, 0]),
        ("distinct", [1, 0, 0]),
        ("distinct", None),
        ("coordinates", [1, 2]),
        ("coordinates", []),
        ("behaviours", [[1, 2]] * 2),
        ("behaviours", [[1, 2], [1], [1, 2]]),
        ("quality", [1e39, 0, 0]),
        ("noise", [float("nan"), 0]),
    ],
)
def test_a_comparison_that_is_none_is_refused(name: str, value: object, population: Population, tmp_path: Path) -> None:
    standing = Standing(np.ones(3, np.float32), np.ones(3, bool), PLACES)
    policies.save(tmp_path, replace(population, standing=standing))
    about = json.loads((tmp_path / "policies.json").read_text())
    del about["sha256"]
    about[name] = value
    (tmp_path / "policies.json").write_text(json.dumps({**about, "sha256": digest({}, json.dumps(about))}))
    for load in (policies.load, policies.load_standing):
        with pytest.raises(DvdrlError, match="no policies to load"):
            load(tmp_path)


def test_files_of_members_that_are_no_more_are_removed(population: Population, tmp_path: Path) -> None:
    policies.save(tmp_path, population)
    (tmp_path / "member-of-mine.safetensors").write_bytes(b"kept")
    fewer = replace(population, agents=Agents(*(array[:1] for array in population.agents)))
    policies.save(tmp_path, fewer)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "member-0.safetensors",
        "member-of-mine.safetensors",
        "policies.json",
    ]
    assert len(policies.load(tmp_path)) == 1
