"""The policies of a run as files: one safetensors file each, and a JSON file that describes how to run them."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as to_bytes

from dvdrl import files
from dvdrl.errors import DvdrlError, quoted
from dvdrl.policies import MLP, Agents, Places, Policy, Population, Standing
from dvdrl.policies.heads import Bounded, head_from
from dvdrl.runs import tensors
from dvdrl.runs.metrics import plain
from dvdrl.runs.tensors import digest

NOT_THAT = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)
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
    arrays = {"shift": agents.shift, "scale": agents.scale}
    for index, (weights, bias) in enumerate(policy.network.unravel(agents.params)):
        arrays[f"weights.{index}"] = weights
        if bias is not None:
            arrays[f"bias.{index}"] = bias
    return {name: np.ascontiguousarray(tensor) for name, tensor in arrays.items()}


def save(directory: Path, population: Population) -> None:
    """Write policies.json, member-0.safetensors, member-1.safetensors and so on into the directory.

    Files of members beyond the last one, from an earlier iteration that had more, are removed.
    This is fast, because it does not wait for the disk. It need not: the checkpoint holds everything that matters.
    """
    files.make_folder(directory)
    policy = population.policy
    for member in range(len(population)):
        arrays = layer_tensors(policy, Agents(*(array[member] for array in population.agents)))
        content = to_bytes(arrays, metadata={"sha256": digest(arrays)})
        files.write_atomically(_file(directory, member), content, durable=False, within=directory.parent)
    about = described(population)
    about["sha256"] = digest({}, json.dumps(about))
    content = (json.dumps(about, indent=2) + "\n").encode()
    files.write_atomically(directory / "policies.json", content, durable=False, within=directory.parent)
    for path in directory.glob("member-*.safetensors"):
        if (number := path.stem.removeprefix("member-")).isdecimal() and int(number) >= len(population):
            files.remove(path, within=directory.parent)


def described(population: Population) -> dict[str, Any]:
    """All about a population but its arrays, as JSON values: the content of policies.json."""
    policy = population.policy
    return {
        "task": population.task,
        "members": len(population),
        "sizes": policy.network.sizes,
        "activation": policy.network.activation,
        "output_bias": policy.network.output_bias,
        "actions": policy.head.kind,
        **{name: tensor.tolist() for name, tensor in policy.head.tensors().items()},
        "how_to_run": how_to_run(policy),
        **(_described(population.standing) if population.standing is not None else {}),
    }


def load(directory: Path) -> Population:
    """Load the population that `save` wrote.

    Raises:
        DvdrlError: a file is missing, holds something else, or has changed since it was written.
    """
    with _refusing(directory):
        return _load(directory)


def load_standing(directory: Path) -> Standing | None:
    """How the members that `save` wrote compare, from policies.json alone; None if it is not known.

    Raises:
        DvdrlError: as for `load`.
    """
    with _refusing(directory):
        return _standing(_read_about(directory))


@contextlib.contextmanager
def _refusing(directory: Path) -> Iterator[None]:
    """Turn what goes wrong while the files are read into one error, which says what to do."""
    try:
        yield
    except NOT_THAT as error:
        advice = f"; `dvdrl resume {quoted(directory.parent)}` writes them anew"
        if not (directory.parent / "checkpoints").is_dir():  # nothing to write them from
            advice = ""
        raise DvdrlError(f"{directory}: no policies to load: {type(error).__name__}: {error}{advice}") from error


def _read_about(directory: Path) -> Any:
    """The content of policies.json."""
    about = files.read_json(directory / "policies.json", within=directory.parent)
    # Format 1 had no digests.
    if (said := about.pop("sha256", None)) is not None and said != digest({}, json.dumps(about)):
        raise ValueError("policies.json has changed since it was written")
    return about


def described_by(about: Any, agents: Agents) -> Population:
    """The population that `described` described, with these agents.

    Raises:
        Exception: one of `NOT_THAT`, if something else was described.
    """
    policy = _policy(about)
    members, d = about["members"], policy.network.num_params
    shapes = Agents((members, d), (members, policy.num_observed), (members, policy.num_observed))
    for name, array, shape in zip(Agents._fields, agents, shapes, strict=True):
        if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError(f"expected {name} finite, float32 of shape {shape}; got {array.dtype} of {array.shape}")
    return Population(str(about["task"]), policy, agents, _standing(about))


def _load(directory: Path) -> Population:
    about = _read_about(directory)
    policy = _policy(about)
    network = policy.network
    members = [_read(_file(directory, member), network) for member in range(about["members"])]
    params = np.stack([_ravel(member, len(network.sizes) - 1) for member in members])
    shift, scale = (np.stack([member[name] for member in members]) for name in ("shift", "scale"))
    return Population(str(about["task"]), policy, Agents(params, shift, scale), _standing(about))


def _policy(about: Any) -> Policy:
    """The policy in policies.json."""
    sizes, activation = tuple(about["sizes"]), about.get("activation", "tanh")
    if activation not in ("tanh", "relu") or not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"expected layers of tanh or relu, got {activation!r} of sizes {sizes}")
    with np.errstate(over="raise"):  # a bound that single precision does not hold
        head = head_from(about.get("actions", Bounded.kind), about)  # old files do not name the kind
    if not all(np.isfinite(tensor).all() for tensor in head.tensors().values()):
        raise ValueError(f"expected actions that are finite, got {head}")
    network = MLP(
        sizes,
        activation=activation,
        output_activation=head.output_activation,
        output_bias=about.get("output_bias", False),
    )
    if head.num_outputs != sizes[-1]:
        raise ValueError(f"expected {sizes[-1]} actions, got bounds of {head.num_outputs}")
    return Policy(network, head)


def _described(standing: Standing) -> dict[str, Any]:
    """A standing as JSON values."""
    described = {**plain({"shares": standing.shares}), "distinct": standing.distinct.tolist()}
    if (places := standing.places) is None:
        return described
    return {
        **described,
        **plain({"quality": places.quality}),
        "behaviours": [plain({"row": row})["row"] for row in places.behaviours],
        "coordinates": list(places.coordinates),
        **plain({"relevance": places.relevance, "noise": places.noise}),
    }


def _standing(about: Any) -> Standing | None:
    """The standing in policies.json. Files of earlier versions have none."""
    members = about["members"]
    if "shares" not in about:
        return None
    distinct = about["distinct"]
    if not isinstance(distinct, list) or [*map(type, distinct)] != [bool] * members:
        raise ValueError(f"distinct: expected {members} times true or false")
    shares = _numbers(about, "shares", members)
    if "coordinates" not in about:
        return Standing(shares, np.array(distinct))
    names = about["coordinates"]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError("coordinates: expected names")
    places = Places(
        _numbers(about, "quality", members),
        _numbers(about, "behaviours", members, len(names)),
        tuple(names),
        _numbers(about, "relevance", len(names)),
        _numbers(about, "noise", len(names)),
    )
    return Standing(shares, np.array(distinct), places)


def _numbers(about: Any, name: str, *shape: int) -> NDArray[np.float32]:
    with np.errstate(over="raise"):
        numbers = np.asarray(about[name], np.float32)
    if numbers.shape != shape or not np.isfinite(numbers).all():
        raise ValueError(f"{name}: expected finite numbers of shape {shape}, got shape {numbers.shape}")
    return numbers


def _read(path: Path, network: MLP) -> dict[str, NDArray[np.float32]]:
    try:
        found, about = tensors.read(path)
    except ValueError as error:
        raise ValueError(f"{path.name} is damaged: {error}") from error
    said = about.get("sha256")  # format 1 had none
    if said is not None and said != digest(found):
        raise ValueError(f"{path.name} has changed since it was written")
    for name, shape in _shapes(network).items():
        if found[name].shape != shape or found[name].dtype != np.float32 or not np.isfinite(found[name]).all():
            given = f"{found[name].dtype} of shape {found[name].shape}"
            raise ValueError(f"{path.name}: expected {name} finite, float32 of shape {shape}; got {given}")
    return found


def _shapes(network: MLP) -> dict[str, tuple[int, ...]]:
    """Of each array of a member, by the names that `how_to_run` has."""
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("shift", "scale"), network.sizes[:1])
    last = len(network.sizes) - 2
    for layer, (num_in, num_out) in enumerate(pairwise(network.sizes)):
        shapes[f"weights.{layer}"] = (num_in, num_out)
        if layer < last or network.output_bias:
            shapes[f"bias.{layer}"] = (num_out,)
    return shapes


def _file(directory: Path, member: int) -> Path:
    return directory / f"member-{member}.safetensors"


def _ravel(arrays: dict[str, Any], num_layers: int) -> NDArray[np.float32]:
    names: Sequence[str] = [f"{kind}.{index}" for index in range(num_layers) for kind in ("weights", "bias")]
    return np.concatenate([arrays[name].ravel() for name in names if name in arrays])
