"""Trains the populations of the zoo, and puts them into the package: `python tools/zoo.py [NAME ..]`.

Runs are made in build/zoo. One that is there already is resumed. What a user needs of a run goes to src/dvdrl/zoo/NAME:
its policies, options, record and metrics, a report, and a film.
"""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import dvdrl

ROOT = Path(__file__).resolve().parents[1]
ZOO = ROOT / "src" / "dvdrl" / "zoo"
ENTRIES = {
    "point": "niche-es --task Point-v0 --task-options wall_half_width 4",
    "halfcheetah": "niche-es --task HalfCheetah-FwdBwd-v0 --task-options horizon 400 --population 3 --iterations 100",
}
"""Name -> the arguments of `dvdrl train`."""
KEPT = ("config.json", "record.json", "metrics.jsonl", "policies")


def train(name: str) -> Path:
    """Train, or resume."""
    directory = Path("build") / "zoo" / name
    if not (ROOT / directory / "config.json").exists():
        command = ["train", *shlex.split(ENTRIES[name]), "--out", str(directory)]
    else:
        command = ["resume", str(directory)]
    subprocess.run([Path(sys.executable).with_name("dvdrl"), *command], cwd=ROOT, check=True)
    return ROOT / directory


def keep(directory: Path, out: Path) -> None:
    """Copy what users need, and make the report and the film."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for each in KEPT:
        (shutil.copytree if (directory / each).is_dir() else shutil.copyfile)(directory / each, out / each)
    shutil.rmtree(directory / "videos", ignore_errors=True)
    dvdrl.report(directory, out / "report.html")  # without films, which would be inside it
    films = dvdrl.render(directory, steps=100, width=240, height=180)
    (film,) = [path for path in films if path.name == "tiled.mp4"]
    shutil.copyfile(film, out / "film.mp4")
    shutil.copyfile(film.with_suffix(".png"), out / "film.png")


def main() -> None:
    """Make the named entries; without names, all of them."""
    for name in sys.argv[1:] or ENTRIES:
        directory = train(name)
        if dvdrl.Run(directory).finished:
            keep(directory, ZOO / name)
        print(f"{name}: {sum(path.stat().st_size for path in (ZOO / name).rglob('*.*')) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
