"""Digests of tiny runs. They show whether two versions of the code train bit-identical numbers.

    python tools/digests.py                        prints the digests of this tree
    python tools/digests.py OLD NEW                compares two trees; the exit code is 1 if a run differs
    python tools/digests.py OLD --save old.json    saves the digests; on the same machine, the file can replace OLD
    python tools/digests.py OLD NEW --only 'dvd-es*' ray

A tree is a checkout of this project, for instance one made by `git worktree add OLD COMMIT`. All algorithms are trained
through the command line: locally and on Ray, with several seeds at once, and stopped and resumed. So are small studies.
The digests are of files in the run directories. If the newer tree has additional numbers, or other names for columns of
tables, these are listed but do not count as a difference. Digests depend on the processor and on the versions of JAX
and MuJoCo, so none are kept with the code.

The first time, a tree takes three minutes on two cores. Later it takes half a minute, because compiled programs are
kept in build/digests, or in the directory of JAX_COMPILATION_CACHE_DIR.
"""

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

CLOCK = ("seconds", "steps_per_second", "outside_simulation")
"""The fields of metrics lines and of tables that differ between two runs of the same code."""

HERE = Path(__file__).resolve().parent.parent

Digests = dict[str, str]
"""The digests of a run: of each metric over all lines, of each array of a policy, and of each column of a table."""


def _train(options: str) -> Callable[[], None]:
    return lambda: _dvdrl(f"train {options} --out run")


def _es(options: str, task: str = "Point-v0 --task-options horizon 20") -> Callable[[], None]:
    algorithm, _, more = options.partition(" ")
    small = "--population 3 --sensings 4 --hidden 8 --num-states 5 --iterations 4"
    return _train(f"{algorithm} --task {task} {small} {more}")


def _td3(options: str, task: str = "Point-v0 --task-options horizon 10") -> Callable[[], None]:
    algorithm, _, more = options.partition(" ")
    population = "" if algorithm == "td3" else "--population 3"
    small = "--hidden 8 8 --random-steps 60 --iteration-steps 60 --steps 240 --batch-size 16 --buffer-size 180"
    return _train(f"{algorithm} --task {task} {population} {small} --evaluation-episodes 2 {more}")


def _resumed(train: Callable[[], None]) -> Callable[[], None]:
    """The same training, stopped after two of the four iterations and resumed."""

    def run() -> None:
        train()
        for path in Path("run").rglob("config.json"):
            path.write_text(json.dumps(json.loads(path.read_text()) | {"iterations": 4}))
        _dvdrl("resume run")

    return run


def _study(name: str) -> Callable[[], None]:
    return lambda: _dvdrl(f"reproduce {name} --scale smoke --out tables")


_PENDULUM = "Pendulum-v1 --task-options max_episode_steps 20"
_RENEWING = "--iterations 24"  # the first that may begin anew do so after twenty
_TWO_MODES = "HalfCheetah-FwdBwd-v0 --task-options horizon 20"

