"""What docs/reliability.md says of files: killed, full, read-only, damaged, used twice, of another format.

The loop is the real one. The algorithm is a stand-in that takes no time, and whose next state depends on all of the
last one and on the whole replay buffer, so that any mistake in what is restored changes every number after it.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dvdrl
from dvdrl import files
from dvdrl.errors import DvdrlError
from dvdrl.policies import Agents, Population
from dvdrl.runs import checkpoint, file, lock, loop, metrics, recovery, tensors
from dvdrl.runs.presets import resolve
from dvdrl.runs.trainer import Outcome
from probes import policy_of

OPTIONS = dvdrl.TD3(task="Point-v0", iterations=6, hidden=(2,), keep_checkpoints=3, keep_every=2)
ROWS, CAPACITY = 3, 7  # a buffer has the last three iterations


class Sums:
    """A trainer of exact sums."""

    replay_capacity = CAPACITY
    simulation_seconds = 0.0

    def __init__(self, num_runs: int):
        self._buffers = [np.zeros((0, 2), np.float32) for _ in range(num_runs)]

    def init(self, seed: int) -> dict[str, Any]:
        return {"seed": np.asarray(seed, np.int64), "iteration": np.asarray(0, np.int64), "x": np.arange(4.0) + seed}

    def like(self) -> dict[str, Any]:
        return self.init(0)

    def recall(self, states: Sequence[Any], transitions: Sequence[np.ndarray]) -> None:  # noqa: ARG002
        self._buffers = [rows[-CAPACITY:] for rows in transitions]

    def iterate(self, states: Sequence[Any]) -> list[Outcome]:
        outcomes = []
        for run, state in enumerate(states):
            iteration = state["iteration"] + 1
            added = (np.arange(ROWS * 2).reshape(ROWS, 2) + iteration + state["x"][0]).astype(np.float32) % 97
            self._buffers[run] = np.concatenate([self._buffers[run], added])[-CAPACITY:]
            x = (np.roll(state["x"], 1) * 3 + self._buffers[run].sum() + iteration) % 1009
            line = {"best_return": float(x.max()), "mean_return": float(x.mean()), "lambda": 0.0, "log_det": 0.0}
            after = {"seed": state["seed"], "iteration": iteration, "x": x}
            of_members = {"member_returns": x.tolist(), "shares": (x / 1009).tolist()}
            outcomes.append(Outcome(after, 10, line | of_members, added, evaluated=x[:1]))
        return outcomes

    def population(self, state: Any) -> Population:
        policy = policy_of(2, 2, 1)
        params = np.resize(state["x"], (1, policy.network.num_params)).astype(np.float32)
        ones = np.ones((1, 2), np.float32)
        return Population("Point-v0", policy, Agents(params, 0 * ones, ones))

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "make_trainer", lambda options, num_runs: Sums(num_runs))
    # No test can pull the plug, so what fsync does cannot be seen, and it takes most of the time. That it is called,
    # and may fail, can: os.fstat too is refused where there is no such file.
    monkeypatch.setattr(os, "fsync", os.fstat)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A run that was never stopped."""
    loop.train(replace(OPTIONS, out=tmp_path / "whole"))
    return tmp_path / "whole"


def content(directory: Path) -> dict[str, Any]:
    """All that a run directory holds, but for times and TensorBoard."""
    lines = [
        {name: value for name, value in line.items() if name not in metrics.TIMINGS}
        for line in metrics.read(directory / "metrics.jsonl")
    ]
    states = {n: checkpoint.load(directory / "checkpoints", Sums(1).like(), n) for n in iterations(directory)}
    found = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
    return {
        "lines": lines,
        "states": {n: {name: array.tolist() for name, array in state.items()} for n, (state, _) in states.items()},
        "segments": {n: progress.replay for n, (_, progress) in states.items()},
        "policies": dvdrl.load(directory).agents.params.tolist(),
        "kept": {path.name: tensors.about(path)["sha256"] for path in (directory / "kept").iterdir()},
        "files": {name for name in found if not name.startswith("tensorboard/")},
    }


def iterations(directory: Path) -> list[int]:
    return checkpoint.iterations(directory / "checkpoints")


