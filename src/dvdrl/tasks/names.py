"""The names of coordinates, by the joints of a model, and of observed values of which nothing is known."""

from typing import Any

import mujoco

_AXES = ("x", "y", "z")
_ORIENTATION = tuple(f"{part} orientation" for part in ("w", *_AXES))
_SPIN = tuple(f"{axis} angular velocity" for axis in _AXES)
_COORDINATES = {
    mujoco.mjtJoint.mjJNT_SLIDE: (("position",), ("velocity",)),
    mujoco.mjtJoint.mjJNT_HINGE: (("position",), ("velocity",)),
    mujoco.mjtJoint.mjJNT_BALL: (_ORIENTATION, _SPIN),
    mujoco.mjtJoint.mjJNT_FREE: (
        (*(f"{axis} position" for axis in _AXES), *_ORIENTATION),
        (*(f"{axis} velocity" for axis in _AXES), *_SPIN),
    ),
}
"""What positions and what velocities a joint has, by its type."""


def coordinate_names(model: Any) -> list[str]:
    """The names of a model's positions and velocities, by their joints: qpos, then qvel."""
    names = [model.joint(number).name or f"joint {number}" for number in range(model.njnt)]
    kinds = [_COORDINATES[mujoco.mjtJoint(kind)] for kind in model.jnt_type]
    return [
        f"{name} {coordinate}"
        for which in (0, 1)
        for name, coordinates in zip(names, kinds, strict=True)
        for coordinate in coordinates[which]
    ]


def generic_name(place: int) -> str:
    """The name of an observed value of which nothing else is known."""
    return f"observation {place}"
