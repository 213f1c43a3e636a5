"""Choices: the action with the largest output, and its distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.policies import MLP, Agents, Categorical, Policy, Population, head_for
from dvdrl.policies.heads import head_from
from dvdrl.runs import policies
from dvdrl.runs.trainer import make_continuous_policy
from dvdrl.views.export import export
from written_runs import write_still_run

SPACES = {
    "one": Discrete(3, start=-1),
    "several": MultiDiscrete([2, 4, 1], start=[0, 10, 7]),
    "switches": MultiBinary(3),
}


def test_the_largest_output_of_each_choice_is_taken() -> None:
    # By hand: parts (1, 2), (0, 5, 5, 4) and (9): of the equal fives the first one counts.
    outputs = np.array([[1.0, 2.0, 0.0, 5.0, 5.0, 4.0, 9.0]])
    assert head_for(SPACES["several"]).actions(outputs).tolist() == [[1, 11, 7]]
    assert head_for(SPACES["one"]).actions(np.array([[3.0, 1.0, 2.0], [1.0, 2.0, 3.0]])).tolist() == [-1, 1]
    assert head_for(SPACES["switches"]).actions(np.array([0.0, 1.0, 1.0, 0.0, 0.0, 0.0])).tolist() == [1, 0, 0]
    # Repeated first alternatives, of choices with fewer than others, never win against the first one itself.
    assert head_for(MultiDiscrete([1, 3])).actions(np.array([-1.0, -3.0, -2.0, -2.0])).tolist() == [0, 1]


def test_the_behaviour_is_the_distribution_of_each_choice() -> None:
    # Of logits log 1, log 3 it is 1/4, 3/4; of four equal ones 1/4 each, however large they are; of one, 1.
    outputs = np.array([0.0, np.log(3.0), 1e4, 1e4, 1e4, 1e4, -5.0])
    expected = [0.25, 0.75, 0.25, 0.25, 0.25, 0.25, 1.0]
    head = head_for(SPACES["several"])
    np.testing.assert_allclose(head.behaviour(outputs), expected, rtol=1e-6)
    np.testing.assert_allclose(head.behaviour(np.tile(outputs, (2, 3, 1))), np.tile(expected, (2, 3, 1)), rtol=1e-6)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_jax_numpy_and_the_space_agree(space: Space) -> None:
    head, rng = head_for(space), np.random.default_rng(0)
    outputs = rng.normal(size=(20, 5, head.num_outputs)).astype(np.float32)
    actions = head.actions(outputs)
    np.testing.assert_array_equal(jax.jit(head.actions)(jnp.asarray(outputs)), actions)
    np.testing.assert_allclose(jax.jit(head.behaviour)(jnp.asarray(outputs)), head.behaviour(outputs), rtol=1e-5)
    assert all(space.contains(action) for action in actions.reshape(100, *space.shape))
    # 100 draws reach each alternative: the share of any is at least 1/4, and 0.75 ** 100 is below 1e-12.
    assert len(np.unique(actions.reshape(100, -1), axis=0)) == np.prod(head.sizes)
    assert head_from(head.kind, {name: array.tolist() for name, array in head.tensors().items()}) == head


@pytest.mark.parametrize(
    ("sizes", "starts"), [([2, 0], [0, 0]), ([2, 2], [0]), ([2.5], [0]), ([], []), (float("nan"), 0), ([[2]], [[0]])]
)
def test_tensors_that_describe_no_choices_are_refused(sizes: object, starts: object) -> None:
    with pytest.raises(ValueError, match=r"numbers of alternatives of 1 or more|inhomogeneous"):
        Categorical.from_tensors({"action_sizes": sizes, "action_starts": starts})


def test_other_actions_have_no_head() -> None:
    with pytest.raises(DvdrlError, match="expected one of the kinds bounded, categorical"):
        head_for(Box(0, 9, (2,), np.int32))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_files_and_exports_choose_alike(space: Space, tmp_path: pytest.TempPathFactory) -> None:
    head = head_for(space)
    policy = Policy(MLP((4, 8, head.num_outputs), output_activation="none"), head)
    params = np.asarray(jax.vmap(policy.init)(jax.random.split(jax.random.key(1), 2)))
    ones = np.ones((2, 4), np.float32)
    population = Population("Elsewhere-v0", policy, Agents(params, 0 * ones, ones))
    write_still_run(tmp_path / "run", "Elsewhere-v0", (4, 2), 2)
    policies.save(tmp_path / "run" / "policies", population)
    loaded, obs = dvdrl.load(tmp_path / "run"), np.random.default_rng(3).normal(size=(40, 4)).astype(np.float32)
    assert loaded.policy == policy
    chosen = population.act(obs)
    assert chosen.shape == (2, 40, *space.shape)
    np.testing.assert_array_equal(loaded.act(obs), chosen)
    np.testing.assert_array_equal(loaded[1].act(obs[0]), chosen[1, 0])
    assert len(export(tmp_path / "run", "safetensors")) == 3
    together, *alone = export(tmp_path / "run", "onnx")
    (shared,) = onnxruntime.InferenceSession(together).run(None, {"observation": obs, "member": np.full(40, 1)})
    np.testing.assert_array_equal(shared, chosen[1])
    np.testing.assert_array_equal(onnxruntime.InferenceSession(alone[0]).run(None, {"observation": obs})[0], chosen[0])


def test_new_agents_do_not_all_do_the_same_everywhere() -> None:
    # As the parameters of CartPole's default policy. With `MLP.init`, most of them choose one side in all states.
    head = head_for(Discrete(2))
    policy = Policy(MLP((4, 32, 32, 2), output_activation="none"), head)
    obs, ones = np.random.default_rng(0).normal(size=(500, 4)), np.ones((20, 4))
    keys = jax.random.split(jax.random.key(0), 20)

    def decided(params: jax.Array) -> float:
        chosen = policy.act(Agents(np.asarray(params), 0 * ones, ones), np.broadcast_to(obs, (20, 500, 4)))
        return float(np.mean(np.abs(chosen.mean(axis=1) - 0.5) > 0.49))

    assert decided(jax.vmap(policy.init)(keys)) == 0
    assert decided(jax.vmap(policy.network.init)(keys)) > 0.5


def test_what_is_not_finite_is_no_choice() -> None:
    # The largest of NaN is an index like any other, so outputs are looked at and not actions.
    policy = Policy(MLP((1, 2), output_activation="none"), head_for(Discrete(2)))
    agents = Agents(np.array([[1.0, 2.0], [np.nan, 0.0]], np.float32), *np.array([[[0.0]] * 2, [[1.0]] * 2]))
    with pytest.raises(DvdrlError, match=r"actions of members \[1\] are not finite"):
        Population("Elsewhere-v0", policy, agents).act_each(np.ones((2, 1)))


def test_off_policy_learners_name_an_algorithm_for_choices() -> None:
    said = "td3 is for continuous actions, and CartPole-v1 has others; `dvdrl train niche-es` has policies for both"
    with pytest.raises(DvdrlError, match=said):
        make_continuous_policy(dvdrl.TD3(task="CartPole-v1"))