class Faults:
    """Lets something go wrong at one of the moments in which a run's files change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fault: Callable[[], BaseException]):
        self.fault, self.at, self.count = fault, -1, 0
        for module, name in ((os, "replace"), (os, "fsync"), (os, "unlink"), (os, "mkdir")):
            monkeypatch.setattr(module, name, self._wrapped(getattr(module, name)))
        append = files.append

        def torn(path: Path, line: bytes, **options: bool) -> None:
            if self._due():
                append(path, line[: len(line) // 2], **options)
                raise self.fault()
            append(path, line, **options)

        monkeypatch.setattr(files, "append", torn)

    def _due(self) -> bool:
        self.count += 1
        return self.count == self.at

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if self._due():
                raise self.fault()
            return function(*arguments, **options)

        return wrapped

    def everywhere(self) -> Iterator[int]:
        """One moment after the other, until there is none left."""
        at = 0
        while self.count >= at:
            at += 1
            self.at, self.count = at, 0
            yield at
        self.at = -1


class Killed(BaseException):
    """Not an Exception: nothing handles it."""


@pytest.mark.parametrize("seeds", [None, "0..1"])
def test_killed_at_any_moment_a_run_goes_on_to_the_same_numbers(
    seeds: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(OPTIONS, seeds=seeds, iterations=3 if seeds is None else 1, keep_checkpoints=2)
    parts = ["."] if seeds is None else ["seed-0", "seed-1"]
    loop.train(replace(options, out=tmp_path / "whole"))
    expected = {part: content(tmp_path / "whole" / part) for part in parts}
    faults = Faults(monkeypatch, Killed)
    for moment in faults.everywhere():
        directory = tmp_path / f"run-{moment}"
        with contextlib.suppress(Killed):
            loop.train(replace(options, out=directory))
        faults.at = -1
        if any((directory / part / "config.json").exists() for part in parts):
            loop.resume(directory)
        else:  # it was no run yet
            with pytest.raises(DvdrlError, match=r"there is no such file"):
                loop.resume(directory)
            loop.train(replace(options, out=directory))
        assert {part: content(directory / part) for part in parts} == expected, moment
        shutil.rmtree(directory)
    assert moment > 50


def test_a_run_that_was_killed_before_it_was_one_can_be_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch, Killed)
    faults.at = 6
    with pytest.raises(Killed):
        loop.train(replace(OPTIONS, out=tmp_path / "run"))
    assert (tmp_path / "run").exists()
    assert not (tmp_path / "run" / "config.json").exists()
    loop.train(replace(OPTIONS, out=tmp_path / "run"))
    assert dvdrl.Run(tmp_path / "run").finished


def test_a_disk_that_is_full_at_any_moment_stops_the_run_with_advice_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(OPTIONS, iterations=3, keep_checkpoints=2)
    loop.train(replace(options, out=tmp_path / "whole"))
    expected = content(tmp_path / "whole")
    faults = Faults(monkeypatch, lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    said = set()
    for moment in faults.everywhere():
        directory = tmp_path / f"run-{moment}"
        try:
            loop.train(replace(options, out=directory))
        except DvdrlError as error:
            said.add(str(error).replace(str(directory), "DIR"))
            assert not list(directory.rglob("*.partial"))
            if not (directory / "config.json").exists():
                continue
            faults.at = -1
            loop.resume(directory)
        faults.at = -1  # what follows removes files too
        assert content(directory) == expected, moment
        shutil.rmtree(directory)
    full = "cannot write to DIR: No space left on device; "
    assert all(each.startswith(full) for each in said)
    assert full + "--out chooses another directory" in said
    assert full + "make it writable again, then `dvdrl resume DIR` continues after iteration 2" in said


def mounted(directory: Path, options: str) -> Path:
    """A small file system of its own, where that is permitted."""
    directory.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", directory], capture_output=True).returncode:
        pytest.skip("mounting a file system is not permitted here; the same errors are raised by a stand-in above")
    return directory


def test_a_real_full_disk(tmp_path: Path) -> None:
    disk = mounted(tmp_path / "disk", "size=140k")
    try:
        with pytest.raises(DvdrlError, match=r"No space left on device; make it writable again, then `dvdrl resume"):
            loop.train(replace(OPTIONS, iterations=80, out=disk / "run"))
        assert not list(disk.rglob("*.partial"))
        done = iterations(disk / "run")[-1]
        assert 6 < done < 80
        shutil.copytree(disk / "run", tmp_path / "more-room")
    finally:
        subprocess.run(["umount", disk], check=True)
    loop.resume(tmp_path / "more-room")
    loop.train(replace(OPTIONS, iterations=80, out=tmp_path / "long"))
    assert content(tmp_path / "more-room") == content(tmp_path / "long")


def test_a_real_read_only_disk(tmp_path: Path) -> None:
    disk = mounted(tmp_path / "disk", "size=200k")
    try:
        loop.train(replace(OPTIONS, out=disk / "run"))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(DvdrlError, match="Read-only file system; copy the run to a place that can be written"):
            loop.resume(disk / "run")
        with pytest.raises(DvdrlError, match="Read-only file system; --out chooses another"):
            loop.train(replace(OPTIONS, out=disk / "other"))
        assert dvdrl.Run(disk / "run").finished  # which reads
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = content(whole)
    name = "checkpoints/00000006.safetensors"
    sound = (whole / name).read_bytes()
    flips = [(position, 1 << position % 8) for position in range(0, len(sound), 17)]
    damaged = [sound[:length] for length in range(0, len(sound), 197)]
    for position, bit in flips:
        damaged.append(sound[:position] + bytes([sound[position] ^ bit]) + sound[position + 1 :])
    unseen = 0
    for wrong in damaged:
        shutil.copytree(whole, tmp_path / "run")
        (tmp_path / "run" / name).write_bytes(wrong)
        loop.resume(tmp_path / "run")
        said = capsys.readouterr().err
        unseen += "looking for an earlier checkpoint" not in said
        assert ("  6/6  " in said) == (name in said)  # named, and computed again; or not harmed
        assert content(tmp_path / "run") == expected
        shutil.rmtree(tmp_path / "run")
    # Which version of dvdrl wrote the file is not part of the digest; nor are the spaces that fill up the header.
    assert unseen < 0.05 * len(damaged)


def test_damage_everywhere_is_an_error_and_changes_nothing(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for iteration in (4, 5, 6):
        path = whole / "checkpoints" / f"{iteration:08d}.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    with pytest.raises(DvdrlError, match="no checkpoint that is intact and has its metrics; start the run anew"):
        loop.resume(whole)
    assert all(f"{n:08d}.safetensors: not a checkpoint" in capsys.readouterr().err for n in (6,))
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before


def test_one_of_several_runs_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop.train(replace(OPTIONS, seeds="0..1", out=tmp_path / "runs"))
    expected = [content(tmp_path / "runs" / f"seed-{seed}") for seed in (0, 1)]
    path = tmp_path / "runs" / "seed-1" / "checkpoints" / "00000006.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    loop.resume(tmp_path / "runs")
    assert f"{path}: not a checkpoint that can be read" in capsys.readouterr().err
    assert [content(tmp_path / "runs" / f"seed-{seed}") for seed in (0, 1)] == expected


def test_a_run_that_was_finished_long_before_the_others_waits_at_its_end(tmp_path: Path) -> None:
    # As with a budget of steps, where episodes end early: seed 0 has 3 iterations, seed 1 is in its sixth.
    loop.train(replace(OPTIONS, iterations=9, seeds="0..1", out=tmp_path / "whole"))
    loop.train(replace(OPTIONS, seeds="0..1", out=tmp_path / "runs"))
    short = tmp_path / "runs" / "seed-0"
    shutil.rmtree(short)
    loop.train(replace(OPTIONS, iterations=3, out=short))
    for seed in (0, 1):
        path = tmp_path / "runs" / f"seed-{seed}" / "config.json"
        path.write_text(file.to_json(replace(file.from_json(path), iterations=9, steps=30 if seed == 0 else 90)))
    with pytest.raises(DvdrlError, match="differ in more than their seeds"):
        loop.resume(tmp_path / "runs")
    options = [replace(file.from_json(tmp_path / "runs" / f"seed-{i}" / "config.json"), out=None) for i in (0, 1)]
    trainer = Sums(1)
    trainer.replay_capacity = 0
    runs = loop._recover([short, tmp_path / "runs" / "seed-1"], options, trainer)
    assert [(run.progress.iteration, run.course.ended is not None) for run in runs] == [(3, True), (6, False)]
    # Those that learn together are never an iteration apart.
    assert recovery.together([{3}, {6}], [True, True], apart=True) == [3, 6]
    assert recovery.together([{3}, {6}], [True, True], apart=False) == []
    # One that is finished does not go back to what it has in common with others.
    assert recovery.together([{1, 2, 3}, {1, 2, 3, 4, 5}, {1, 2, 3, 4}], [True, False, False], apart=True) == [3, 4, 4]
    assert recovery.together([{1, 2, 3}, {1, 2}], [True, True], apart=True) == [3, 2]


@pytest.mark.parametrize("lost", ["metrics.jsonl", "checkpoints"])
def test_without_its_metrics_or_checkpoints_a_run_is_not_continued(whole: Path, lost: str) -> None:
    shutil.rmtree(whole / lost) if (whole / lost).is_dir() else (whole / lost).unlink()
    with pytest.raises(DvdrlError, match="no checkpoint that is intact and has its metrics"):
        loop.resume(whole)


def test_without_its_metrics_a_run_that_still_has_its_first_checkpoint_is_not_begun_anew(tmp_path: Path) -> None:
    loop.train(dvdrl.ES(task="Point-v0", population=1, sensings=1, hidden=(2,), iterations=2, out=tmp_path / "run"))
    assert checkpoint.iterations(tmp_path / "run" / "checkpoints") == [0, 1, 2]
    (tmp_path / "run" / "metrics.jsonl").unlink()
    with pytest.raises(DvdrlError, match="no checkpoint that is intact and has its metrics"):
        loop.resume(tmp_path / "run")


def test_a_metrics_line_that_has_changed_is_found(whole: Path) -> None:
    text = (whole / "metrics.jsonl").read_text()
    for wrong in (
        text.replace('{"iteration": 2', '{"iteration": 3'),
        text.replace('{"iteration": 2', '"iteration": 2'),
    ):
        (whole / "metrics.jsonl").write_text(wrong)
        with pytest.raises(DvdrlError, match=r"metrics\.jsonl"):
            loop.resume(whole)


def test_a_second_process_is_refused_in_one_line(whole: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    code = "import sys; sys.argv[0] = 'dvdrl'; from dvdrl.cli import main; main()"
    with lock.locked(whole):
        second = subprocess.run([sys.executable, "-c", code, "resume", whole], capture_output=True, text=True)
        with pytest.raises(DvdrlError, match="another process is training in"):
            loop.resume(whole)
    assert second.returncode == 2
    assert second.stderr == (
        f"dvdrl: another process is training in {whole}; wait for it or stop it, then `dvdrl resume {whole}`\n"
    )
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before
    loop.resume(whole)  # nothing is left of the lock but its file
    # A `train` whose directory is taken between its first look and its lock.
    (tmp_path / "new").mkdir()
    with lock.locked(tmp_path / "new"), pytest.raises(DvdrlError, match="another process is training in"):
        loop.train(replace(OPTIONS, out=tmp_path / "new"))


def test_the_lock_of_a_killed_process_is_nobodys(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys; from dvdrl.runs.lock import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    assert (tmp_path / lock.NAME).exists()
    with lock.locked(tmp_path):
        pass


def test_where_there_are_no_locks_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def flock(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with lock.locked(tmp_path):
        pass
    assert "its file system has no locks" in capsys.readouterr().err


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / lock.NAME).symlink_to(tmp_path / "outside")
    with pytest.raises(DvdrlError, match=r"cannot write to .*: \.lock is a link, and links are not followed here"):
        loop.train(replace(OPTIONS, out=tmp_path / "run"))
    assert not (tmp_path / "outside").exists()


def test_an_older_format_is_continued(tmp_path: Path) -> None:
    loop.train(replace(OPTIONS, out=tmp_path / "whole"))
    loop.train(replace(OPTIONS, iterations=5, out=tmp_path / "old"))
    path = tmp_path / "old" / "config.json"
    values = json.loads(path.read_text()) | {"iterations": 6}
    assert values.pop("format") == file.FORMAT == 3
    path.write_text(json.dumps(values))  # no format, no digests in policies/, no lock
    about = json.loads((tmp_path / "old" / "policies" / "policies.json").read_text())
    del about["sha256"]
    (tmp_path / "old" / "policies" / "policies.json").write_text(json.dumps(about))
    (tmp_path / "old" / lock.NAME).unlink()
    assert dvdrl.load(tmp_path / "old").agents.params.shape == (1, 8)
    loop.resume(tmp_path / "old")
    assert content(tmp_path / "old") == content(tmp_path / "whole")


def test_an_older_format_had_an_option_of_a_controller_that_is_gone(tmp_path: Path) -> None:
    values = json.loads(file.to_json(resolve(dvdrl.DvDTD3(task="Hopper-v5"))))
    del values["patience"]
    for old, accepted in ((2, True), (3, False)):
        (tmp_path / "config.json").write_text(json.dumps(values | {"format": old, "exploration_rounds": 50}))
        if accepted:
            assert file.from_json(tmp_path / "config.json") == resolve(dvdrl.DvDTD3(task="Hopper-v5"))
        else:
            with pytest.raises(DvdrlError, match="no option 'exploration_rounds'"):
                file.from_json(tmp_path / "config.json")
    (tmp_path / "config.json").write_text(json.dumps(values | {"format": 2, "controller": "leader"}))
    with pytest.raises(DvdrlError, match=r"controller: expected one of thompson, .*, plateau, got 'leader'"):
        file.from_json(tmp_path / "config.json")


def test_an_older_format_of_es_named_its_cluster(tmp_path: Path) -> None:
    values = json.loads(file.to_json(resolve(dvdrl.DvDES(task="Point-v0"))))
    del values["format"], values["ray_time_limit"]
    (tmp_path / "config.json").write_text(json.dumps(values | {"ray_address": "10.0.0.1:6379"}))
    assert file.from_json(tmp_path / "config.json") == resolve(dvdrl.DvDES(task="Point-v0"))


@pytest.mark.parametrize("later", [4, "3", None, [3]])
def test_a_later_format_is_refused(whole: Path, later: Any) -> None:
    path = whole / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": later}))
    with pytest.raises(DvdrlError, match="reads formats up to 3; pip install --upgrade dvdrl"):
        loop.resume(whole)


def test_what_others_are_writing_is_left_alone(whole: Path) -> None:
    (whole / "videos").mkdir()
    theirs = [whole / "videos" / f".tiled.mp4{files.PARTIAL}", whole / f".report.html{files.PARTIAL}"]
    ours = [whole / "checkpoints" / f".7{files.PARTIAL}", whole / f".config.json{files.PARTIAL}"]
    for path in (*theirs, *ours):
        path.touch()
    loop.resume(whole)
    assert all(path.exists() for path in theirs)
    assert not any(path.exists() for path in ours)


def test_links_are_not_followed(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("precious")
    for name in ("metrics.jsonl", "policies/.policies.json.partial", "checkpoints/.00000007.safetensors.partial"):
        kept = (whole / name).read_bytes() if (whole / name).exists() else None
        (whole / name).unlink(missing_ok=True)
        (whole / name).symlink_to(tmp_path / "outside")
        with pytest.raises(DvdrlError, match="is a link, and training would write where it leads"):
            loop.resume(whole)
        (whole / name).unlink()
        if kept is not None:
            (whole / name).write_bytes(kept)
    (tmp_path / ".file.partial").symlink_to(tmp_path / "outside")
    files.write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "outside").read_text() == "precious"


@pytest.mark.parametrize("change", ["removed", "replaced"])
@pytest.mark.parametrize("name", [".lock", "metrics.jsonl"])
def test_a_file_that_goes_during_training_is_noticed(
    name: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, iterate = tmp_path / "run" / name, Sums.iterate

    def and_lose(self: Sums, states: Sequence[Any]) -> list[Outcome]:
        if states[0]["iteration"] == 2:
            path.unlink()
            if change == "replaced":
                path.touch()
        return iterate(self, states)

    monkeypatch.setattr(Sums, "iterate", and_lose)
    with pytest.raises(DvdrlError, match=rf"{name} (was removed|has 0 bytes instead of [0-9]+: it was changed)"):
        loop.train(replace(OPTIONS, out=tmp_path / "run"))
    assert iterations(tmp_path / "run")[-1] == (3 if name == ".lock" else 2)  # what is lost is not written over
    if name == ".lock":
        loop.resume(tmp_path / "run")
        assert dvdrl.Run(tmp_path / "run").finished
