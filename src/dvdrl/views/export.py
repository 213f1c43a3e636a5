"""Policies for use elsewhere: ONNX graphs of standard operators, or safetensors. Both include the state filter.

Before a file is written, its actions on random observations are compared with those of the JAX policy. They may differ
by 1e-5 of half the range of an action.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as from_bytes
from safetensors.numpy import save as to_bytes

from dvdrl import files
from dvdrl._version import __version__
from dvdrl.errors import DvdrlError, expect
from dvdrl.policies import Agents, Policy, Population
from dvdrl.runs.directory import Which, existing_run, population_of
from dvdrl.runs.policies import how_to_run, layer_tensors
from dvdrl.runs.trainer import make_envs
from dvdrl.tasks import registry
from dvdrl.views.rounding import exact_actions

Format = Literal["onnx", "safetensors"]
Tensors = dict[str, NDArray[np.float32]]
Act = Callable[[NDArray[np.float32], NDArray[np.int64]], NDArray[Any]]
"""(observations (n, obs), member of each (n,)) -> actions (n, ...)."""

_OPSET = 17
_ACTIVATIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "tanh": ("Tanh", np.tanh),
    "relu": ("Relu", lambda x: np.maximum(x, 0)),
    "none": ("Identity", lambda x: x),
}
"""Activation -> ONNX's operator and NumPy's function."""
_NUM_CHECKED = 64


def export(
    directory: Path | str,
    to: Format,
    out: Path | str | None = None,
    *,
    distinct: bool = False,
    which: Which = "last",
) -> list[Path]:
    """Write the population of a run as one file, and each member as a file of its own, into `out` or DIR/exports.

    Args:
        directory: the run directory.
        to: the format.
        out: where the files are written.
        distinct: export only the members that are good and different. Their files keep their numbers in the run; in the
            file of the population they are 0, 1 and so on, and its `numbers` are those in the run.
        which: which population of the run; by default, the latest.

    Returns:
        The files.

    Raises:
        DvdrlError: the directory is not a run, no member is distinct, a package for the format is not installed, the
            exported actions would differ from the run's, or the files cannot be written.
    """
    if to not in (formats := get_args(Format)):
        raise DvdrlError(f"to: expected one of {', '.join(formats)}, got {to!r}")
    if out is not None:
        expect("out", out, str, Path)
    run, directory = existing_run(directory), Path(directory)
    population = population_of(run, which)[1]
    numbers = list(range(len(population)))
    if distinct:
        if which == "best-each" and population.distinct is None:
            raise DvdrlError(
                "distinct: members that were best in different iterations were never compared with each other; choose"
                " another population with --which, or leave out --distinct"
            )
        numbers = _distinct(directory, population)
        population = replace(population, agents=Agents(*(array[numbers] for array in population.agents)), standing=None)
    if to == "onnx":
        missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
        if missing:
            raise DvdrlError(f"{' and '.join(missing)} not installed; pip install 'dvdrl[onnx]'")
    if (
        run.config.task in registry.TASKS and not run.config.wrappers
    ):  # others may not be on this machine, and making them runs their code
        with closing(make_envs(run.config)(1)) as envs:
            population.policy.refuse_other_spaces(envs.single_observation_space, envs.single_action_space)
    about = {
        "task": population.task,
        "algorithm": run.config.algorithm,
        "members": str(len(population)),
        "dvdrl": __version__,
    }
    encode, act = (_onnx, _run_onnx) if to == "onnx" else (_safetensors, _run_safetensors)
    if distinct:
        about["numbers"] = json.dumps(numbers)
    contents = {"population": encode(population, None, about)}
    for member, number in enumerate(numbers):
        contents[f"member-{number}"] = encode(population, member, {**about, "member": str(number)})
    for name, content in contents.items():
        _check(population, name, numbers, act(content, population.policy))
    inside, out = out is None, Path(out) if out is not None else directory / "exports"
    try:
        if inside:
            files.make_folder(out)
        else:
            out.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            files.write_atomically(out / f"{name}.{to}", content, within=directory if inside else out)
    except OSError as error:
        raise DvdrlError(f"cannot write to {out}: {error.strerror}; --out chooses another") from error
    return [out / f"{name}.{to}" for name in contents]


def _distinct(directory: Path, population: Population) -> list[int]:
    """The numbers of the members that are distinct."""
    if population.distinct is None:
        raise DvdrlError(
            f"{directory}: expected members of which it is known whether they are distinct; this run has made no"
            " iteration with a version of dvdrl that finds out; leave out --distinct to export all"
        )
    if not population.distinct.any():
        raise DvdrlError(
            f"{directory}: none of its {len(population)} members is good and different from the others; train longer,"
            " or leave out --distinct to export all"
        )
    return [int(number) for number in np.flatnonzero(population.distinct)]


def _tensors(population: Population, member: int | None) -> Tensors:
    """The filter and the layers of a policy, with a leading axis of members if `member` is None."""
    rows: Any = slice(None) if member is None else member
    return layer_tensors(population.policy, Agents(*(array[rows] for array in population.agents)))


def _activations(policy: Policy) -> list[tuple[str, Callable[[Any], Any]]]:
    """The activation of each layer."""
    network = policy.network
    names = [network.activation] * (len(network.sizes) - 2) + [network.output_activation]
    return [_ACTIVATIONS[name] for name in names]


def _safetensors(population: Population, member: int | None, about: Mapping[str, str]) -> bytes:
    policy = population.policy
    shape = {"sizes": json.dumps(policy.network.sizes), "activation": policy.network.activation}
    tensors = {**_tensors(population, member), **policy.head.tensors()}
    return to_bytes(tensors, {**about, **shape, "how_to_run": how_to_run(policy)})


def _run_safetensors(content: bytes, policy: Policy) -> Act:
    """Run the layers in NumPy alone, as a user would who follows `how_to_run`."""
    tensors = from_bytes(content)

    def act(obs: NDArray[np.float32], member: NDArray[np.int64]) -> NDArray[Any]:
        def of(name: str) -> Any:
            tensor = tensors[name]
            return tensor[member] if tensors["shift"].ndim == 2 else tensor[None]

        x = (obs - of("shift")) * of("scale")
        for index, (_, activation) in enumerate(_activations(policy)):
            x = (x[:, None] @ of(f"weights.{index}"))[:, 0]
            x = activation(x + of(f"bias.{index}") if f"bias.{index}" in tensors else x)
        return np.asarray(type(policy.head).from_tensors(tensors).actions(x))

    return act


def _onnx(population: Population, member: int | None, about: Mapping[str, str]) -> bytes:
    """The graph of one member, or of all. With all, the input `member` selects the policy for each observation."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    sizes, operations = population.policy.network.sizes, population.policy.head.operations()
    nodes: list[Any] = []
    tensors = _tensors(population, member)
    tensors |= {name: tensor for each in operations for name, tensor in each.inputs.items()}

    def node(operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        output = output or f"{operator.lower()}.{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def own(name: str) -> str:
        """A tensor of the policy that acts. With all members, it has a leading axis of observations."""
        return name if member is not None else node("Gather", name, "member")

    x = node("Mul", node("Sub", "observation", own("shift")), own("scale"))
    axis = numpy_helper.from_array(np.array([1], np.int64), "axis")
    for index, (activation, _) in enumerate(_activations(population.policy)):
        if member is not None:
            x = node("MatMul", x, f"weights.{index}")
        else:  # one row times one matrix for each observation
            x = node("Squeeze", node("MatMul", node("Unsqueeze", x, "axis"), own(f"weights.{index}")), "axis")
        if f"bias.{index}" in tensors:
            x = node("Add", x, own(f"bias.{index}"))
        x = node(activation, x)
    for number, each in enumerate(operations, start=1):
        output = "action" if number == len(operations) else None
        x = node(each.operator, x, *each.inputs, output=output, **each.attributes)
    action = np.asarray(population.policy.head.actions(np.zeros((1, sizes[-1]), np.float32)))

    shape = ["batch", *action.shape[1:]]
    inputs = [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", sizes[0]])]
    if member is None:
        inputs.append(helper.make_tensor_value_info("member", TensorProto.INT64, ["batch"]))
    graph = helper.make_graph(
        nodes,
        "population" if member is None else f"member-{about['member']}",
        inputs,
        [helper.make_tensor_value_info("action", helper.np_dtype_to_tensor_dtype(action.dtype), shape)],
        [numpy_helper.from_array(tensor, name) for name, tensor in tensors.items()]
        + ([axis] if member is None else []),
    )
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model_gen_version(graph, opset_imports=[opset], producer_name="dvdrl")
    helper.set_model_props(model, dict(about))
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def _run_onnx(content: bytes, policy: Policy) -> Act:  # noqa: ARG001
    from onnxruntime import InferenceSession

    session = InferenceSession(content, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}

    def act(obs: NDArray[np.float32], member: NDArray[np.int64]) -> NDArray[Any]:
        inputs = {"observation": obs, "member": member}
        (action,) = session.run(["action"], {name: inputs[name] for name in names})
        return np.asarray(action)

    return act


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused
def _check(population: Population, name: str, numbers: list[int], act: Act) -> None:
    """Compare with the JAX policy, on observations like those that the state filter has seen, and on distant ones.

    `numbers` are those that members have in the run.
    """
    rng = np.random.default_rng(0)
    everyone, policy = population.agents, population.policy
    members = range(len(population)) if name == "population" else [numbers.index(int(name.removeprefix("member-")))]
    for member in members:
        spread = rng.normal(size=(_NUM_CHECKED, policy.num_observed)) * np.geomspace(1, 30, _NUM_CHECKED)[:, None]
        scale = everyone.scale[member]
        obs = (everyone.shift[member] + spread / np.where(scale == 0, 1, scale)).astype(np.float32)
        agent = Agents(*(array[member] for array in everyone))
        exact, tolerance = exact_actions(policy, agent, obs)
        with jax.default_matmul_precision("highest"):  # a GPU would round more
            ours = np.asarray(policy.act(Agents(*map(jnp.asarray, agent)), jnp.asarray(obs)))
        for found in (ours, act(obs, np.full(_NUM_CHECKED, member))):
            error = policy.head.differences(found, exact)
            if not np.all(error <= tolerance):
                worst = np.unravel_index(np.argmax(np.nan_to_num(error - tolerance, nan=np.inf)), error.shape)
                raise DvdrlError(
                    f"{name}: an action of member {numbers[member]} differs from that of the run by"
                    f" {error[worst]:.1e} of half its range, of which rounding explains"
                    f" {tolerance[worst]:.1e}; nothing was written"
                )
