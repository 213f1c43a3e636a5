"""`dvdrl tasks`."""

import subprocess
import sys

import pytest

from dvdrl import cli
from dvdrl.tasks.registry import TASKS


def tasks(monkeypatch, capsys, *arguments):
    """What the command prints: its rows by their first word, without the header."""
    monkeypatch.setattr(sys, "argv", ["dvdrl", "tasks", *arguments])
    cli.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    return {line.split()[0]: line.split()[1:] for line in lines[1:]}


def test_lists_every_task_with_its_sizes(monkeypatch, capsys):
    rows = tasks(monkeypatch, capsys)
    assert set(rows) > set(TASKS)  # now: the examples in the documentation register a task when they run
    assert rows["Humanoid-v5"] == ["348", "17", "1000", "host"]  # MuJoCo Warp has no PGS solver
    assert rows["Point-v0"] == ["6", "2", "50", "host,", "device"]


def test_importing_the_package_is_light():
    code = "import sys, dvdrl; print(sorted({'jax', 'mujoco', 'gymnasium', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_lists_what_can_be_changed_in_a_task(monkeypatch, capsys):
    rows = tasks(monkeypatch, capsys, "Hopper-v5", "--perturbations")
    assert rows["motor:thigh_joint"][:3] == ["0", "1", "1"]
    assert rows["slope"][:3] == ["-60", "60", "0"]


def test_shows_any_task_that_can_be_trained_on(monkeypatch, capsys):
    assert tasks(monkeypatch, capsys, "CartPole-v1") == {"CartPole-v1": ["4", "Discrete(2)", "500", "gymnasium"]}
    pytest.importorskip("gymnax")
    shown = tasks(monkeypatch, capsys, "gymnax:Pendulum-v1")
    assert shown == {"gymnax:Pendulum-v1": ["3", "1", "200", "jax"]}


def test_a_task_that_is_not_there_is_named(monkeypatch, capsys):
    with pytest.raises(SystemExit) as end:
        tasks(monkeypatch, capsys, "Hoper-v5")
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("dvdrl: no task 'Hoper-v5'; did you mean Hopper-v5")
