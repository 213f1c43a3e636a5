"""The bridge to PyTorch: the same numbers and gradients as `dvdrl.diversity`, in double precision, for tensors."""

import importlib
import sys
from typing import Any

import jax
import numpy as np
import pytest

from dvdrl import diversity
from dvdrl.errors import DvdrlError

try:
    import torch
except ModuleNotFoundError:
    torch = None  # type: ignore[assignment]

KERNELS = diversity.KERNELS


@pytest.fixture(scope="module")
def bridge() -> Any:
    if torch is None:
        pytest.skip("PyTorch is large, so it is not installed unasked: make sb3")
    return importlib.import_module("dvdrl.torch")


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def tensor(*shape: int, **options: Any) -> Any:
    return torch.tensor(numbers(*shape), **options)


def similar() -> np.ndarray:
    x = numbers(4, 6)
    return np.exp(-0.5 * np.square(x[:, None] - x[None]).mean(axis=-1))


BOTH = {
    "gram": lambda d, x, K: d.gram(KERNELS["matern52"](0.7), x),
    "gram with the median": lambda d, x, K: d.gram(
        KERNELS["exponential"](d.median_length_scale(x)), x[:2], others=x[1:]
    ),
    "distances": lambda d, x, K: d.distances(x, x[1:]),
    "log_determinant": lambda d, x, K: d.log_determinant(K),
    "determinant": lambda d, x, K: d.determinant(K, shrinkage=0.1),
    "ordered_shares": lambda d, x, K: d.ordered_shares(K, x[:, 0]),
    "normalize": lambda d, x, K: d.normalize(x, "across-members"),
    "vendi_score": lambda d, x, K: d.vendi_score(K, order=2.0),
    "effective_rank": lambda d, x, K: d.effective_rank(x),
    "min_distance": lambda d, x, K: d.min_distance(x),
}


@pytest.mark.parametrize("name", BOTH)
def test_values_and_gradients_equal_those_of_jax(name, bridge):
    function = BOTH[name]
    with jax.enable_x64(True):
        expected, pull = jax.vjp(lambda x, K: function(diversity, x, K), numbers(4, 6), similar())
        weights = np.cos(np.arange(expected.size)).reshape(expected.shape)
        expected_gradients = pull(jax.numpy.asarray(weights))
    x, K = tensor(4, 6, requires_grad=True), torch.tensor(similar(), requires_grad=True)
    result = function(bridge, x, K)
    assert result.dtype == torch.float64
    np.testing.assert_allclose(result.detach().numpy(), expected, rtol=1e-12, atol=1e-14)
    (result * torch.tensor(weights)).sum().backward()
    for got, wanted in zip((x.grad, K.grad), expected_gradients, strict=True):
        np.testing.assert_allclose(0.0 if got is None else got.numpy(), wanted, rtol=1e-10, atol=1e-12)


def test_measure_has_the_same_names_and_numbers(bridge):
    with jax.enable_x64(True):
        expected = diversity.measure(similar(), numbers(4, 6))
    got = bridge.measure(torch.tensor(similar()), tensor(4, 6))
    assert got.keys() == expected.keys()
    for name, value in got.items():
        np.testing.assert_allclose(value.numpy(), expected[name], rtol=1e-12)


def test_gradients_of_gradients_agree_with_differences(bridge):
    def objective(x):
        return bridge.log_determinant(bridge.gram(KERNELS["squared-exponential"](0.5), x))

    x = tensor(3, 4, requires_grad=True)
    assert torch.autograd.gradcheck(objective, x)
    assert torch.autograd.gradgradcheck(objective, x)


