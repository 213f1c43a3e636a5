"""Mistakes of a new user on the command line: one clear line, exit code 2, nothing written."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dvdrl import cli
from dvdrl.policies import MLP
from written_runs import write_run

POINT = "train es --task Point-v0"
MISTAKES = {
    # Commands
    "": "expected one of train, resume, evaluate,",
    "trian es --task Point-v0": "there is no 'trian'; did you mean train?",
    "train": "train: expected one of es, nsr-es, dvd-es",
    "train dvdes --task Point-v0": "train: there is no 'dvdes'; did you mean dvd-es?",
    "--task Point-v0": "there is no '--task'; expected one of train,",
    "tasks Point-v0 Hopper-v5": "tasks: expected no 'Hopper-v5'; see `dvdrl tasks --help`",
    "adapt run --perturb gravity": "perturb: expected NAME=VALUE, such as friction=0.5, got 'gravity'",
    # Options
    "train es": "train es: --task is required; see `dvdrl train es --help`",
    "train es --task": "missing value for argument '--task'",
    f"{POINT} --populaton 3": "there is no option --populaton, did you mean --population?",
    f"{POINT} --keep_every 3 --no-such": "there is no option --no-such",
    f"{POINT} --population five": "--population: expected INT, got 'five'",
    f"{POINT} --population 0": "population: expected a number from 1 to 2047, got 0",
    f"{POINT} --sigma -0.1": "sigma: expected more than 0, got -0.1",
    f"{POINT} --starts never": "--starts: expected same|per-iteration|per-rollout, got 'never'",
    f"{POINT} --hidden 32,32": "--hidden: expected INT ..., got '32,32'",
    f"{POINT} extra": "expected no 'extra'",
    f"{POINT} --for soon": "for: expected a duration such as 90s, 30m, 2h or 1h30m, got 'soon'",
    f"{POINT} --seeds 0-9": "seeds: expected the first and the last, as in 0..9, got '0-9'",
    f"{POINT} --seeds 9..0": "seeds: expected the first and the last",
    f"{POINT} --seeds 0..1 --seed 4": "seed: cannot be combined with seeds 0..1, got 4",
    f"{POINT} --sensings 10000000000": "sensings, hidden, population: this takes at least",
    "train td3 --task Point-v0 --sensings 3": "train td3: there is no option --sensings",
    "train td3 --task Point-v0 --population 5": "td3 has one member, got 5; e-td3 and dvd-td3 have more",
    "train dvd-es --task Point-v0 --measures x": "measures: only for --behaviour measures",
    f"{POINT} --until nan": "until: expected a finite number, got nan",
    f"{POINT} --until-stalled 0": "until_stalled: expected at least 1, got 0",
    f"{POINT} --keep-every 0": "keep_every: expected at least 1, got 0",
    f"{POINT} --from-members 0": "from_members: only with --from",
    f"{POINT} --from run --from-members 7": "from_members: run has 3 members, from 0 on, got 7",
    "train td3 --task Point-v0 --executor device": "--executor: expected local|ray, got 'device'",
    # Tasks
    "train es --task Piont-v0": "no task 'Piont-v0'; did you mean",
    "train es --task Point-v7": "did you mean Point-v0",
    "train es --task my_robot:Robot-v0": "my_robot:Robot-v0: No module named 'my_robot'",
    f"{POINT} --task-options wall_width 4": "Point-v0 has no option 'wall_width'",
    f"{POINT} --task-options horizon": "--task-options: Failed to parse key-value pairs",
    f"{POINT} --wrapper TimeLimit": "wrappers: expected texts such as 'module:callable', got 'TimeLimit'",
    # Directories
    f"{POINT} --out run": "run exists; `dvdrl resume run` continues it, --out writes elsewhere",
    f"{POINT} --out folder": "folder exists and is not a run; --out writes elsewhere",
    f"{POINT} --out folder/file/run": "cannot write to folder/file/run",
    f"{POINT} --from nowhere": "nowhere",
    "train --config nowhere.json": "nowhere.json: there is no such file; a run directory has a config.json",
    "train --config run": "run: expected the config.json of a run, got a directory",
    "resume": "resume: PATH is required; see `dvdrl resume --help`",
    "resume run nowhere": "resume: expected no 'nowhere'",
    "resume run --iterations 0": "iterations: expected at least 1, got 0",
    "resume run --for never": "for: expected a duration such as 90s, 30m, 2h or 1h30m, got 'never'",
    "resume nowhere": "nowhere/config.json: there is no such file; a run directory has a config.json",
    "resume run --sigma 3": "resume: there is no option --sigma",
    "evaluate": "no run directory given",
    "evaluate nowhere": "nowhere: not a run directory, it has no config.json",
    "evaluate run --episodes 0": "episodes: expected at least 1, got 0",
    "evaluate run --which bst": "--which: expected last|best|best-each|INT, got 'bst'",
    "evaluate run --which 7": "which: expected last, best, best-each or an iteration that run has kept",
    "evaluate run --perturb wind=3": "Point-v0 has no perturbation 'wind'; `dvdrl tasks Point-v0 --perturbations`",
    "evaluate run --paths paths.txt": "paths: expected a file that ends in .png, .svg, .pdf; got paths.txt",
    "report nowhere": "nowhere: not a run directory",
    "report run --watch --out page.html": "--watch writes no file, so it cannot be combined with --out",
    "report run --port 8001": "--port is for --watch, which serves the page",
    "report run --watch --port 70000": "port: expected 0 to 65535, got 70000",
    "render run --width 7": "width: expected an even number of at least 16, got 7",
    "render run --every 0": "every: expected at least 1, got 0",
    "export run": "export: --format is required",
    "export run --format pt": "--format: expected onnx|safetensors, got 'pt'",
    # Experiments
    "reproduce": "reproduce: name an experiment; `dvdrl reproduce --list` lists them",
    "reproduce tabula": "expected tabular|theory|",
    "reproduce point --setting Swimmer-v5": "setting: point has ",
    "reproduce point --seeds 5": "seeds: expected the first and the last",
    "bench diversity --engine device": "bench diversity: --engine device is for tasks and es",
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run, and with a folder that is none."""
    made = tmp_path_factory.mktemp("directory")
    write_run(made / "run", MLP((6, 4, 2)))
    (made / "folder").mkdir()
    (made / "folder" / "file").write_text("in the way")
    return made


@pytest.fixture
def nothing_is_written(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in the directory, and compare what is in it before and after."""
    monkeypatch.chdir(directory)

    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() if path.is_file() else b"" for path in directory.rglob("*")}

    before = content()
    yield
    assert content() == before


@pytest.mark.usefixtures("nothing_is_written")
@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_clear_line(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["dvdrl", *words.split()])
    with pytest.raises(SystemExit) as end:
        cli.main()
    said, error = capsys.readouterr()
    assert end.value.code == 2
    assert said == ""
    assert error.startswith("dvdrl: ")
    assert MISTAKES[words] in error
    assert error.endswith("\n")
    assert error.count("\n") == 1
    assert "Error:" not in error  # no exception of Python is quoted


def test_there_are_thirty() -> None:
    assert len(MISTAKES) >= 30
