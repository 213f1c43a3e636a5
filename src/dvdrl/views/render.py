"""Films of a population: an MP4 of each member, and one with all of them side by side. No display is needed.

All members start in the same state. There is one picture per control step, played at the speed of the simulation.
MuJoCo draws its tasks, this module draws Point from above, and other environments draw themselves.
"""

import functools
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.progress import track

from dvdrl import files
from dvdrl.engines import imported, is_jax, perturbing
from dvdrl.engines.gymnasium import make_rendered
from dvdrl.engines.host import HostVectorEnv
from dvdrl.errors import DvdrlError, expect, explained
from dvdrl.policies import Population
from dvdrl.runs.changes import refuse_edited
from dvdrl.runs.directory import Run, Which, existing_run, population_of
from dvdrl.runs.file import refuse_unknown_module
from dvdrl.runs.trainer import wrappers_of
from dvdrl.tasks import registry
from dvdrl.tasks.perturbations import UNPERTURBED, Perturb, checked, of_model, parsed
from dvdrl.tasks.point import GOAL, Point
from dvdrl.tasks.task import Task, compiled
from dvdrl.views.movie import MOST, Movie, writing
from dvdrl.views.palette import COLOURS
from dvdrl.views.paths import walls

Picture = NDArray[np.uint8]
Draw = Callable[[int, NDArray[np.float64]], Picture]
"""A function from a member and its MuJoCo positions to its picture."""

_LARGEST, _LARGEST_TILED = 4096, 16384
"""The most pixels per side: of a picture, as any OpenGL can draw; and of the tiled film, as the codec accepts."""
_GYMNASIUMS_RENDERER = "gymnasium.envs.mujoco.mujoco_rendering"
"""The module that environments with MuJoCo's physics import to draw themselves."""
_BACKENDS = {"Linux": ("egl", "osmesa"), "Darwin": ("cgl",)}
_PROBE = """
import mujoco
from mujoco.{backend} import GLContext
context = GLContext(8, 8)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100.value)
"""


class Moment(NamedTuple):
    """All members at one control step."""

    pictures: list[Picture]
    returns: NDArray[np.float64]
    """The returns of the episodes so far."""
    ended: NDArray[np.bool_]
    """The episodes that had ended before this step; their pictures no longer change."""


@dataclass(frozen=True)
class Film:
    """The moments of a population's episode."""

    rate: Fraction
    """Pictures per second."""
    moments: Iterator[Moment]


def render(
    directory: Path | str,
    *,
    width: int = 320,
    height: int = 240,
    steps: int | None = None,
    seed: int = 0,
    which: Which = "last",
    perturb: Perturb = UNPERTURBED,
) -> list[Path]:
    """Film the members of a run.

    Writes `videos/member-0.mp4`, .., `videos/tiled.mp4`, and the last tiled picture as a PNG.

    Args:
        directory: the run directory.
        width: of a member's picture; environments that draw themselves have their own size.
        height: of a member's picture.
        steps: the most control steps; default: the whole episode.
        seed: of the state in which all members start.
        which: which population of the run; by default, the current one.
        perturb: what is changed in the task, such as {"friction": 0.5}; see docs/adapt.md.

    Returns:
        The files.

    Raises:
        DvdrlError: the directory is not a run, an argument is not possible, or nothing can draw or write videos here.
    """
    for name, value in (("width", width), ("height", height), ("seed", seed), ("steps", 1 if steps is None else steps)):
        expect(name, value, int)
    expect("perturb", perturb, Mapping)
    for name, value in (("width", width), ("height", height)):
        if value < 16 or value % 2:
            raise DvdrlError(f"{name}: expected an even number of at least 16, got {value}")
    if steps is not None and steps < 1:
        raise DvdrlError(f"steps: expected at least 1, got {steps}")
    if seed < 0:
        raise DvdrlError(f"seed: expected 0 or more, got {seed}")
    if find_spec("av") is None:
        raise DvdrlError("PyAV, which writes the videos, is not installed; pip install 'dvdrl[video]'")
    run = existing_run(directory)
    refuse_edited(run)
    directory = run.directory
    population = population_of(run, which)[1]
    members = len(population)
    for name, value, count in zip(("width", "height"), (width, height), _grid(members), strict=True):
        largest = min(_LARGEST, _LARGEST_TILED // count)
        if value > largest:
            raise DvdrlError(f"{name}: expected at most {largest} for {members} members side by side, got {value}")
    film = _film(run, population, width, height, seed, perturb)
    videos = directory / "videos"
    with writing(videos):
        files.make_folder(videos)
    paths = [*(videos / f"member-{member}.mp4" for member in range(members)), videos / "tiled.mp4"]
    with writing(videos), ExitStack() as opened:
        # Written elsewhere first: the codec opens its file by its path.
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="dvdrl-films-")))
        *alone, together = (opened.enter_context(Movie(folder / path.name, film.rate)) for path in paths)
        shown = sys.stderr.isatty()
        moments = track(film.moments, "rendering", console=Console(stderr=True), disable=not shown)
        for step, moment in enumerate(moments):
            labelled = [
                _labelled(picture, f"member {member}   return {total:,.1f}")
                for member, (picture, total) in enumerate(zip(moment.pictures, moment.returns, strict=True))
            ]
            for member in np.flatnonzero(~moment.ended):
                alone[member].add(labelled[member])
            together.add(tiled := _tiled(labelled))
            if step == steps:
                break
        for movie, path in zip((*alone, together), paths, strict=True):
            files.write_atomically(path, movie.finish(), durable=False, within=directory)
        picture = BytesIO()
        Image.fromarray(tiled).save(picture, format="PNG", optimize=True)
        files.write_atomically(videos / "tiled.png", picture.getvalue(), durable=False, within=directory)
    return [*paths, videos / "tiled.png"]


