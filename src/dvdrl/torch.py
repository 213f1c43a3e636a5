"""`dvdrl.diversity` for PyTorch: the same functions and names, for tensors, with gradients.

    from dvdrl.torch import KERNELS, gram, log_determinant

    loss = -log_determinant(gram(KERNELS["squared-exponential"](0.5), embeddings))
    loss.backward()

JAX computes values and gradients. Arguments are what the functions of `dvdrl.diversity` take, with tensors in place of
arrays, and so are errors. Results are on the device of the first tensor, in double precision if a tensor is.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from dvdrl import diversity
from dvdrl.diversity import KERNELS, STATE_RULES, Kernel, Normalization, StateRule, least_shrinkage
from dvdrl.errors import DvdrlError

try:
    import torch
except ModuleNotFoundError as _error:
    raise DvdrlError("PyTorch is not installed; pip install 'dvdrl[torch]'") from _error

__all__ = [
    "KERNELS",
    "STATE_RULES",
    "Kernel",
    "Normalization",
    "StateRule",
    "determinant",
    "distances",
    "effective_rank",
    "embed",
    "gram",
    "least_shrinkage",
    "log_determinant",
    "mean_distance",
    "measure",
    "median_length_scale",
    "min_distance",
    "normalize",
    "ordered_shares",
    "select_states",
    "vendi_score",
]


_TENSOR = object()
"""Stands for a tensor in `_Call.constants`."""


@dataclasses.dataclass(frozen=True)
class _Call:
    """A call of a function of JAX, without its tensors. It is hashable, so that its gradient is compiled once."""

    function: Callable[..., Any]
    form: Any
    """How the arguments are nested."""
    constants: tuple[Any, ...]

    def of(self, *arrays: jax.Array) -> Any:
        """The result with these in the places of the tensors."""
        rest = iter(arrays)
        args, kwargs = jax.tree.unflatten(
            self.form, [next(rest) if each is _TENSOR else each for each in self.constants]
        )
        return self.function(*args, **kwargs)

    @property
    def has_own_kernel(self) -> bool:
        """A kernel of the user's own may depend on more than its arguments, so what is compiled is not kept."""
        return any(each.has_own_kernel if isinstance(each, _Call) else callable(each) for each in self.constants)


def _pull(call: _Call, wanted: tuple[int, ...], arrays: Any, cotangents: Any) -> Any:
    """The gradient with respect to the arrays at the places that are wanted."""

    def function(*changing: jax.Array) -> list[jax.Array]:
        every = list(arrays)
        for place, array in zip(wanted, changing, strict=True):
            every[place] = array
        return jax.tree.leaves(call.of(*every))

    return jax.vjp(function, *(arrays[place] for place in wanted))[1](list(cotangents))


_compiled_pull = jax.jit(_pull, static_argnums=(0, 1))


class _Function(torch.autograd.Function):
    """Evaluates a call. Its gradient is another call, and so has a gradient in turn."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: torch.Tensor) -> Any:
        ctx.call = call
        ctx.save_for_backward(*tensors)  # PyTorch then notices if one of them is changed before the gradient is taken
        with jax.enable_x64(any(tensor.dtype == torch.float64 for tensor in tensors)):
            results, form = jax.tree.flatten(jax.block_until_ready(call.of(*map(_to_jax, tensors))))
            # Copied, because a result may be an argument unchanged, and tensors can be written to.
            return form, *(torch.from_dlpack(result).clone().to(tensors[0].device) for result in results)

    @staticmethod
    def backward(ctx: Any, _: None, *cotangents: torch.Tensor) -> Any:
        wanted = tuple(place for place, needed in enumerate(ctx.needs_input_grad[1:]) if needed)
        pull = _pull if ctx.call.has_own_kernel else _compiled_pull
        gradients = dict(zip(wanted, _apply(pull, ctx.call, wanted, ctx.saved_tensors, cotangents), strict=True))
        return None, *(gradients.get(place) for place in range(len(ctx.saved_tensors)))


def _to_jax(tensor: torch.Tensor) -> jax.Array:
    """The same memory if the tensor is on the host, else a copy."""
    array: jax.Array = jax.dlpack.from_dlpack(tensor.detach().cpu().contiguous())
    return array


def _apply(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The function's result, with tensors in place of arrays."""
    leaves, form = jax.tree.flatten((args, kwargs), is_leaf=lambda each: isinstance(each, list))
    leaves = [torch.as_tensor(leaf) if isinstance(leaf, list | np.ndarray) else leaf for leaf in leaves]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise TypeError(f"{function.__name__}: expected a tensor; dvdrl.diversity has this function for other arrays")
    call = _Call(function, form, tuple(_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves))
    form, *results = _Function.apply(call, *tensors)
    return jax.tree.unflatten(form, results)


def _bridge(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _apply(function, *args, **kwargs)

    call.__annotations__ = {}  # they name arrays of JAX
    return call


determinant = _bridge(diversity.determinant)
distances = _bridge(diversity.distances)
effective_rank = _bridge(diversity.effective_rank)
gram = _bridge(diversity.gram)
log_determinant = _bridge(diversity.log_determinant)
mean_distance = _bridge(diversity.mean_distance)
measure = _bridge(diversity.measure)
median_length_scale = torch.no_grad()(_bridge(diversity.median_length_scale))  # a constant to differentiation
min_distance = _bridge(diversity.min_distance)
normalize = _bridge(diversity.normalize)
ordered_shares = _bridge(diversity.ordered_shares)
vendi_score = _bridge(diversity.vendi_score)


def embed(
    policy: Callable[[Any, torch.Tensor], torch.Tensor],
    params: Any,
    states: torch.Tensor,
    normalization: Normalization = "none",
) -> torch.Tensor:
    """Actions of M members on n states, flattened: (M, n * |a|); see `dvdrl.diversity.embed`.

    Args:
        policy: `policy(params, states) -> actions` for one member, such as a `torch.func.functional_call`.
        params: the parameters of the population, as `torch.func.stack_module_state` returns them.
        states: the states on which behaviours are compared, (n, obs).
        normalization: see `normalize`.
    """
    actions = torch.func.vmap(policy, in_dims=(0, None))(params, states)
    embeddings: torch.Tensor = normalize(actions.flatten(1), normalization)
    return embeddings


def select_states(seed: int, pool: torch.Tensor, num_states: int, rule: StateRule = "uniform") -> torch.Tensor:
    """n states of the pool, chosen without replacement: (N, obs) -> (n, obs); see `dvdrl.diversity.select_states`."""
    chosen: torch.Tensor = _apply(_selected, seed, pool, num_states, rule)
    return chosen


def _selected(seed: int, pool: jax.Array, num_states: int, rule: StateRule) -> jax.Array:
    return diversity.select_states(jax.random.key(seed), pool, num_states, rule)
