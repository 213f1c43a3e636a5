"""The layout of MuJoCo's plugins, which is checked before anything is called through it.

That the forces are those of Gymnasium is in test_host.py: Ant and Humanoid observe them and pay for them.
"""

from pathlib import Path

import mujoco
import pytest

from dvdrl.engines import post_constraint
from dvdrl.errors import DvdrlError

CHANGES = {
    "a member of another type": ("int needstage;", "int64_t needstage;"),
    "a pointer that is an integer": ("const char* name;", "int name;"),
    "one member less": ("int needstage;", ""),
    "one member more": ("void (*destroy)", "void (*rest)(mjData* d);\n  void (*destroy)"),
    "another name": ("(*compute)", "(*evaluate)"),
    "another advance": ("void (*advance)(const mjModel* m,", "void (*advance)(void* user, const mjModel* m,"),
    "no such struct": ("mjpPlugin_", "mjpPlugin2_"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_mujoco_with_another_layout_is_refused(change: str) -> None:
    # A call through a struct of another layout would jump to an arbitrary address: say what to install instead.
    header = (Path(mujoco.__file__).parent / "include" / "mujoco" / "mjplugin.h").read_text()
    post_constraint.refuse_another_layout(header, "4.0.0")
    before, after = CHANGES[change]
    assert before in header
    with pytest.raises(DvdrlError, match=r"MuJoCo 4\.1\.0: .* pip install 'mujoco==4\.0\.\*'"):
        post_constraint.refuse_another_layout(header.replace(before, after), "4.1.0")