def follow(directory: Path, every: int, **options: Any) -> Iterator[list[Path]]:
    """Render a run during training: after each `every` iterations, and at its end.

    The videos are replaced each time. A copy of the tiled one is kept as tiled-ITERATION.mp4.
    """
    if every < 1:
        raise DvdrlError(f"every: expected at least 1, got {every}")
    run, due = existing_run(directory), every
    while True:
        finished = run.finished
        iteration = lines[-1]["iteration"] if (lines := run.metrics) else 0
        if iteration >= due or finished:
            paths = render(directory, **options)
            tiled = directory / "videos" / "tiled.mp4"
            kept = tiled.with_stem(f"tiled-{iteration}")
            with writing(tiled.parent):
                content = files.read(tiled, most=MOST, within=directory)
                files.write_atomically(kept, content, durable=False, within=directory)
            yield [*paths, kept]
            due = iteration - iteration % every + every
        if finished:
            return
        time.sleep(1.0)


def _film(run: Run, population: Population, width: int, height: int, seed: int, perturb: Perturb) -> Film:
    options = run.config
    refuse_unknown_module(options)
    perturb = {**parsed(options.perturb), **perturb}
    if is_jax(options.task):
        raise DvdrlError(f"{options.task} cannot be rendered: JAX environments draw no pictures")
    task_id, wrappers = imported(options.task), wrappers_of(options)
    if task_id not in registry.TASKS or wrappers:
        around = (*perturbing(task_id, perturb), *wrappers)
        envs = [make_rendered(task_id, around, **options.task_options) for _ in range(len(population))]
        return _film_of_environments(task_id, envs, population, seed)
    task = registry.make(task_id, **options.task_options)
    checked(task_id, of_model(task.model), perturb)  # now, before anything is written
    drawing: AbstractContextManager[Draw]
    if isinstance(task, Point):
        drawing = nullcontext(_from_above(task, width, height))
    else:
        drawing = _by_mujoco(task, width, height, backend())
    return Film(1 / Fraction(task.dt).limit_denominator(10_000), _simulate(task, population, drawing, seed, perturb))


