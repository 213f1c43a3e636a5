"""Perturbations: changes of a robot or its world, as data. `{"motor:hip_1": 0.0, "friction": 0.5}` is two of them.

`of_model` lists what can be changed in a MuJoCo model. Most perturbations change fields of MjModel, as an edit of the
MJCF would; these can differ between the simulations of one batch. Noise of sensors and delays are the engines' own.
"""

import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from dvdrl.errors import DvdrlError, expect

Perturb = Mapping[str, float]
"""Name of a perturbation -> its value."""
UNPERTURBED: Perturb = MappingProxyType({})
Fields = Callable[[str], NDArray[Any]]
"""The name of a field of MjModel, such as `body_mass` or `opt.gravity` -> its array, which may be written."""
Change = Callable[[Fields, float], None]
"""A function that changes the fields of a model by a value."""

_NEEDS = {
    "motor": "motors, or actions that are numbers around 0",
    "stuck": "a MuJoCo model with joints that motors drive",
    "friction": "a MuJoCo model with contacts",
    "gravity": "a MuJoCo model with gravity",
    "slope": "a MuJoCo model with gravity",
    "mass": "a MuJoCo model",
    "sensor-noise": "observations that are a vector of numbers",
}
"""What a task must have to be perturbed so."""


@dataclass(frozen=True)
class Perturbation:
    """Something about a task that can be changed."""

    name: str
    about: str
    """What the value is."""
    low: float
    high: float
    unchanged: float
    """The value with which nothing is changed, to the bit."""
    change: Change | None = None
    """How it changes a model; None if an engine does it."""
    whole: bool = False
    """Whether values are whole numbers."""

    @property
    def range(self) -> str:
        """The range of values, in words."""
        return f"{'a whole number' if self.whole else 'a number'} from {self.low:g} to {self.high:g}"


class Applied(NamedTuple):
    """The perturbations of n simulations."""

    fields: dict[str, NDArray[Any]]
    """Field of MjModel -> its values, (n, ...); only fields that differ from the model's."""
    noise: NDArray[np.float64]
    """The deviation of the noise of sensors, (n,)."""
    delay: NDArray[np.int64]
    """By how many control steps actions are late, (n,)."""


NOISE = Perturbation("sensor-noise", "deviation of noise on observed values", 0, 10, 0)
DELAY = Perturbation("delay", "steps by which actions are late", 0, 100, 0, whole=True)


