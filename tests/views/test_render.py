"""Videos made without a display: their frame count, size and duration, and what is in the pictures."""

import os
import subprocess
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import gymnasium
import numpy as np
import pytest
from PIL import Image

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.policies import MLP
from dvdrl.views import render as module
from dvdrl.views.render import follow, render
from stopped_runs import DVDRL
from written_runs import write_run, write_still_run


@pytest.fixture
def gl() -> None:
    """Skips a test where MuJoCo has nothing to draw with; the reason names the package."""
    try:
        module.backend()
    except DvdrlError as error:
        pytest.skip(str(error))


def read(path: Path) -> tuple[list[np.ndarray], Fraction, Fraction]:
    """Pictures, pictures a second, and seconds of a video."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.pix_fmt == "yuv420p"  # what every browser plays
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        return pictures, stream.average_rate, stream.duration * stream.time_base


def test_a_folder_of_runs_is_filmed_one_by_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_still_run(tmp_path / name, "Point-v0", (6, 2), 1)
    options = ["--steps", "1", "--width", "16", "--height", "16"]
    done = subprocess.run([*DVDRL, "render", str(tmp_path), *options], capture_output=True, text=True, check=True)
    films = [f"{tmp_path}/{run}/videos/{file}" for run in "ab" for file in ("member-0.mp4", "tiled.mp4", "tiled.png")]
    assert done.stdout.splitlines() == films
    assert all(Path(film).exists() for film in films)
    done = subprocess.run(
        [*DVDRL, "render", str(tmp_path), "--every", "1"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "dvdrl: every: expected one run to follow, got 2\n")


def test_point_is_seen_from_above(tmp_path: Path) -> None:
    write_run(tmp_path / "run", MLP((6, 4, 2)), members=5)
    paths = render(tmp_path / "run")
    names = [*(f"member-{member}.mp4" for member in range(5)), "tiled.mp4", "tiled.png"]
    assert paths == [tmp_path / "run" / "videos" / name for name in names]
    assert sorted(os.listdir(tmp_path / "run" / "videos")) == sorted(names)  # nothing half done is left
    for path, shape in zip(paths[:-1], [(240, 320, 3)] * 5 + [(2 * 240, 3 * 320, 3)], strict=True):
        pictures, rate, seconds = read(path)
        # The initial state and 50 control steps of 2 * 0.02 s each.
        assert (len(pictures), rate, seconds) == (51, 25, Fraction(51, 25))
        assert pictures[0].shape == shape
    first, last = (read(paths[3])[0][index].astype(int) for index in (0, -1))
    wall = first[120, 160]  # the middle of the picture is x = 14, y = 0, inside the back of the wall
    np.testing.assert_allclose(wall, 0x66, atol=25)
    assert np.abs(first - last).max() > 100  # it moved
    still = np.asarray(Image.open(paths[-1])).astype(int)
    assert np.abs(still - read(paths[-2])[0][-1]).mean() < 3  # the end of the film, but for its compression


def test_a_perturbed_population_is_filmed(tmp_path: Path) -> None:
    write_run(tmp_path / "run", MLP((6, 4, 2)), members=2)
    with pytest.raises(DvdrlError, match="has no perturbation 'moter'; did you mean motor"):
        render(tmp_path / "run", perturb={"moter": 0.0})
    assert not (tmp_path / "run" / "videos").exists()  # it is refused before anything is written
    filmed = [
        Image.open(render(tmp_path / "run", perturb=perturb)[-1]).convert("RGB")
        for perturb in ({"motor": 0.0}, {"motor": 1.0})
    ]
    # Without motors the point drifts by 0.2 at most. In front of the wall, below the label, the floor then is empty but
    # for the point at its start, which is at (35, 120). Pictures are compressed.
    adrift, driven = (np.array(picture)[40:, :110].astype(int) for picture in filmed)
    for picture in (adrift, driven):
        picture[60:100, 15:55] = 0xE8
    assert np.abs(adrift - 0xE8).max() < 10
    assert np.abs(driven - 0xE8).max() > 100


@pytest.mark.usefixtures("gl")
def test_a_robot_is_drawn_by_mujoco(tmp_path: Path) -> None:
    write_still_run(tmp_path / "run", "HalfCheetah-v5", (17, 6), 2)
    paths = render(tmp_path / "run", steps=10, width=160, height=120)
    for path, shape in zip(paths[:-1], [(120, 160, 3)] * 2 + [(120, 320, 3)], strict=True):
        pictures, rate, seconds = read(path)
        assert (len(pictures), rate, seconds) == (11, 20, Fraction(11, 20))  # a control step is 5 * 0.01 s
        assert pictures[0].shape == shape
    picture = read(paths[0])[0][5].astype(int)
    assert picture.std() > 20  # a robot on a chequered floor under a sky, not one colour
    label = picture[4:20, 6:60]
    assert label.max() > 200
    assert label.min() < 60


@pytest.mark.parametrize("backend", ["egl", "osmesa"])
def test_either_way_to_draw_gives_the_picture(backend: str, tmp_path: Path) -> None:
    # In a process of its own: PyOpenGL keeps to the first that it was asked for.
    write_still_run(tmp_path / "run", "HalfCheetah-v5", (17, 6), 1)
    command = [*DVDRL, "render", "run", "--steps", "1"]
    environment = {**os.environ, "MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        assert done.stderr.startswith(f"dvdrl: nothing to draw with: MUJOCO_GL={backend} does not work here; ")
        pytest.skip(done.stderr)
    assert done.stdout.splitlines() == [f"run/videos/{name}" for name in ("member-0.mp4", "tiled.mp4", "tiled.png")]
    assert done.stderr == ""
    assert read(tmp_path / "run" / "videos" / "member-0.mp4")[0][0].std() > 20


@pytest.mark.usefixtures("gl")
def test_an_episode_that_ends_stays_as_it_was(tmp_path: Path) -> None:
    # Hopper falls at once when it does nothing; the others of the tiled video would go on.
    write_still_run(tmp_path / "run", "Hopper-v5", (11, 3), 1)
    alone, tiled, _ = render(tmp_path / "run", width=64, height=64)
    envs = dvdrl.make_vec("Hopper-v5", 1, autoreset_mode="Disabled")
    envs.reset(seed=[0])
    length = 0
    ended = False
    while not ended:
        _, _, (terminated,), (truncated,), _ = envs.step(np.zeros((1, 3)))
        ended, length = terminated or truncated, length + 1
    assert len(read(alone)[0]) == len(read(tiled)[0]) == length + 1


def test_other_environments_draw_themselves(tmp_path: Path) -> None:
    write_still_run(tmp_path / "run", "Pendulum-v1", (3, 1), 2, high=2.0)
    paths = render(tmp_path / "run", steps=5)
    pictures, rate, _ = read(paths[0])
    assert (len(pictures), rate, pictures[0].shape) == (6, 30, (500, 500, 3))  # Gymnasium's own rate and size


class Blind(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))


class Seeing(Blind):
    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode


@pytest.mark.parametrize("env", [Blind, Seeing])
def test_an_environment_that_cannot_draw_is_said(env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gymnasium.envs.registration.EnvSpec("Unseen-v0", entry_point=env)
    monkeypatch.setitem(gymnasium.registry, "Unseen-v0", spec)
    write_still_run(tmp_path / "run", "Unseen-v0", (2, 1), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium's own opinion of it
        with pytest.raises(DvdrlError, match="Unseen-v0 cannot be rendered: "):
            render(tmp_path / "run")
    assert not (tmp_path / "run" / "videos").exists()


def test_following_a_run_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_still_run(tmp_path / "run", "Point-v0", (6, 2), 1, iterations=25)
    metrics = tmp_path / "run" / "metrics.jsonl"
    # What the training process has done by the time of each look.
    done = iter([0, 4, 10, 12, 25])

    def train(seconds: float) -> None:  # noqa: ARG001
        lines = [f'{{"iteration": {index + 1}, "env_steps": 0}}\n' for index in range(next(done))]
        metrics.write_text("".join(lines))

    monkeypatch.setattr(module.time, "sleep", train)
    made = [paths[-1].name for paths in follow(tmp_path / "run", 10, steps=2)]
    assert made == ["tiled-10.mp4", "tiled-25.mp4"]
    names = {"member-0.mp4", "tiled.mp4", "tiled.png", *made}
    assert set(os.listdir(tmp_path / "run" / "videos")) == names


def test_without_a_way_to_draw_one_line_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROBE", "import sys; sys.exit(1)")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    with pytest.raises(DvdrlError) as error:
        module.backend.__wrapped__()
    assert str(error.value).endswith(
        "neither EGL nor OSMesa does work here; on Debian and Ubuntu: apt install libegl1 libgl1"
    )


def test_the_second_way_is_tried_where_the_first_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.platform, "system", lambda: "Linux")
    monkeypatch.setattr(module, "_PROBE", "import sys; sys.exit('{backend}' != 'osmesa')")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    assert module.backend.__wrapped__() == "osmesa"


@pytest.mark.usefixtures("gl")
@pytest.mark.parametrize("size", [{"width": 4096, "height": 16}, {"width": 16, "height": 4096}])
def test_the_largest_picture_is_drawn(size: dict[str, int], tmp_path: Path) -> None:
    write_still_run(tmp_path / "run", "HalfCheetah-v5", (17, 6), 4)
    *_, tiled, _ = render(tmp_path / "run", steps=1, **size)
    # ceil(sqrt(1.5 * 4)) = 3 columns, 2 rows.
    assert read(tiled)[0][0].shape == (2 * size["height"], 3 * size["width"], 3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"width": 321}, "width: expected an even number of at least 16, got 321"),
        ({"height": 0}, "height: expected an even number of at least 16, got 0"),
        ({"steps": 0}, "steps: expected at least 1, got 0"),
        ({"seed": -1}, "seed: expected 0 or more, got -1"),
        # Of 20 members there are ceil(sqrt(30)) = 6 columns and 4 rows; the codec takes 16384 pixels a side.
        ({"width": 100_000}, "width: expected at most 2730 for 20 members side by side, got 100000"),
        ({"width": 2732}, "width: expected at most 2730 for 20 members"),
        ({"height": 4098}, "height: expected at most 4096 for 20 members"),
    ],
)
def test_what_no_video_can_have_is_refused(options: dict[str, int], said: str, tmp_path: Path) -> None:
    write_run(tmp_path / "run", MLP((6, 2)), members=20)
    with pytest.raises(DvdrlError, match=said):
        render(tmp_path / "run", **options)
    assert not (tmp_path / "run" / "videos").exists()
