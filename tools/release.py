"""Prepares a release. It uploads nothing.

    python tools/release.py              all of it: what `make release` does after the checks
    python tools/release.py date         gives the changelog's "Unreleased" the version and today's date
    python tools/release.py check        compares the places that name the version; --tag TAG: as the workflow needs it
    python tools/release.py try DIST     installs the wheel in DIST for this Python, outside of this tree, and uses it
                                         as `docs/start.md` tells a new user

All of it: builds sdist and wheel into dist/, runs the sdist's own tests, uses the wheel with each Python that is
on the PATH, and says what is left to do.
"""

import argparse
import datetime
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNRELEASED = "## [Unreleased]"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def version() -> str:
    """The version of the package."""
    return found(r'__version__ = "(.+)"', ROOT / "src" / "dvdrl" / "_version.py")


def found(pattern: str, path: Path) -> str:
    """The first match of a pattern in a file, or nothing."""
    match = re.search(pattern, path.read_text(), re.MULTILINE)
    return match[1] if match else ""


def differences(tag: str | None = None, changelog: Path = ROOT / "CHANGELOG.md") -> list[str]:
    """What keeps this version from being released, in words."""
    now = version()
    said = []
    if (cited := found(r"^version: (.+)$", ROOT / "CITATION.cff")) != now:
        said.append(f"CITATION.cff has version {cited}, the package has {now}")
    if not found(rf"^## \[({re.escape(now)})\] - \d{{4}}-\d\d-\d\d$", changelog):
        said.append(f"{changelog.name} has no date for {now}: python tools/release.py date")
    elif re.search(rf"{re.escape(UNRELEASED)}\n+(?!## )\S", changelog.read_text()):
        said.append(f'{changelog.name} has changes under "Unreleased", which belong to no version')
    if tag not in (None, f"v{now}"):
        said.append(f"the tag is {tag}, the package has {now}")
    return said


def date(changelog: Path, now: str, day: datetime.date) -> None:
    """Give what is under "Unreleased" a version and a date."""
    text = changelog.read_text()
    if f"## [{now}]" in text:
        sys.exit(f"release: {changelog.name} has {now} already; change src/dvdrl/_version.py and CITATION.cff first")
    if UNRELEASED not in text:
        sys.exit(f'release: expected "{UNRELEASED}" in {changelog.name}')
    changelog.write_text(text.replace(UNRELEASED, f"{UNRELEASED}\n\n## [{now}] - {day.isoformat()}", 1))


def build(out: Path) -> None:
    """Make sdist and wheel. Hatchling is installed here, so nothing is downloaded."""
    shutil.rmtree(out, ignore_errors=True)
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT])


def test_sdist(dist: Path) -> None:
    """Run all tests of the sdist, in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="dvdrl-sdist-") as directory:
        (archive,) = dist.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(directory, filter="data")
        (tree,) = Path(directory).iterdir()
        tests = ["-m", "pytest", "--numprocesses", "auto", "--dist", "loadfile", "--no-loadscope-reorder"]
        run([sys.executable, *tests], tree, PYTHONPATH=str(tree / "src"))


def install(dist: Path, python: str | Path, directory: Path) -> Path:
    """Install the wheel and what it needs for videos into a new environment. Returns its python.

    For a Python of the version that runs this tool, the packages that are installed here serve, if dvdrl's are among
    them, and nothing is downloaded.
    """
    (wheel,) = dist.glob("*.whl")
    run([python, "-m", "venv", "--without-pip", directory])
    new = directory / "bin" / "python"
    here, there = sysconfig.get_path("purelib"), output([new, "-c", PACKAGES])
    pip = [sys.executable, "-m", "pip", "--python", new, "install", "--quiet", "--disable-pip-version-check"]
    if importlib.util.find_spec("mujoco") and Path(here).parent.name == Path(there).parent.name:
        (Path(there) / "packages.pth").write_text(f"{here}\n")
        run([*pip, "--no-deps", "--ignore-installed", wheel])
    else:
        run([*pip, "--constraint", ROOT / "constraints.txt", f"{wheel}[video]"])
    return new


PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"


def use(python: Path, directory: Path) -> None:
    """Follow docs/start.md in an empty directory, as a new user does; then check that it is the wheel that was used."""
    page = (ROOT / "docs" / "start.md").read_text()
    for number, (language, block) in enumerate(
        re.findall(r"^```(bash|python)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    ):
        if language == "bash":
            run(
                ["bash", "-euo", "pipefail", "-c", block],
                directory,
                PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            )
        else:
            (directory / f"block_{number}.py").write_text(block)
            run([python, f"block_{number}.py"], directory)
    films = [path for path in directory.rglob("*.mp4") if path.stat().st_size > 0]
    if not films:
        sys.exit("release: docs/start.md ends without a film")
    where = output([python, "-c", "import dvdrl; print(dvdrl.__file__)"], directory)
    if not Path(where).is_relative_to(python.parents[1]):
        sys.exit(f"release: expected the package in {python.parents[1]}, got {where}")


def attempt(dist: Path, python: str | Path) -> None:
    """Install the wheel for a Python, and use it."""
    with tempfile.TemporaryDirectory(prefix="dvdrl-wheel-") as directory:
        empty = Path(directory) / "work"
        empty.mkdir()
        use(install(dist, python, Path(directory) / "environment"), empty)


def run(command: Sequence[str | Path], directory: Path | None = None, **variables: str) -> None:
    """Run a program that must succeed. It finds no package of this tree unless it is told so."""
    others = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run([str(part) for part in command], cwd=directory, env={**others, **variables}, check=True)


def output(command: Sequence[str | Path], directory: Path | None = None) -> str:
    """What a program prints."""
    others = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command], cwd=directory, env=others, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip()


def everything() -> None:
    """Build and try, and say what is left."""
    dist = ROOT / "dist"
    build(dist)
    test_sdist(dist)
    left = differences()
    for name in PYTHONS:
        python = shutil.which(f"python{name}")
        if python is None or subprocess.run([python, "--version"], capture_output=True).returncode:
            left.append(f"the wheel was not tried with Python {name}, which is not on the PATH")
            continue
        try:
            attempt(dist, python)
            print(f"the wheel works with Python {name}")
        except subprocess.CalledProcessError as error:
            left.append(f"the wheel was not tried with Python {name} to the end: {error}")
    address = found(r'^Homepage = "(.+)"$', ROOT / "pyproject.toml")
    left += [
        f"the repository has to be at {address}, or its address be changed in pyproject.toml and CITATION.cff",
        "PyPI has to trust .github/workflows/release.yml, with the environment `pypi` (once)",
        f"then: git tag v{version()} && git push origin v{version()}; the workflow publishes",
    ]
    print(f"dist/ has dvdrl {version()}. What is left:", *(f"- {each}" for each in left), sep="\n")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("date", help="date the changelog")
    commands.add_parser("check", help="compare the places that name the version").add_argument("--tag")
    commands.add_parser("try", help="use the wheel").add_argument("dist", type=Path)
    options = parser.parse_args()
    if options.command == "date":
        date(ROOT / "CHANGELOG.md", version(), datetime.date.today())
    elif options.command == "check":
        if said := differences(options.tag):
            sys.exit("\n".join(said))
    elif options.command == "try":
        attempt(options.dist, sys.executable)
    else:
        everything()


if __name__ == "__main__":
    main()
