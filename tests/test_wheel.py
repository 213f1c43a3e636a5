"""The wheel, used outside of the source tree by somebody who has installed no extras: every command works or names its
extra.

The wheel is built and unpacked as pip does it. Its packages are those of the environment that runs the tests, but only
what the wheel itself asks for can be imported, with what that asks for in turn. So this finds files and requirements
that a wheel lacks. It does not find requirements whose versions do not fit together: `tools/release.py` installs a
wheel with pip.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dvdrl.cli.parse import COMMANDS

ROOT = Path(__file__).parents[1]

# As sitecustomize, it is imported when Python starts, in worker processes too.
SITE = """
import importlib.machinery, json, os

hidden = set(json.loads(os.environ["HIDDEN"]))
original = importlib.machinery.PathFinder.find_spec.__func__


def find_spec(kind, name, path=None, target=None):
    return None if name.partition(".")[0] in hidden else original(kind, name, path, target)


importlib.machinery.PathFinder.find_spec = classmethod(find_spec)
"""

SCRIPT = """
import contextlib, io, json, sys
import dvdrl
from dvdrl import cli

if __name__ == "__main__":
    results = {"": [0, dvdrl.__file__, ""]}
    for words in json.loads(sys.argv[1]):
        sys.argv = ["dvdrl", *words.split()]
        said, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(error):
            try:
                cli.main()
                code = 0
            except SystemExit as end:
                code = end.code
        results[words] = [code, said.getvalue(), error.getvalue()]
    for name in ("torch",):
        try:
            __import__(f"dvdrl.{name}")
        except dvdrl.errors.DvdrlError as error:
            results[f"import dvdrl.{name}"] = [2, "", str(error)]
    print(json.dumps(results))
"""

TINY = "--population 1 --sensings 1 --hidden 2 --iterations 1"
WORKS = {
    "--version": "dvdrl ",
    "--help": "usage: dvdrl COMMAND",
    "train niche-es --help": "usage: dvdrl train niche-es",
    "tasks": "HalfCheetah-v5",
    f"train es --task Point-v0 {TINY} --out run": "",
    "resume run --iterations 2": "",
    "evaluate run --episodes 1": "member 0",
    "adapt run --perturb gravity=0.5 --trials 1 --episodes 1": "member 0",
    "report run": "run/report.html",
    "export run --format safetensors": "run/exports/population.safetensors",
    "reproduce tabular --out tabular": "Saved tabular/tabular.png",
}
NAMES_ITS_EXTRA = {
    "render run": "video",
    "export run --format onnx": "onnx",
    f"train es --task Point-v0 {TINY} --executor ray": "ray",
    f"train es --task Point-v0 {TINY} --executor device": "gpu",
    f"train es --task Point-v0 {TINY} --wandb": "wandb",
    f"train es --task BipedalWalker-v3 {TINY}": "box2d",
    f"train es --task gymnax:CartPole-v1 {TINY}": "gymnax",
    f"train es --task playground:CartpoleBalance {TINY}": "playground",
    "reproduce modes-qd --scale smoke --out qd": "qd",
    "bench tasks --engine device": "gpu",
    "import dvdrl.torch": "torch",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    """For each command: its exit code, and what it says on standard output and standard error."""
    built, site = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
        (about,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(packed.read(about).decode())
    (site / "sitecustomize.py").write_text(SITE)
    working = tmp_path_factory.mktemp("working")
    (working / "script.py").write_text(SCRIPT)
    command = [
        sys.executable,
        "script.py",
        json.dumps([*WORKS, *(each for each in NAMES_ITS_EXTRA if "import" not in each)]),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(site),
        "HIDDEN": json.dumps(hidden(metadata.get_all("Requires-Dist"))),
    }
    done = subprocess.run(command, cwd=working, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("")[1] == str(site / "dvdrl" / "__init__.py")
    return found


def hidden(asked: list[str]) -> list[str]:
    """The modules that are installed here and would not be if only these requirements were installed."""
    wanted: set[str] = set()
    left = [(Requirement(text), frozenset({""})) for text in asked]
    while left:
        requirement, extras = left.pop()
        if requirement.marker is not None and not any(requirement.marker.evaluate({"extra": each}) for each in extras):
            continue
        name = canonicalize_name(requirement.name)
        wanted.add(name)
        try:
            further = requires(name) or []
        except PackageNotFoundError:
            continue
        of_it = frozenset({"", *requirement.extras})
        left += [(each, of_it) for each in map(Requirement, further) if canonicalize_name(each.name) not in wanted]
    return [
        module
        for module, packages in packages_distributions().items()
        if not wanted.intersection(map(canonicalize_name, packages)) and module != "dvdrl"
    ]


@pytest.mark.parametrize("words", WORKS)
def test_commands_that_need_no_extra_work(results: dict[str, tuple[int, str, str]], words: str) -> None:
    code, said, error = results[words]
    assert code == 0, error
    assert WORKS[words] in said
    assert "Traceback" not in error


@pytest.mark.parametrize("words", NAMES_ITS_EXTRA)
def test_others_name_their_extra_in_one_line(results: dict[str, tuple[int, str, str]], words: str) -> None:
    code, _, error = results[words]
    assert code == 2, error
    assert f"pip install 'dvdrl[{NAMES_ITS_EXTRA[words]}]'" in error
    assert len(error.splitlines()) == 1


def test_no_command_is_left_out() -> None:
    tried = {re.split(r"\s", words)[0] for words in (*WORKS, *NAMES_ITS_EXTRA)}
    assert set(COMMANDS) <= tried
