"""Policies that a run starts from: those of another run, or of its export as safetensors, with their filters."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dvdrl.errors import DvdrlError
from dvdrl.policies import MLP, Agents, Policy
from dvdrl.runs import policies, tensors
from dvdrl.runs.directory import existing_run, in_zoo, is_run
from dvdrl.runs.training import Training

PERTURBATION = 0.1
"""The deviation of the noise on a further copy of a policy, in units of the root mean square of its parameters."""
_NOISE = 5
"""The purpose of these random numbers; other purposes of a run's seed have other numbers."""


class Start(NamedTuple):
    """The policies that a run starts from."""

    where: Path
    about: Mapping[str, Any]
    """What policies must have in common to be exchanged: the sizes of their layers and so on, by name."""
    agents: Agents
    digest: str


def start(options: Training) -> Start | None:
    """What these options name with `from_`; None if nothing.

    Raises:
        DvdrlError: there are no such policies, or others than those that config.json knows.
    """
    if options.from_ is None:
        if options.from_digest is not None:
            raise DvdrlError("from: this run began with policies of another one; --from names that one")
        if options.from_members:
            raise DvdrlError("from_members: only with --from")
        return None
    where = in_zoo(options.from_) or Path(options.from_)
    about, agents = _of_run(where) if is_run(where) else _of_export(where)
    if options.from_members:
        wrong = [member for member in options.from_members if member >= len(agents.params)]
        if wrong:
            raise DvdrlError(f"from_members: {where} has {len(agents.params)} members, from 0 on, got {wrong[0]}")
        agents = Agents(*(array[list(options.from_members)] for array in agents))
    digest = tensors.digest(agents._asdict())
    if options.from_digest not in (None, digest):
        raise DvdrlError(f"from: {where} has other policies than those that the run began with")
    return Start(where, about, agents, digest)


def agents_for(start: Start, policy: Policy, members: int, seed: int) -> Agents:
    """The first members of a run: the policies one after the other, then copies of them in the same order, with noise.

    Raises:
        DvdrlError: the policies do not fit the run's, or there are more of them than members.
    """
    for name, expected in _common(policy).items():
        if (found := start.about[name]) != expected:
            raise DvdrlError(f"from: the policies in {start.where} have {name} {found}, those of this run {expected}")
    given = len(start.agents.params)
    if given > members:
        raise DvdrlError(
            f"from: {given} policies for {members} members; --from-members chooses, as in --from-members 0 2"
        )
    parents = np.arange(members) % given
    agents = Agents(*(array[parents] for array in start.agents))
    noise = np.random.default_rng((seed, _NOISE)).standard_normal(agents.params.shape, np.float32)
    deviation = PERTURBATION * np.sqrt(np.mean(np.square(agents.params), axis=1, keepdims=True))
    deviation[:given] = 0.0
    return agents._replace(params=(agents.params + deviation * noise).astype(np.float32))


def _common(policy: Policy) -> dict[str, Any]:
    network = policy.network
    return {
        "layers of sizes": list(network.sizes),
        "activation": network.activation,
        "output bias": network.output_bias,
        "actions": {name: tensor.tolist() for name, tensor in policy.head.tensors().items()},
    }


def _of_run(directory: Path) -> tuple[dict[str, Any], Agents]:
    population = existing_run(directory).population
    return _common(population.policy), population.agents


def _of_export(where: Path) -> tuple[dict[str, Any], Agents]:
    """The policies in a file that `dvdrl export --format safetensors` wrote, or in the directory of such files."""
    path = where / "population.safetensors" if where.is_dir() else where
    try:
        found, about = tensors.read(path)
        sizes, activation = json.loads(about["sizes"]), about["activation"]
        if not isinstance(sizes, list) or len(sizes) < 2 or not all(type(size) is int and size > 0 for size in sizes):
            raise ValueError(f"expected sizes of layers, got {sizes!r}")
        last = len(sizes) - 2
        network = MLP(tuple(sizes), output_bias=f"bias.{last}" in found)
        layers = [f"{kind}.{layer}" for layer in range(last + 1) for kind in ("weights", "bias")]
        names = [name for name in layers if name != f"bias.{last}" or network.output_bias]
        lead = found["shift"].shape[:-1]
        params = np.concatenate([found[name].reshape(*lead, -1) for name in names], axis=-1)
        agents = Agents(*(_several(array, lead) for array in (params, found["shift"], found["scale"])))
        shapes = [(len(agents.params), size) for size in (network.num_params, sizes[0], sizes[0])]
        if [array.shape for array in agents] != shapes or not all(np.isfinite(array).all() for array in agents):
            raise ValueError("expected policies that are finite and of one shape")
    except FileNotFoundError as error:
        raise DvdrlError(
            f"from: {where} is no run, and no file or directory of `dvdrl export --format safetensors`"
        ) from error
    except policies.NOT_THAT as error:
        raise DvdrlError(f"from: {path}: expected exported policies, got {type(error).__name__}: {error}") from error
    used = {"shift", "scale", *names}
    actions = {name: tensor.tolist() for name, tensor in found.items() if name not in used}
    common = {
        "layers of sizes": sizes,
        "activation": activation,
        "output bias": network.output_bias,
        "actions": actions,
    }
    return common, agents


def _several(array: NDArray[Any], lead: Sequence[int]) -> NDArray[np.float32]:
    """With a leading axis of members, which the file of a single one does not have."""
    return np.asarray(array if lead else array[None], np.float32)