def test_a_population_is_spread_by_gradient_steps(bridge):
    # Three linear policies that start close together. Adam is PyTorch's own, in single precision.
    weights = (0.01 * tensor(3, 2, 1).float()).requires_grad_()
    states = tensor(5, 2).float()
    optimizer = torch.optim.Adam([weights], lr=0.05)

    def diversity_now():
        behaviours = bridge.embed(lambda w, s: torch.tanh(s @ w), weights, states)
        assert behaviours.shape == (3, 5)
        return bridge.log_determinant(bridge.gram(KERNELS["squared-exponential"](0.5), behaviours))

    before = diversity_now()
    for _ in range(30):
        optimizer.zero_grad()
        (-diversity_now()).backward()
        optimizer.step()
    assert before.dtype == torch.float32
    assert diversity_now() > before + 5


def test_a_kernel_of_ones_own_is_a_function_of_jax(bridge):
    scale = {"now": 1.0}

    def kernel(x, y):
        return jax.numpy.exp(-scale["now"] * jax.numpy.sum((x - y) ** 2))

    for scale["now"] in (1.0, 2.0):  # its results may change
        x = torch.tensor([[0.0], [1.0]], dtype=torch.float64, requires_grad=True)
        bridge.gram(kernel, x)[0, 1].backward()
        # d/dx exp(-s (x - y)^2) = -2 s (x - y) exp(-s (x - y)^2), here with x - y = -1.
        np.testing.assert_allclose(x.grad[0, 0].item(), 2 * scale["now"] * np.exp(-scale["now"]), rtol=1e-12)


def test_states_are_chosen_as_by_jax(bridge):
    pool = tensor(20, 3).float()
    chosen = bridge.select_states(7, pool, 4, "uniform")
    expected = diversity.select_states(jax.random.key(7), pool.numpy(), 4, "uniform")
    np.testing.assert_array_equal(chosen.numpy(), expected)


def test_results_are_no_views_of_arguments(bridge):
    # Tensors can be written to; arrays of JAX, which share their memory, must not change.
    x = tensor(3, 4)
    same = bridge.normalize(x, "none")
    same += 1.0
    np.testing.assert_array_equal(x.numpy(), numbers(3, 4))


def test_a_tensor_that_is_changed_before_its_gradient_is_noticed(bridge):
    x = tensor(3, 4, requires_grad=True)
    y = 1.0 * x
    total = bridge.distances(y).sum()
    y += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


@pytest.mark.parametrize("each", [slice(None, None, 2), slice(1, None)])
def test_memory_in_any_order_is_read_right(each, bridge):
    x = tensor(6, 5).T[each]
    np.testing.assert_allclose(bridge.distances(x).numpy(), bridge.distances(x.clone()).numpy(), rtol=1e-14)


def test_errors_are_those_of_jax(bridge):
    with pytest.raises(ValueError, match=r"K: expected square matrices of shape \(..., M, M\), got shape \(2, 3\)"):
        bridge.log_determinant(torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"embeddings: expected finite numbers, got nan at index \(0, 1\)"):
        bridge.distances(torch.tensor([[0.0, float("nan")]]))
    with pytest.raises(TypeError, match="distances: expected a tensor; "):
        bridge.distances(3.0)


def test_lists_and_integers_stand_for_tensors(bridge):
    K = torch.tensor(similar())
    for quality in ([3, 1, 2, 0], torch.tensor([3, 1, 2, 0]), np.asarray([3, 1, 2, 0])):
        with jax.enable_x64(True):
            expected = diversity.ordered_shares(similar(), np.asarray([3, 1, 2, 0]))
        np.testing.assert_allclose(bridge.ordered_shares(K, quality).numpy(), expected, rtol=1e-12)


def test_every_function_of_diversity_has_its_bridge(bridge):
    assert set(diversity.__all__) - set(bridge.__all__) == {"k_dpp"}  # a rule of select_states, on a matrix


def test_without_pytorch_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "dvdrl.torch", raising=False)
    with pytest.raises(DvdrlError, match=r"PyTorch is not installed; pip install 'dvdrl\[torch\]'"):
        importlib.import_module("dvdrl.torch")