RUNS: dict[str, Callable[[], None]] = {
    "es-paper": _es("es --preset paper"),
    "es-authors": _es("es --preset authors"),
    "nsr-es-paper": _es("nsr-es --preset paper"),
    "nsr-es-authors": _es("nsr-es --preset authors"),
    "nsr-es-all": _es("nsr-es --members all"),
    "nsr-es-across-members": _es("nsr-es --normalization across-members"),
    "dvd-es-paper": _es("dvd-es --preset paper --state-interval 2"),
    "dvd-es-authors": _es("dvd-es --preset authors"),
    "dvd-es-one": _es("dvd-es --members one"),
    "dvd-es-across-members": _es("dvd-es --normalization across-members"),
    "dvd-es-log-det": _es("dvd-es --objective log-det"),
    "dvd-es-plateau": _es("dvd-es --controller plateau --patience 1 --learning-rate 0.001"),
    "dvd-es-sliding-window": _es("dvd-es --controller sliding-window"),
    "dvd-es-discounted": _es("dvd-es --controller discounted"),
    "dvd-es-no-state-filter": _es("dvd-es --no-state-filter"),
    "dvd-es-choices": _es(
        "dvd-es --orthogonal --step-rule adam --starts per-rollout --state-rule k-dpp --state-pool 9"
        " --state-interval 1 --kernel matern32"
    ),
    "dvd-es-two-modes": _es("dvd-es", _TWO_MODES),
    "dvd-es-gymnasium": _es("dvd-es", _PENDULUM),
    "dvd-es-seeds": _es("dvd-es --seeds 0..2"),
    "dvd-es-resumed": _resumed(_es("dvd-es --iterations 2")),
    "dvd-es-seeds-resumed": _resumed(_es("dvd-es --seeds 0..2 --iterations 2")),
    "dvd-es-ray": _es("dvd-es --executor ray"),
    "niche-es": _es(f"niche-es {_RENEWING}"),
    "niche-es-two-modes": _es("niche-es", _TWO_MODES),
    "niche-es-seeds-resumed": _resumed(_es("niche-es --seeds 0..1 --iterations 2")),
    "niche-es-ray": _es(f"niche-es {_RENEWING} --executor ray"),
    "td3": _td3("td3"),
    "e-td3": _td3("e-td3 --bootstrapping random"),
    "dvd-td3": _td3("dvd-td3"),
    "dvd-td3-gymnasium": _td3("dvd-td3", _PENDULUM),
    "dvd-td3-plateau": _td3("dvd-td3 --controller plateau --patience 1"),
    "dvd-td3-choices": _td3(
        "dvd-td3 --normalization across-members --num-states 7 --simulations 2 --pull-interval 2 --policy-delay 1"
        " --arms 0 0.3 0.6 --controller discounted"
    ),
    "dvd-td3-seeds": _td3("dvd-td3 --seeds 0..1"),
    "dvd-td3-resumed": _resumed(_td3("dvd-td3 --iterations 2")),
    "dvd-td3-seeds-resumed": _resumed(_td3("dvd-td3 --seeds 0..1 --iterations 2")),
    "study-point": _study("point"),
    "study-population": _study("population"),
    "study-td3": _study("humanoid"),
}


def _dvdrl(arguments: str) -> None:
    """Run the command in this process, so that all runs share compiled programs."""
    from dvdrl import cli

    print("$ dvdrl", arguments, flush=True)
    sys.argv = ["dvdrl", *arguments.split()]
    try:
        cli.main()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"`dvdrl {arguments}` ended with {end.code}") from end


def _work(tree: str, place: str, names: Sequence[str]) -> None:
    """Train each run in its own directory in `place`. A run that fails leaves a file `failed` there."""
    import dvdrl

    if not Path(dvdrl.__file__).is_relative_to(Path(tree).resolve()):
        sys.exit(f"digests: expected dvdrl from {tree}, got {dvdrl.__file__}")
    for name in names:
        directory = Path(place, name)
        directory.mkdir()
        os.chdir(directory)
        begin = time.perf_counter()
        try:
            RUNS[name]()
        except Exception:
            traceback.print_exc()
            Path("failed").write_text(traceback.format_exc())
        print(f"{name}: {time.perf_counter() - begin:.1f} seconds", flush=True)