def parsed(texts: Iterable[str]) -> dict[str, float]:
    """The perturbations in texts of the form NAME=VALUE.

    Raises:
        DvdrlError: a text has another form, or a name occurs twice.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            name = ""
        if not name:
            raise DvdrlError(f"perturb: expected NAME=VALUE, such as friction=0.5, got {reprlib.repr(text)}")
        if name in found:
            raise DvdrlError(f"perturb: {name} is given twice")
        found[name] = number
    return found


def described(perturb: Perturb) -> str:
    """Perturbations in words that follow the name of a task: nothing if nothing is changed."""
    return f" with {', '.join(f'{name}={value:g}' for name, value in perturb.items())}" if perturb else ""


def of_model(model: Any) -> dict[str, Perturbation]:
    """The perturbations of a compiled MuJoCo model, by name."""
    scalable = [i for i in range(model.nu) if _is_scalable(model, i)]
    each = [
        *motors({_motor(model, i): _weaken(model, i) for i in scalable}),
        *(_stuck(model, joint) for joint in _driven(model, scalable)),
        *_world(model),
        *_masses(model),
        NOISE,
        DELAY,
    ]
    return {perturbation.name: perturbation for perturbation in each}


def motors(changes: Mapping[str, Change | None]) -> list[Perturbation]:
    """The strength of all motors, and of each; given the names of motors, and how a strength changes a model."""

    def weaken(fields: Fields, strength: float) -> None:
        for each in changes.values():
            if each is not None:
                each(fields, strength)

    if not changes:
        return []
    return [
        Perturbation("motor", "strength of all motors", 0, 1, 1, weaken),
        *(Perturbation(f"motor:{name}", "strength of this motor", 0, 1, 1, each) for name, each in changes.items()),
    ]


def checked(task: str, known: Mapping[str, Perturbation], perturb: Perturb) -> dict[Perturbation, float]:
    """The perturbations that these names and values mean, without those that change nothing.

    Raises:
        DvdrlError: the task has no perturbation of this name, or not with this value.
    """
    found = {}
    for name, value in perturb.items():
        if name not in known:
            raise _unknown(task, known, name)
        kind = known[name]
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not kind.low <= value <= kind.high or (kind.whole and value != int(value)):
            raise DvdrlError(f"perturb: {name}: expected {kind.range}; got {value}")
        if value != kind.unchanged:
            found[kind] = float(value)
    return found


def applied(task: str, model: Any, perturb: Perturb | Sequence[Perturb], n: int) -> Applied:
    """The perturbations of n simulations of a model: the same in all, or one mapping for each.

    Raises:
        DvdrlError: as for `checked`, or there are not n mappings.
    """
    each = [perturb] * n if isinstance(perturb, Mapping) else list(perturb)
    if len(each) != n:
        raise DvdrlError(f"perturb: expected one mapping, or {n} of them; got {len(each)}")
    known = of_model(model)
    kinds: list[tuple[dict[Perturbation, float], _Copies]] = []
    places: dict[str, int] = {}
    which = np.zeros(n, int)
    for i, one in enumerate(each):
        expect("perturb", one, Mapping)
        key = str(dict(one))
        if key not in places:
            places[key] = len(kinds)
            values, copies = checked(task, known, one), _Copies(model)
            change(values, copies)
            kinds.append((values, copies))
        which[i] = places[key]
    changed = dict.fromkeys(name for _, copies in kinds for name in copies.arrays)
    own = np.array([[values.get(NOISE, 0.0), values.get(DELAY, 0.0)] for values, _ in kinds])[which]
    return Applied(
        {name: np.stack([copies(name) for _, copies in kinds])[which] for name in changed},
        own[:, 0],
        own[:, 1].astype(np.int64),
    )


def change(values: Mapping[Perturbation, float], fields: Fields) -> None:
    """Change the fields of a model."""
    for kind, value in values.items():
        if kind.change is not None:
            kind.change(fields, value)


class _Copies:
    """Copies of a model's fields, made when they are first asked for."""

    def __init__(self, model: Any):
        self._model = model
        self.arrays: dict[str, NDArray[Any]] = {}

    def __call__(self, name: str) -> NDArray[Any]:
        if name not in self.arrays:
            self.arrays[name] = attrgetter(name)(self._model).copy()
        return self.arrays[name]


def _weaken(model: Any, actuator: int) -> Change:
    # The force of a motor is its gear times its control. That of a servo also depends on its position.
    servo = model.actuator_biasprm[actuator, :3].any()
    scaled = ("gainprm", "biasprm", "forcerange") if servo else ("gear",)

    def weaken(fields: Fields, strength: float) -> None:
        for name in scaled:
            fields(f"actuator_{name}")[actuator] *= strength

    return weaken


def _stuck(model: Any, joint: int) -> Perturbation:
    dof, torque = model.jnt_dofadr[joint], _torque(model, joint)

    def rub(fields: Fields, share: float) -> None:
        fields("dof_frictionloss")[dof] += share * torque
        fields("dof_solimp")[dof, :2] = 0.9999  # the hardest: with MuJoCo's default a stuck joint creeps

    about = "friction in this joint; 1 stops its motor"
    return Perturbation(f"stuck:{_joint(model, joint)}", about, 0, 10, 0, rub)


def _world(model: Any) -> list[Perturbation]:
    def slip(fields: Fields, factor: float) -> None:
        fields("geom_friction")[...] *= factor
        if model.npair:
            fields("pair_friction")[...] *= factor

    def weigh(fields: Fields, factor: float) -> None:
        fields("opt.gravity")[...] *= factor

    def tilt(fields: Fields, degrees: float) -> None:
        gravity, angle = fields("opt.gravity"), math.radians(degrees)
        x, _, z = gravity.tolist()
        gravity[0] = x * math.cos(angle) + z * math.sin(angle)
        gravity[2] = z * math.cos(angle) - x * math.sin(angle)

    found = []
    if model.npair or (model.geom_contype.any() and model.geom_conaffinity.any()):
        found.append(Perturbation("friction", "factor of the friction of contacts", 0, 10, 1, slip))
    if model.opt.gravity.any():
        found.append(Perturbation("gravity", "factor of gravity", 0, 10, 1, weigh))
        found.append(Perturbation("slope", "degrees of the ground's rise along x", -60, 60, 0, tilt))
    return found


