"""Point seen from above: a picture of every member's path around the wall."""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import mujoco
import numpy as np
from jaxtyping import Float
from matplotlib.patches import Rectangle

from dvdrl import files
from dvdrl.engines import make_vec
from dvdrl.errors import DvdrlError
from dvdrl.policies import Population
from dvdrl.runs.directory import Which, existing_run, population_of
from dvdrl.tasks.point import GOAL, Point

FORMATS = ("png", "svg", "pdf")


def refuse_what_has_no_picture(directory: Path, file: Path) -> None:
    """Refuse runs on tasks other than Point, and unknown file formats."""
    task = existing_run(directory).config.task
    if task != Point.id:
        raise DvdrlError(f"{directory}: only {Point.id} has paths to draw, this run is on {task}")
    if file.suffix.lower().removeprefix(".") not in FORMATS:
        raise DvdrlError(f"paths: expected a file that ends in .{', .'.join(FORMATS)}; got {file}")


def draw_paths(directory: Path, file: Path, which: Which = "last") -> None:
    """Roll out every member once and save a picture of the paths."""
    refuse_what_has_no_picture(directory, file)
    run = existing_run(directory)
    options = run.config
    task_options: dict[str, Any] = options.task_options
    task = Point(**task_options)
    paths, returns = roll_out(task, population_of(run, which)[1])

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for left, bottom, width, height in walls(task):
        axes.add_patch(Rectangle((left, bottom), width, height, color="0.4"))
    for member, (path, total) in enumerate(zip(np.swapaxes(paths, 0, 1), returns, strict=True)):
        axes.plot(*path.T, marker=".", label=f"member {member}: {total:.0f}")
    axes.plot(*GOAL, marker="*", markersize=14, color="black", linestyle="none", label="goal")
    axes.set(xlabel="x", ylabel="y", aspect="equal", title=f"{options.algorithm}, {len(returns)} members")
    reach = max(float(np.abs(paths[..., 1]).max()), task.wall_half_width) + 1
    axes.set_ylim(-reach, reach)
    figure.legend(loc="outside lower center", ncols=3)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        picture = BytesIO()
        figure.savefig(picture, format=file.suffix.lower().removeprefix("."), bbox_inches="tight")
        files.write_atomically(file, picture.getvalue(), durable=False)
    except OSError as error:
        raise DvdrlError(f"cannot write to {file}: {error.strerror}; --paths chooses another file") from error
    finally:
        plt.close(figure)


def walls(task: Point) -> list[tuple[float, float, float, float]]:
    """Left, bottom, width and height of each part of the wall, seen from above."""
    parts = []
    for geom in range(task.model.ngeom):
        if mujoco.mj_id2name(task.model, mujoco.mjtObj.mjOBJ_GEOM, geom).startswith("wall"):
            (x, y, _), (half_x, half_y, _) = task.model.geom_pos[geom], task.model.geom_size[geom]
            parts.append((float(x - half_x), float(y - half_y), float(2 * half_x), float(2 * half_y)))
    return parts


def roll_out(task: Point, population: Population) -> tuple[Float[np.ndarray, "steps M 2"], Float[np.ndarray, "M"]]:
    """The positions of every member, step by step, and its return."""
    envs = make_vec(task, len(population), autoreset_mode="Disabled")
    population.policy.refuse_other_spaces(envs.single_observation_space, envs.single_action_space)
    starts: Any = [0] * len(population)  # Gymnasium annotates seed as a single number
    obs, _ = envs.reset(seed=starts)
    paths, returns = [obs[:, :2]], np.zeros(len(population))
    for _ in range(task.horizon):
        obs, rewards, _, _, _ = envs.step(population.act_each(obs))
        paths.append(obs[:, :2])
        returns += rewards
    envs.close()
    return np.stack(paths), returns