def digests_of(tree: Path, names: Sequence[str], scratch: Path) -> dict[str, Digests]:
    """Train with the code of a tree and the compiler's usual options. Failed runs have no digests."""
    if not (tree / "src" / "dvdrl").is_dir():
        raise SystemExit(f"digests: expected a checkout of this project or a file written by --save, got {tree}")
    place = Path(tempfile.mkdtemp(dir=scratch))
    environment = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "RAY_ADDRESS")}
    environment |= {
        "PYTHONPATH": str(tree.resolve() / "src"),
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "0",
        "JAX_COMPILATION_CACHE_DIR": os.environ.get("JAX_COMPILATION_CACHE_DIR", str(HERE / "build" / "digests")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    work = [sys.executable, str(Path(__file__).resolve()), "--work", str(tree), str(place), *names]
    with (place / "log").open("w") as log:
        done = subprocess.run(work, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"digests: {tree} ended with {done.returncode}:\n{(place / 'log').read_text()[-3000:]}")
    results = {}
    for name in names:
        failed = place / name / "failed"
        if failed.exists():
            print(f"{tree}: {name} failed:\n{failed.read_text()}", file=sys.stderr)
        results[name] = {} if failed.exists() else _digests(place / name)
    return results


def _digests(directory: Path) -> Digests:
    """The digests of a run's files. There is one for each number that a later version may add or leave out."""
    found: Digests = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.name == "metrics.jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            for key in dict.fromkeys(key for line in lines for key in line if key not in CLOCK):
                found[f"metrics {name} {key}"] = _digest(json.dumps([line.get(key) for line in lines]).encode())
        elif path.parent.name == "policies" and path.suffix == ".safetensors":
            for key, array in load_file(path).items():
                about = f"{array.dtype} {array.shape} ".encode()
                found[f"policies {name} {key}"] = _digest(about + array.tobytes())
        elif path.parent.name == "tables" and path.suffix == ".csv":
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            for key in (key for key in (rows[0] if rows else ()) if key not in CLOCK):
                found[f"tables {name} {key}"] = _digest(json.dumps([row[key] for row in rows]).encode())
    return found


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _line(name: str, digests: Mapping[str, str]) -> str:
    """One line for a run, with one digest for all metrics, one for all arrays, and one for all tables."""
    parts = []
    for kind in ("metrics", "policies", "tables"):
        these = sorted(item for item in digests.items() if item[0].startswith(kind + " "))
        if these:
            parts.append(f"{kind} {_digest(json.dumps(these).encode())}")
    return f"{name:24} {'  '.join(parts) or 'failed'}"


def compare(old: Mapping[str, Digests], new: Mapping[str, Digests]) -> bool:
    """Print how the runs compare. Returns whether all are the same."""
    same = True
    for name in old:
        before, after = old[name], new[name]
        if not (before and after):
            same = False
            print(f"{name:24} FAILED")
            continue
        renamed = _renamed(before, after)
        differ = [each for each in before if each in after and after[each] != before[each]]
        gone = [each for each in before if each not in after and each not in renamed]
        same &= not (differ or gone)
        print(f"{name:24} {'DIFFERS' if differ or gone else 'same'}")
        _tell("differs", differ)
        _tell("is gone", gone)
        _tell("is new", [each for each in after if each not in before and each not in renamed.values()])
        _tell("renamed", [f"{each} -> {renamed[each].split(' ', 2)[2]}" for each in renamed])
    return same


def _renamed(before: Digests, after: Digests) -> dict[str, str]:
    """Missing column of a table -> new column of the same table with the same content."""
    new = [each for each in after if each not in before]
    renamed: dict[str, str] = {}
    for gone in (each for each in before if each not in after and each.startswith("tables ")):
        table = gone[: gone.index(" ", len("tables ")) + 1]
        alike = [each for each in new if each.startswith(table) and after[each] == before[gone]]
        free = [each for each in alike if each not in renamed.values()]
        renamed |= {gone: free[0]} if free else {}
    return renamed


def _tell(what: str, digests: Sequence[str]) -> None:
    """Print one line for each file."""
    names: dict[str, list[str]] = {}
    for each in digests:
        _, file, name = each.split(" ", 2)
        names.setdefault(file, []).append(name)
    for file, these in names.items():
        print(f"    {what}: {file}: {', '.join(these)}")


def main() -> None:
    """Print the digests of a tree, or compare those of two trees."""
    if sys.argv[1:2] == ["--work"]:
        _work(sys.argv[2], sys.argv[3], sys.argv[4:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "trees", nargs="*", type=Path, default=[HERE], help="one tree, or two to compare, the older first"
    )
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="NAME", help="only these runs; wildcards are allowed"
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the digests of the last tree to a file")
    parser.add_argument("--list", action="store_true", help="list the runs")
    options = parser.parse_args()
    if len(options.trees) > 2:
        parser.error("at most two trees")
    names = [name for name in RUNS if any(fnmatch(name, pattern) for pattern in options.only)]
    if not names:
        parser.error(f"--only: expected some of {', '.join(RUNS)}")
    if options.list:
        print(*names, sep="\n")
        return

    with tempfile.TemporaryDirectory(prefix="dvdrl-digests-") as scratch, ThreadPoolExecutor() as pool:

        def of(tree: Path) -> dict[str, Any]:
            if not tree.is_file():
                return digests_of(tree, names, Path(scratch))
            saved = json.loads(tree.read_text())
            return {name: saved[name] for name in names if name in saved}

        results = list(pool.map(of, options.trees))
    if options.save:
        options.save.write_text(json.dumps(results[-1], indent=1) + "\n")
    if len(results) == 1:
        print(*(_line(name, results[0][name]) for name in results[0]), sep="\n")
        sys.exit(not all(results[0].values()))
    old, new = results
    for name in [name for name in names if name not in old or name not in new]:
        parser.error(f"a saved file lacks {name}; leave it out with --only, or save the file again")
    sys.exit(not compare(old, new))


if __name__ == "__main__":
    main()