def _masses(model: Any) -> list[Perturbation]:
    """The mass of the whole robot, and of each body."""

    def load(which: Sequence[int]) -> Change:
        def loaded(fields: Fields, factor: float) -> None:
            fields("body_mass")[which] *= factor
            fields("body_inertia")[which] *= factor

        return loaded

    bodies = np.flatnonzero(model.body_mass > 0).tolist()
    named = {model.body(i).name or str(i): i for i in bodies}
    return [
        Perturbation("mass", "factor of all masses", 0.1, 10, 1, load(bodies)),
        *(Perturbation(f"mass:{name}", "factor of its mass", 0.1, 10, 1, load([i])) for name, i in named.items()),
    ]


def _is_scalable(model: Any, actuator: int) -> bool:
    """Whether the force of an actuator is its control, times a gain, plus a bias. That of a muscle is not."""
    gain, bias = mujoco.mjtGain(model.actuator_gaintype[actuator]), mujoco.mjtBias(model.actuator_biastype[actuator])
    fixed = gain in (mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtGain.mjGAIN_AFFINE)
    return fixed and bias in (mujoco.mjtBias.mjBIAS_NONE, mujoco.mjtBias.mjBIAS_AFFINE)


def _motor(model: Any, actuator: int) -> str:
    """The name of an actuator: its own, or that of the joint that it alone drives, or its number."""
    name = model.actuator(actuator).name
    joint = _joint_of(model, actuator)
    if not name and joint is not None and [_joint_of(model, i) for i in range(model.nu)].count(joint) == 1:
        name = model.joint(joint).name
    return name or str(actuator)


def _joint_of(model: Any, actuator: int) -> int | None:
    """The joint that an actuator drives."""
    drives = mujoco.mjtTrn(model.actuator_trntype[actuator])
    on_joints = (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT)
    return int(model.actuator_trnid[actuator, 0]) if drives in on_joints else None


def _driven(model: Any, actuators: Sequence[int]) -> list[int]:
    """The joints that turn about or slide along one axis, and that these actuators drive."""
    one = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
    joints = {joint for i in actuators if (joint := _joint_of(model, i)) is not None}
    return sorted(
        joint for joint in joints if mujoco.mjtJoint(model.jnt_type[joint]) in one and _torque(model, joint) > 0
    )


def _joint(model: Any, joint: int) -> str:
    return model.joint(joint).name or str(joint)


def _torque(model: Any, joint: int) -> float:
    """The largest force or torque of the actuators of a joint."""
    total = 0.0
    for i in range(model.nu):
        if _joint_of(model, i) == joint:
            ends = (
                model.actuator_forcerange[i]
                if model.actuator_forcelimited[i]
                else model.actuator_gainprm[i, 0] * model.actuator_ctrlrange[i]
            )
            total += float(np.abs(model.actuator_gear[i, 0] * ends).max())
    return total


def _unknown(task: str, known: Mapping[str, Perturbation], name: str) -> DvdrlError:
    kind = name.partition(":")[0]
    listed = f"`dvdrl tasks {task} --perturbations` lists what there is"
    if close := get_close_matches(name, known, n=3, cutoff=0.5):
        return DvdrlError(f"perturb: {task} has no perturbation {name!r}; did you mean {', '.join(close)}? {listed}")
    if any(each.partition(":")[0] == kind for each in known):
        return DvdrlError(f"perturb: {task} has no perturbation {name!r}; {listed}")
    if kind in _NEEDS:
        return DvdrlError(f"perturb: {task} cannot be perturbed by {kind}, which needs {_NEEDS[kind]}; {listed}")
    return DvdrlError(f"perturb: {task} has no perturbation {name!r}; {listed}")
