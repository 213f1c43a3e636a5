"""The policies of a run as files: one safetensors file each, and a JSON file that describes how to run them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from dvdrl.errors import DvdrlError
from dvdrl.policies import MLP, Agents, Policy, Population
from dvdrl.policies.heads import Bounded, head_from
from dvdrl.runs.checkpoint import digest, write_atomically

_NOT_THAT = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)
"""The exceptions that reading may raise if a file holds something else."""


def how_to_run(policy: Policy) -> str:
    """How to run a policy, in words and formulas, for readers who have only the tensors."""
    return (
        "x = (observation - shift) * scale; for each layer i: x = f(x @ weights.i + bias.i), where f is the activation,"
        f" in the last layer {policy.network.output_activation}, and a bias that is not there is 0;"
        f" {policy.head.how_to_run}"
    )


def layer_tensors(policy: Policy, agents: Agents) -> dict[str, NDArray[np.float32]]:
    """The filter and the layers, by the names that `how_to_run` uses."""
    tensors = {"shift": agents.shift, "scale": agents.scale}
    for index, (weights, bias) in enumerate(policy.network.unravel(agents.params)):
        tensors[f"weights.{index}"] = weights
        if bias is not None:
            tensors[f"bias.{index}"] = bias
    return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def save(directory: Path, population: Population) -> None:
    """Write policies.json, member-0.safetensors, member-1.safetensors and so on into the directory.

    This is fast, because it does not wait for the disk. It need not: the checkpoint holds everything that matters.
    """
    directory.mkdir(exist_ok=True)
    policy = population.policy
    for member in range(len(population)):
        arrays = layer_tensors(policy, Agents(*(array[member] for array in population.agents)))
        content = to_bytes(arrays, metadata={"sha256": digest(arrays)})
        write_atomically(_file(directory, member), content, durable=False)
    about: dict[str, Any] = {
        "task": population.task,
        "members": len(population),
        "sizes": policy.network.sizes,
        "activation": policy.network.activation,
        "output_bias": policy.network.output_bias,
        "actions": policy.head.kind,
        **{name: tensor.tolist() for name, tensor in policy.head.tensors().items()},
        "how_to_run": how_to_run(policy),
    }
    about["sha256"] = digest({}, json.dumps(about))
    write_atomically(directory / "policies.json", (json.dumps(about, indent=2) + "\n").encode(), durable=False)


def load(directory: Path) -> Population:
    """Load the population that `save` wrote.

    Raises:
        DvdrlError: a file is missing, holds something else, or has changed since it was written.
    """
    try:
        return _load(directory)
    except _NOT_THAT as error:
        advice = f"; `dvdrl resume {directory.parent}` writes them anew"
        if not (directory.parent / "checkpoints").is_dir():  # nothing to write them from
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
    head = head_from(about.get("actions", Bounded.kind), about)  # old files do not name the kind
    network = MLP(
        sizes,
        activation=activation,
        output_activation=head.output_activation,
        output_bias=about.get("output_bias", False),
    )
    members = [_read(_file(directory, member)) for member in range(about["members"])]
    params = np.stack([_ravel(member, len(sizes) - 1) for member in members])
    shift, scale = (np.stack([member[name] for member in members]) for name in ("shift", "scale"))
    agents = Agents(*(array.astype(np.float32) for array in (params, shift, scale)))
    shapes = [*(array.shape[1:] for array in agents), (head.num_outputs,)]
    expected = [(network.num_params,), (sizes[0],), (sizes[0],), (sizes[-1],)]
    if shapes != expected:
        raise ValueError(f"expected arrays of shapes {expected}, got {shapes}")
    return Population(str(about["task"]), Policy(network, head), agents)


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
