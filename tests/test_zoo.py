"""The trained populations that come with dvdrl."""

import importlib.util
import shlex
from pathlib import Path

import numpy as np
import pytest

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.runs import warm
from dvdrl.runs.directory import ZOO
from dvdrl.tasks.point import Point
from dvdrl.views.paths import roll_out

ROOT = Path(__file__).parents[1]
NAMES = sorted(path.name for path in ZOO.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_is_whole_and_small(name: str) -> None:
    run, population = dvdrl.Run(ZOO / name), dvdrl.load(f"zoo:{name}")
    assert run.finished
    assert population.distinct is not None
    assert population.distinct[0]  # the fittest
    envs = dvdrl.make_vec(run.config.task, len(population), **run.config.task_options)
    observation, _ = envs.reset(seed=0)
    assert envs.action_space.contains(np.asarray(population.act(observation[0]), np.float32))
    sizes = [path.stat().st_size for path in (ZOO / name).rglob("*") if path.is_file()]
    assert max(sizes) < 1e6
    assert sum(sizes) < 2e6
    assert {"film.mp4", "report.html"} <= {path.name for path in (ZOO / name).iterdir()}


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_was_made_by_the_tool_and_is_on_its_page(name: str) -> None:
    spec = importlib.util.spec_from_file_location("zoo", ROOT / "tools" / "zoo.py")
    assert spec
    assert spec.loader
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    command = shlex.split(dvdrl.Run(ZOO / name).record["command"])
    assert command[:-2] == ["dvdrl", "train", *shlex.split(tool.ENTRIES[name])]
    assert f"| `{name}` |" in (ROOT / "docs" / "zoo.md").read_text()


def test_members_of_point_pass_the_wall() -> None:
    # Going straight ends at the wall, with -772; past it and to the goal is above -600 (docs/tasks.md).
    _, returns = roll_out(Point(wall_half_width=4.0), dvdrl.load("zoo:point"))
    assert returns[0] > -600


def test_a_run_starts_from_an_entry() -> None:
    begun = warm.start(dvdrl.NicheES(task="Point-v0", from_="zoo:point", from_members=(1, 0)))
    assert begun
    np.testing.assert_array_equal(begun.agents.params, dvdrl.load("zoo:point").agents.params[[1, 0]])


def test_other_names_are_refused_in_one_line() -> None:
    with pytest.raises(DvdrlError, match=r"zoo: expected one of .*point.*; got 'lion'"):
        dvdrl.load("zoo:lion")
