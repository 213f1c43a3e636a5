from pathlib import Path

import numpy as np
import pytest

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.policies import Agents, Population
from dvdrl.runs import file, policies
from dvdrl.runs.presets import resolve
from dvdrl.tasks.point import Point
from dvdrl.views.paths import draw_paths, roll_out
from probes import policy_of


@pytest.fixture
def population() -> Population:
    # No hidden layer; the first two observations are x and y. Member 0 stands still, member 1 pushes along x > 0.
    params = np.zeros((2, 12), np.float32)
    shift = np.zeros((2, 6), np.float32)
    shift[1, 2], params[1, 2 * 2] = -100.0, 10.0  # the turn, which stays near 0: it sees 100 and saturates
    return Population("Point-v0", policy_of(6, 2), Agents(params, shift, np.ones((2, 6), np.float32)))


def test_paths_are_those_of_each_member(population: Population) -> None:
    paths, returns = roll_out(Point(), population)
    assert paths.shape == (51, 2, 2)
    # Straight ahead at full thrust: into the wall, whose inside is at 13.7; "-800 corresponds to .. hitting the wall".
    # By how much it bounces depends on the start.
    assert 12 < paths[-1, 1, 0] < 14
    assert returns[1] == pytest.approx(-800, abs=40)
    # Nearly still: some 25 away for 50 steps.
    assert np.abs(paths[:, 0]).max() < 1
    assert returns[0] == pytest.approx(-25 * 50, abs=25)


def test_the_picture_is_saved(population: Population, tmp_path: Path) -> None:
    options = resolve(dvdrl.ES(task="Point-v0", population=2, task_options={"wall_half_width": 3.0}))
    (tmp_path / "config.json").write_text(file.to_json(options))
    policies.save(tmp_path / "policies", population)
    draw_paths(tmp_path, tmp_path / "pictures" / "paths.png")
    assert (tmp_path / "pictures" / "paths.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("new/paths.xyz", r"paths: expected a file that ends in \.png, \.svg, \.pdf; got .*paths\.xyz"),
        ("new/paths", r"paths: expected a file that ends in \.png, "),
        ("config.json/paths.png", "cannot write to .*paths.png: .*; --paths chooses another file"),
    ],
)
def test_what_no_picture_can_be_is_refused(name: str, said: str, population: Population, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(file.to_json(resolve(dvdrl.ES(task="Point-v0", population=2))))
    policies.save(tmp_path / "policies", population)
    with pytest.raises(DvdrlError, match=said):
        draw_paths(tmp_path, tmp_path / name)
    assert not (tmp_path / "new").exists()


def test_only_point_has_paths(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(file.to_json(resolve(dvdrl.ES(task="HalfCheetah-v5"))))
    with pytest.raises(DvdrlError, match="this run is on HalfCheetah-v5"):
        draw_paths(tmp_path, tmp_path / "paths.png")
