"""The promises of docs/reliability.md about other people's run directories, tried as an attacker would."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.imports import away_from_a_run, in_a_run
from dvdrl.policies import MLP, Agents, Population
from dvdrl.runs import checkpoint, policies
from dvdrl.runs.evaluation import evaluate
from dvdrl.studies import cells, tables
from dvdrl.studies.experiments import EXPERIMENTS
from dvdrl.studies.kept import Result
from dvdrl.views import render as drawing
from dvdrl.views import watch
from dvdrl.views.export import export
from dvdrl.views.render import render
from dvdrl.views.report import report
from probes import policy_of
from stopped_runs import DVDRL, started
from written_runs import numbers, write_numbers, write_run, write_still_run

INSTALLED = [sys.executable, str(Path(sys.executable).parent / "dvdrl")]
"""The command as it is installed: Python looks for modules beside the program, not in the working directory."""
SHADOWED = ("multiprocessing", "mujoco", "numpy", "random", "json", "mine", "site", "jax")


class States(NamedTuple):
    """Of a state what evaluating needs."""

    states: np.ndarray


def command(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **environment}
    return subprocess.run(
        [*INSTALLED, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def lay_bombs(directory: Path) -> Path:
    """Modules that leave a file behind when they are imported."""
    exploded = directory.parent / "exploded"
    for name in SHADOWED:
        (directory / f"{name}.py").write_text(f"open({str(exploded)!r}, 'a').write({name!r})\nraise SystemExit(3)\n")
    return exploded


def still_run_with_states(directory: Path) -> None:
    write_still_run(directory, "Pendulum-v1", (3, 1), 2, high=2.0)
    progress = checkpoint.Progress(1, 10, 1.0)
    checkpoint.save(directory / "checkpoints", States(np.eye(3, dtype=np.float32)), progress)


# --- Code


def test_workers_import_nothing_from_a_run_that_is_the_working_directory(tmp_path: Path) -> None:
    still_run_with_states(tmp_path / "run")
    exploded = lay_bombs(tmp_path / "run")
    done = command("evaluate", ".", "--episodes", "1", cwd=tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert not exploded.exists()


def test_what_draws_is_looked_for_without_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    exploded = lay_bombs(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    with contextlib.suppress(DvdrlError):  # nothing to draw with
        drawing.backend.__wrapped__()
    assert not exploded.exists()


def test_cells_of_a_study_import_nothing_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    exploded = lay_bombs(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    cell = cells.Cell("point", "no such setting", "es", "smoke", "0..0", "local")
    assert "no such setting" in (cells._run_apart(cell, []) or "")  # it began, and came as far as that
    assert not exploded.exists()


def test_a_module_that_is_named_is_found_here_but_not_in_a_run(tmp_path: Path) -> None:
    write_run(tmp_path / "run", MLP((6, 2)))
    exploded = lay_bombs(tmp_path / "run")
    (tmp_path / "run" / "below").mkdir()
    (tmp_path / "mine.py").write_text("open('imported', 'w').close()\n")
    found = command("evaluate", "run", "--module", "mine", cwd=tmp_path)
    assert (tmp_path / "imported").exists()
    assert "no checkpoint to evaluate" in found.stderr
    for inside in (tmp_path / "run", tmp_path / "run" / "below"):
        refused = command("evaluate", str(tmp_path / "run"), "--module", "mine", cwd=inside)
        assert refused.stderr == "dvdrl: module: No module named 'mine'\n"
    assert not exploded.exists()


def test_what_is_taken_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    config = tmp_path / "config.json"
    for text, is_one in (('{"algorithm": "es"}', True), ("no JSON", True), ('{"name": "a web page"}', False)):
        config.write_text(text)
        assert in_a_run(tmp_path / "below") == is_one
    config.unlink()
    assert not in_a_run(tmp_path / "below")
    config.symlink_to("/dev/zero")
    assert in_a_run(tmp_path)


def test_ray_is_not_started_from_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its workers put the directory from which it is started on their path.
    monkeypatch.chdir(tmp_path)
    with away_from_a_run():
        assert Path.cwd() == tmp_path  # where a user's own modules may be
    (tmp_path / "config.json").write_text('{"algorithm": "es"}')
    with away_from_a_run():
        assert Path.cwd() == Path("/")
    assert Path.cwd() == tmp_path


# --- Links, pipes, sizes


def run_with_everything(directory: Path) -> Path:
    write_run(directory, MLP((6, 4, 2)), members=2)
    made = write_numbers(directory.with_name("numbers"), numbers([1, 2], members=2), task="Point-v0")
    (directory / "metrics.jsonl").write_bytes((made / "metrics.jsonl").read_bytes())
    return directory


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("videos/tiled.png", lambda run: render(run, steps=1, width=16, height=16)),
        ("videos/.tiled.mp4.partial", lambda run: render(run, steps=1, width=16, height=16)),
        ("videos/tiled.mp4", lambda run: render(run, steps=1, width=16, height=16)),
        ("exports/population.safetensors", lambda run: export(run, "safetensors")),
        ("report.html", lambda run: report([run])),
        ("runs.csv", lambda run: tables.write(run, [Result("a", "b", "local", 0, 1, 1.0, {})], EXPERIMENTS["point"])),
    ],
)
def test_a_link_in_the_place_of_a_file_is_not_written_through(
    name: str, act: Callable[[Path], Any], tmp_path: Path
) -> None:
    run = run_with_everything(tmp_path / "run")
    (tmp_path / "precious").write_text("precious")
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(tmp_path / "precious")
    act(run)
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (run / name).is_symlink()


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("videos", lambda run: render(run, steps=1, width=16, height=16)),
        ("exports", lambda run: export(run, "safetensors")),
        ("policies", dvdrl.load),
        ("seed-1", lambda run: dvdrl.train(dvdrl.ES(task="Point-v0", seeds="1..1", iterations=1, out=run))),
        ("seed-1", lambda run: report([run])),
        ("config.json", lambda run: report([run])),
        ("metrics.jsonl", lambda run: report([run])),
    ],
)
def test_a_link_in_the_place_of_a_folder_or_of_what_is_read_is_refused(
    name: str, act: Callable[[Path], Any], tmp_path: Path
) -> None:
    run = run_with_everything(tmp_path / "run")
    if name == "seed-1":
        (run / "config.json").unlink()
        (tmp_path / "elsewhere").mkdir()
    elif (run / name).exists():
        (run / name).rename(tmp_path / "elsewhere")
    else:
        (tmp_path / "elsewhere").mkdir()
    (run / name).symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.rglob("elsewhere/*"))
    with pytest.raises(DvdrlError, match=rf"{name} is a link, and links are not followed here"):
        act(run)
    assert sorted(tmp_path.rglob("elsewhere/*")) == before


def test_a_secret_that_is_linked_to_is_not_in_the_report(tmp_path: Path) -> None:
    run = run_with_everything(tmp_path / "run")
    (tmp_path / "secret").write_text('{"command": "the secret"}')
    (run / "record.json").symlink_to(tmp_path / "secret")
    (run / "videos").mkdir()
    (run / "videos" / "tiled.mp4").symlink_to(tmp_path / "secret")
    page = report([run]).read_text()
    assert "the secret" not in page
    assert "data:video/mp4;base64" not in page


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "record.json", "policies/policies.json"])
def test_a_pipe_in_the_place_of_a_file_is_never_waited_for(name: str, tmp_path: Path) -> None:
    run = run_with_everything(tmp_path / "run")
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    done = command("report", "run", cwd=tmp_path)
    assert (done.returncode, len((done.stdout + done.stderr).splitlines())) in ((0, 1), (2, 1))
    assert "Traceback" not in done.stderr


# --- What does not fit


def test_policies_with_an_action_fewer_than_the_task_are_refused(tmp_path: Path) -> None:
    write_still_run(tmp_path / "run", "HalfCheetah-v5", (17, 6), 2)
    policy = policy_of(17, 5)
    zeros, ones = np.zeros((2, policy.network.num_params), np.float32), np.ones((2, 17), np.float32)
    policies.save(tmp_path / "run" / "policies", Population("HalfCheetah-v5", policy, Agents(zeros, 0 * ones, ones)))
    progress = checkpoint.Progress(1, 10, 1.0)
    checkpoint.save(tmp_path / "run" / "checkpoints", States(np.ones((3, 17), np.float32)), progress)
    for act in (evaluate, lambda run: export(run, "safetensors")):
        with pytest.raises(DvdrlError, match=r"the policy was made for .*; the environment has"):
            act(tmp_path / "run")
    with contextlib.suppress(DvdrlError):  # there may be nothing to draw with
        drawing.backend()
        with pytest.raises(DvdrlError, match=r"the policy was made for .*; the environment has"):
            render(tmp_path / "run", steps=1)


def test_a_film_on_a_full_disk_is_one_line(tmp_path: Path) -> None:
    write_run(tmp_path / "run", MLP((6, 4, 2)), members=2)
    # No file of more than a block: writing then fails as on a full disk.
    limited = ["bash", "-c", 'ulimit -f 1; exec "$@"', "-", *INSTALLED, "render", "run"]
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(limited, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("dvdrl: cannot write to run/videos: ")
    assert len(done.stderr.splitlines()) == 1
    assert list((tmp_path / "run" / "videos").iterdir()) == []


def test_a_terminal_that_has_only_ascii_is_written_to(tmp_path: Path) -> None:
    still_run_with_states(tmp_path / "run")
    done = command("evaluate", "run", "--episodes", "1", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "\\xb1" in done.stdout  # ±


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    run = run_with_everything(tmp_path / "run")
    values = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(values | {"task": "\x1b]0;owned\x07\x1b[2J\u202e\ud800"}))
    done = command("evaluate", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.rstrip("\n").isprintable()
    assert r"\x1b]0;owned\x07\x1b[2J\u202e\ud800" in done.stderr
    # Whatever a message is made of.
    assert str(DvdrlError("é\x1b[2J\n\u202e\ud800")) == r"é\x1b[2J\n\u202e\ud800"


def test_advice_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    with pytest.raises(DvdrlError) as error:
        dvdrl.load(run_without_policies(tmp_path / "a b; touch owned"))
    assert f"`dvdrl resume '{tmp_path}/a b; touch owned'`" in str(error.value)


def run_without_policies(directory: Path) -> Path:
    made = write_numbers(directory, numbers([1]), task="Point-v0")
    (made / "checkpoints").mkdir()
    return made


# --- The watch server


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    run = write_numbers(tmp_path / "run", numbers([1, 2]))
    monkeypatch.setattr(watch, "LONGEST_CONNECTION", 1.0)
    monkeypatch.setattr(watch, "MOST_CONNECTIONS", 4)
    with watch.make_server([run], port=0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def answer(port: int, seconds: float) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as asking:
        asking.sendall(b"GET /data.json HTTP/1.0\r\nHost: localhost\r\n\r\n")
        return asking.recv(12)


def test_slow_clients_keep_nobody_out_and_are_ended(server: Any) -> None:
    with contextlib.ExitStack() as held:
        slow = [
            held.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=10))
            for _ in range(3 * watch.MOST_CONNECTIONS)
        ]
        for each in slow:
            with contextlib.suppress(OSError):  # it has been ended for a later one
                each.sendall(b"GET /da")
        assert answer(server.server_port, 10) == b"HTTP/1.0 200"
        begun = time.monotonic()
        while time.monotonic() - begun < 1.5:  # a byte now and then does not help
            with contextlib.suppress(OSError):
                slow[-1].sendall(b"t")
            time.sleep(0.1)
        for each in slow:
            with contextlib.suppress(ConnectionError):
                assert each.recv(1) == b""
    assert answer(server.server_port, 10) == b"HTTP/1.0 200"


def test_silent_clients_are_ended(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LONGEST_CONNECTION", 1000.0)
    monkeypatch.setattr(watch._Handler, "timeout", 0.2)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as silent:
        assert silent.recv(1) == b""


# --- Ends


def test_sigterm_ends_like_ctrl_c(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    size = ["--population", "2", "--sensings", "2", "--hidden", "2", "--iterations", "100000"]
    process = started(["train", "dvd-es", "--task", "Point-v0", *size, "--out", str(directory)], directory, 2)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    last = checkpoint.iterations(directory / "checkpoints")[-1]
    assert said.splitlines()[-1] in [
        f"stopped after iteration {done}; `dvdrl resume {directory}` continues after iteration {done}"
        for done in (last, last - 1)  # a checkpoint is written before it counts as done
    ]
    assert "Traceback" not in said


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("to_all", [False, True])
def test_worker_processes_leave_no_traceback(stop: signal.Signals, code: int, to_all: bool, tmp_path: Path) -> None:
    # A terminal's Ctrl-C reaches the workers too; `kill` only the command, while they are in the middle of a step.
    directory = tmp_path / "run"
    size = ["--population", "2", "--sensings", "4", "--hidden", "2", "--iterations", "100000"]
    arguments = ["train", "es", "--task", "Pendulum-v1", *size, "--out", str(directory)]
    process = started(arguments, directory, 2, start_new_session=True)  # a line comes before its checkpoint
    (os.killpg if to_all else os.kill)(process.pid, stop)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("stopped after iteration ")
    assert checkpoint.iterations(directory / "checkpoints")[-1] >= 1


# As a module of somebody's own that takes its time to be imported: workers import it before they do anything else.
SLOW = """
import os, pathlib, time
import gymnasium

class Slow(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

if os.environ.get("BEGUN", str(os.getpid())) != str(os.getpid()):
    pathlib.Path("in_worker").touch()
    time.sleep(5)
os.environ["BEGUN"] = str(os.getpid())
gymnasium.register("Slow-v0", entry_point=Slow, disable_env_checker=True)
"""


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_workers_that_are_being_started_leave_no_traceback_either(
    stop: signal.Signals, code: int, tmp_path: Path
) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    arguments = ["train", "es", "--task", "slow_to_import:Slow-v0", "--out", "run"]
    process = subprocess.Popen(
        [*DVDRL, *arguments], stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True
    )
    while not (tmp_path / "in_worker").exists() and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, stop)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert said == ""  # nothing has begun that could be continued
    assert not (tmp_path / "run").exists()
