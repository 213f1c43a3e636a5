"""What the tests here found, in build/soak/, as results/soak/ has it."""

import json
from pathlib import Path
from typing import Any

from dvdrl.record import provenance

OUT = Path("build/soak")


def note(name: str, **facts: Any) -> None:
    """Add the outcome of a test to record.json, beside how it was found."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "record.json"
    before = json.loads(path.read_text()) if path.exists() else {"outcomes": {}}
    about = {**provenance("jax", "mujoco", "ray"), "command": "make soak"}
    outcomes = {**before["outcomes"], name: facts}
    path.write_text(json.dumps({**about, "outcomes": outcomes}, indent=2) + "\n")
