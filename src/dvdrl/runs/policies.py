"""The policies of a run, for use outside of it: a safetensors file each, and a JSON that says how to run them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from dvdrl.errors import DvdrlError
from dvdrl.networks import MLP
from dvdrl.runs.checkpoint import digest, write_atomically

HOW_TO_RUN = (
    "x = (observation - shift) * scale; for each layer i: x = f(x @ weights.i + bias.i), where f is the activation, in"
    " the last layer tanh, and a bias that is not there is 0;"
    " action = (action_high + action_low) / 2 + x * (action_high - action_low) / 2"
)


_NOT_THAT = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""What reading a file that holds something else may raise."""


@dataclass(frozen=True)
class Population:
    """M policies; `population[i]` is one of them, a `Policy`, which acts without the leading axis."""

    task: str
    policy: MLP
    params: NDArray[np.float32]
    shift: NDArray[np.float32]
    scale: NDArray[np.float32]
    action_low: NDArray[np.float32]
    action_high: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.params)

    def __getitem__(self, member: int) -> "Policy":
        if not -len(self) <= member < len(self):
            raise IndexError(f"member: expected one of {len(self)}, got {member}")
        return Policy(self, range(len(self))[member])

    def act(self, obs: ArrayLike) -> NDArray[np.float32]:
        """What every member does on the observations: (..., obs) -> (M, ..., act)."""
        x = np.asarray(obs)
        if x.shape[-1:] != self.shift.shape[1:]:
            raise ValueError(f"obs: expected shape (..., {self.shift.shape[1]}), got {x.shape}")
        rows = x.reshape(1, -1, x.shape[-1])
        inputs = ((rows - self.shift[:, None]) * self.scale[:, None]).astype(np.float32)
        centre, half_range = (self.action_high + self.action_low) / 2, (self.action_high - self.action_low) / 2
        actions: NDArray[np.float32] = centre + half_range * self.policy.apply(self.params, inputs)
        shaped: NDArray[np.float32] = actions.reshape(len(self), *x.shape[:-1], -1)
        return shaped


@dataclass(frozen=True)
class Policy:
    """One member."""

    population: Population
    member: int

    def act(self, obs: ArrayLike) -> NDArray[np.float32]:
        """What it does on the observations: (..., obs) -> (..., act)."""
        everyone, one = self.population, slice(self.member, self.member + 1)
        alone = replace(everyone, params=everyone.params[one], shift=everyone.shift[one], scale=everyone.scale[one])
        actions: NDArray[np.float32] = alone.act(obs)[0]
        return actions


def save(directory: Path, population: Population) -> None:
    """Write policies.json and member-0.safetensors, member-1.safetensors, .. into the directory.

    In an instant, without waiting for the disk: what matters of them is in the checkpoint too.
    """
    directory.mkdir(exist_ok=True)
    for member in range(len(population)):
        tensors = {"shift": population.shift[member], "scale": population.scale[member]}
        for index, (weights, bias) in enumerate(population.policy.unravel(population.params[member])):
            tensors[f"weights.{index}"] = weights
            if bias is not None:
                tensors[f"bias.{index}"] = bias
        arrays = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
        content = to_bytes(arrays, metadata={"sha256": digest(arrays)})
        write_atomically(_file(directory, member), content, durable=False)
    about: dict[str, Any] = {
        "task": population.task,
        "members": len(population),
        "sizes": population.policy.sizes,
        "activation": population.policy.activation,
        "output_bias": population.policy.output_bias,
        "action_low": population.action_low.tolist(),
        "action_high": population.action_high.tolist(),
        "how_to_run": HOW_TO_RUN,
    }
    about["sha256"] = digest({}, json.dumps(about))
    write_atomically(directory / "policies.json", (json.dumps(about, indent=2) + "\n").encode(), durable=False)


def load(directory: Path) -> Population:
    """What `save` wrote.

    Raises:
        DvdrlError: there is nothing, or something else, or it has changed since.
    """
    try:
        return _load(directory)
    except _NOT_THAT as error:
        advice = f"; `dvdrl resume {directory.parent}` writes them anew"
        if not (directory.parent / "checkpoints").is_dir():  # there is nothing to write them from
            advice = ""
        raise DvdrlError(f"{directory}: no policies to load: {type(error).__name__}: {error}{advice}") from error


def _load(directory: Path) -> Population:
    about = json.loads((directory / "policies.json").read_text())
    # Format 1 had no digests.
    if (said := about.pop("sha256", None)) is not None and said != digest({}, json.dumps(about)):
        raise ValueError("policies.json has changed since it was written")
    sizes, activation = tuple(about["sizes"]), about.get("activation", "tanh")
    if activation not in ("tanh", "relu") or not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"expected layers of tanh or relu, got {activation!r} of sizes {sizes}")
    policy = MLP(sizes, activation=activation, output_bias=about.get("output_bias", False))
    members = [_read(_file(directory, member)) for member in range(about["members"])]
    params = np.stack([_ravel(member, len(policy.sizes) - 1) for member in members])
    shift, scale = (np.stack([member[name] for member in members]) for name in ("shift", "scale"))
    low, high = (np.asarray(about[name], np.float32) for name in ("action_low", "action_high"))
    shapes = [params.shape[1:], shift.shape[1:], scale.shape[1:], low.shape, high.shape]
    expected = [(size,) for size in (policy.num_params, *[policy.sizes[0]] * 2, *[policy.sizes[-1]] * 2)]
    if shapes != expected:
        raise ValueError(f"expected arrays of shapes {expected}, got {shapes}")
    params, shift, scale = (array.astype(np.float32) for array in (params, shift, scale))
    return Population(str(about["task"]), policy, params, shift, scale, low, high)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with safe_open(path, framework="numpy") as file:
            said = (file.metadata() or {}).get("sha256")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except SafetensorError as error:
        raise ValueError(f"{path.name} is damaged: {error}") from error
    if said is not None and said != digest(tensors):
        raise ValueError(f"{path.name} has changed since it was written")
    return tensors


def _file(directory: Path, member: int) -> Path:
    return directory / f"member-{member}.safetensors"


def _ravel(tensors: dict[str, Any], num_layers: int) -> NDArray[np.float32]:
    names: Sequence[str] = [f"{kind}.{index}" for index in range(num_layers) for kind in ("weights", "bias")]
    return np.concatenate([tensors[name].ravel() for name in names if name in tensors])
