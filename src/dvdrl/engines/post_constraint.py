"""Contact forces on bodies (cfrc_ext), computed inside MuJoCo's own step, with the same values as in Gymnasium.

Gymnasium calls mj_rnePostConstraint after the last mj_step of a control step. A batch has no such call. A sensor cannot
replace it: with RK4, sensors are computed in the first of four stages, and Gymnasium reads the forces of the last.

MuJoCo runs a plugin's `advance(model, data, instance)` at the end of each step. mj_rnePostConstraint(model, data) has
the same leading arguments, so it is registered as `advance` directly. It runs in C on the batch's threads after every
mj_step; only the result of the last one is read.

MuJoCo's Python package can only load plugins that are compiled libraries, so this calls the C function that registers
one. The layout of its argument is checked against the C header that comes with the package.
"""

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

import mujoco

from dvdrl.errors import DvdrlError

FIELDS = frozenset({"cacc", "cfrc_int", "cfrc_ext"})
"""The fields of MjData that mj_rnePostConstraint computes; a reset leaves them zero."""

_NAME = "dvdrl.post_constraint"
_NumState = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)


class _Plugin(ctypes.Structure):
    """mjpPlugin of mjplugin.h. Fields that are not set are null, which MuJoCo treats as absent."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("nattribute", ctypes.c_int),
        ("attributes", ctypes.c_void_p),
        ("capabilityflags", ctypes.c_int),
        ("needstage", ctypes.c_int),
        ("nstate", _NumState),
        *(
            (callback, ctypes.c_void_p)
            for callback in (
                *("nsensordata", "init", "destroy", "copy", "reset", "compute", "advance", "visualize"),
                *("actuator_act_dot", "sdf_distance", "sdf_gradient", "sdf_staticdistance"),
                *("sdf_attribute", "sdf_aabb"),
            )
        ),
    )


def refuse_another_layout(header: str, version: str) -> None:
    """Refuse a MuJoCo whose mjplugin.h declares other members of mjpPlugin, or another `advance`.

    Raises:
        DvdrlError: it does, or there is no declaration.
    """
    struct = re.search(r"typedef struct mjpPlugin_ \{(.*?)\} mjpPlugin;", header, re.DOTALL)
    members = re.sub(r"//.*", "", struct[1] if struct else "").split(";")
    declared = {_member_name(member): " ".join(member.split()) for member in members if member.strip()}
    # All members but the integers are pointers, which have one size.
    integers = [name for name, member in declared.items() if member == f"int {name}"]
    if (
        list(declared) != [field[0] for field in _Plugin._fields_]
        or integers != [field[0] for field in _Plugin._fields_ if field[1] is ctypes.c_int]
        or declared["advance"] != "void (*advance)(const mjModel* m, mjData* d, int instance)"
    ):
        raise DvdrlError(
            f"contact forces cannot be computed with MuJoCo {version}: its mjplugin.h does not declare mjpPlugin as"
            " that of MuJoCo 4.0, for which this dvdrl was written; pip install 'mujoco==4.0.*', or a newer dvdrl"
        )


def _member_name(member: str) -> str:
    """Of `type (*name)(parameters)`, or `type name`."""
    function = re.search(r"\(\*\s*(\w+)\)", member)
    return function[1] if function else re.split(r"\W+", member.strip())[-1]


@cache
def _register() -> _Plugin:
    """Register the plugin once per process; the result keeps its memory alive."""
    package = Path(mujoco.__file__).parent
    header = package / "include" / "mujoco" / "mjplugin.h"
    refuse_another_layout(header.read_text() if header.exists() else "", mujoco.mj_versionString())
    library = ctypes.CDLL(str(next(path for pattern in ("libmujoco*", "mujoco.dll") for path in package.glob(pattern))))
    plugin = _Plugin(
        name=_NAME.encode(),
        nstate=_NumState(lambda _model, _instance: 0),
        advance=ctypes.cast(library.mj_rnePostConstraint, ctypes.c_void_p).value,
    )
    library.mjp_registerPlugin(ctypes.byref(plugin))
    return plugin


def add_to(spec: Any) -> None:
    """Make every step of the model of this mujoco.MjSpec compute FIELDS."""
    _register()
    spec.activate_plugin(_NAME)
    spec.add_plugin(name=_NAME, plugin_name=_NAME, active=True)