def _simulate(
    task: Task, population: Population, drawing: AbstractContextManager[Draw], seed: int, perturb: Perturb
) -> Iterator[Moment]:
    """Step one simulation per member."""
    M = len(population)
    envs = HostVectorEnv(task, M, "Disabled", perturb=perturb)
    seeds: Any = [seed] * M
    obs, _ = envs.reset(seed=seeds)
    population.policy.refuse_other_spaces(envs.single_observation_space, envs.single_action_space)
    qpos = envs.batch.bind("qpos")
    returns, ended = np.zeros(M), np.zeros(M, bool)
    with closing(envs), drawing as draw:
        pictures = [draw(member, qpos[member]) for member in range(M)]
        yield Moment(list(pictures), returns.copy(), ended.copy())
        while not ended.all():
            obs, rewards, terminated, truncated, _ = envs.step(population.act_each(obs))
            returns += rewards
            for member in np.flatnonzero(~ended).tolist():
                pictures[member] = draw(member, qpos[member])
            yield Moment(list(pictures), returns.copy(), ended.copy())
            ended |= terminated | truncated


def _film_of_environments(task_id: str, envs: list[Any], population: Population, seed: int) -> Film:
    """Film one environment per member; they draw themselves."""
    population.policy.refuse_other_spaces(envs[0].observation_space, envs[0].action_space)
    if _GYMNASIUMS_RENDERER in sys.modules:
        os.environ["MUJOCO_GL"] = backend()  # it reads this variable

    def moments() -> Iterator[Moment]:
        M = len(envs)
        with _failing(task_id), ExitStack() as opened:
            for env in envs:
                opened.callback(env.close)
            obs = np.stack([env.reset(seed=seed)[0] for env in envs])
            returns, ended = np.zeros(M), np.zeros(M, bool)
            pictures = [_even(env.render()) for env in envs]
            yield Moment(pictures, returns.copy(), ended.copy())
            while not ended.all():
                actions = population.act_each(obs)
                before = ended.copy()
                for member in np.flatnonzero(~before):
                    obs[member], reward, terminated, truncated, _ = envs[member].step(actions[member])
                    returns[member] += float(reward)
                    ended[member] = terminated or truncated
                    pictures[member] = _even(envs[member].render())
                yield Moment(list(pictures), returns.copy(), before)

    return Film(Fraction(envs[0].metadata.get("render_fps", 30)).limit_denominator(10_000), moments())


@contextmanager
def _failing(task_id: str) -> Iterator[None]:
    """Turn what an environment raises into one line."""
    try:
        yield
    except DvdrlError:
        raise
    except Exception as error:  # other people's code may raise anything
        raise DvdrlError(f"{task_id} cannot be rendered: {explained(error)}") from error


@functools.cache
def backend() -> str:
    """The way to draw without a display: MUJOCO_GL if set, else the first of EGL and OSMesa that works.

    Each is tried in a separate process, because PyOpenGL cannot change after its first choice. With -P that process
    imports nothing from the working directory.
    """
    named = os.environ.get("MUJOCO_GL")
    candidates = (named,) if named else _BACKENDS.get(platform.system(), ("glfw",))
    for candidate in candidates:
        code = _PROBE.format(backend=candidate)
        environment = {**os.environ, "MUJOCO_GL": candidate}
        tried = subprocess.run([sys.executable, "-P", "-c", code], env=environment, capture_output=True, check=False)
        if tried.returncode == 0:
            return candidate
    failed = f"MUJOCO_GL={named} does not" if named else "neither EGL nor OSMesa does"
    raise DvdrlError(f"nothing to draw with: {failed} work here; on Debian and Ubuntu: apt install libegl1 libgl1")


@contextmanager
def _by_mujoco(task: Task, width: int, height: int, through: str) -> Iterator[Draw]:
    """A picture by MuJoCo, from the camera `track` if the model has it (Gymnasium's do), else from a free camera."""
    spec = task.spec()
    # Without a GPU, shadows and smoothed edges take most of the time.
    spec.visual.quality.shadowsize = 0
    spec.visual.quality.offsamples = 0
    _widen_floors(spec)
    spec.visual.global_.offwidth, spec.visual.global_.offheight = width, height
    model = compiled(spec)
    data = mujoco.MjData(model)
    context = import_module(f"mujoco.{through}").GLContext(width, height)
    context.make_current()
    scene, option, camera = mujoco.MjvScene(model, maxgeom=10_000), mujoco.MjvOption(), mujoco.MjvCamera()
    scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
    scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
    mujoco.mjv_defaultFreeCamera(model, camera)
    tracking = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
    if tracking >= 0:
        camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, tracking
    drawing = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, drawing)
    frame = mujoco.MjrRect(0, 0, width, height)

    def draw(member: int, qpos: NDArray[np.float64]) -> Picture:  # noqa: ARG001
        context.make_current()
        data.qpos[:] = qpos
        mujoco.mj_forward(model, data)
        mujoco.mjv_updateScene(model, data, option, None, camera, mujoco.mjtCatBit.mjCAT_ALL.value, scene)
        mujoco.mjr_render(frame, scene, drawing)
        pixels = np.empty((height, width, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, frame, drawing)
        return pixels[::-1]

    try:
        yield draw
    finally:
        drawing.free()
        context.free()


def _widen_floors(spec: Any, factor: int = 10) -> None:
    """Enlarge floors. Planes are infinite in physics but not in pictures, and good runners leave Gymnasium's floors."""
    planes = [geom for geom in spec.geoms if geom.type == mujoco.mjtGeom.mjGEOM_PLANE]
    for geom in planes:
        geom.size[:2] *= factor
    for material in spec.materials:
        if material.name in {geom.material for geom in planes} and not material.texuniform:
            material.texrepeat *= factor


def _from_above(task: Point, width: int, height: int) -> Draw:
    """Point, its wall and its goal, seen from above, with the path so far."""
    finer = 2  # draw larger and scale down, for smooth edges
    reach = max(12.0, task.wall_half_width + 6)
    scale = finer * min(width / 36, height / (2 * reach))
    paths: dict[int, list[tuple[float, float]]] = {}

    def at(x: float, y: float) -> tuple[float, float]:
        return (x - 14) * scale + finer * width / 2, finer * height / 2 - y * scale

    def draw(member: int, qpos: NDArray[np.float64]) -> Picture:
        image = Image.new("RGB", (finer * width, finer * height), "#e8e8e8")
        pen = ImageDraw.Draw(image)
        for left, bottom, wide, high in walls(task):
            pen.rectangle((at(left, bottom + high), at(left + wide, bottom)), fill="#666666")
        pen.circle(at(*GOAL), 0.7 * scale, fill="#2ca02c")
        path = paths.setdefault(member, [])
        path.append(at(float(qpos[0]), float(qpos[1])))
        colour = COLOURS[member % len(COLOURS)]
        pen.line(path, fill=colour, width=2 * finer)
        pen.circle(path[-1], 0.5 * scale, fill=colour, outline="black")
        return np.asarray(image.resize((width, height), Image.Resampling.BOX))

    return draw


def _even(picture: Any) -> Picture:
    """Cut the last row or column if their number is odd, because the codec halves the resolution of colours."""
    height, width = (size - size % 2 for size in picture.shape[:2])
    return np.asarray(picture, np.uint8)[:height, :width]


@functools.cache
def _font() -> Any:
    return ImageFont.load_default(size=14)


def _labelled(picture: Picture, text: str) -> Picture:
    image = Image.fromarray(np.ascontiguousarray(picture))
    pen = ImageDraw.Draw(image)
    left, top, right, bottom = pen.textbbox((6, 4), text, font=_font())
    pen.rectangle((left - 4, top - 3, right + 4, bottom + 3), fill="black")
    pen.text((6, 4), text, fill="white", font=_font())
    return np.asarray(image)


def _grid(count: int) -> tuple[int, int]:
    """Columns and rows for this many pictures; the grid is somewhat wider than high."""
    columns = math.ceil(math.sqrt(1.5 * count)) if count > 3 else count
    return columns, math.ceil(count / columns)


def _tiled(pictures: list[Picture]) -> Picture:
    """Arrange pictures of one size in rows."""
    columns, rows = _grid(len(pictures))
    height, width, _ = pictures[0].shape
    tiled = np.zeros((rows * height, columns * width, 3), np.uint8)
    for index, picture in enumerate(pictures):
        row, column = divmod(index, columns)
        tiled[row * height : (row + 1) * height, column * width : (column + 1) * width] = picture
    return tiled
