"""One self-contained HTML page about one or several runs. It opens offline in any browser and requests nothing.

A small script of ours (page/page.js) draws the figures from JSON inside the page. The curves are thinned here to what a
screen can show, so a run of any length takes a few hundred kilobytes.
"""

import base64
import contextlib
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from dvdrl import files
from dvdrl.errors import DvdrlError, expect
from dvdrl.runs import policies
from dvdrl.runs.directory import runs_in
from dvdrl.tasks import registry
from dvdrl.tasks.point import GOAL, Point
from dvdrl.views import niches, summary
from dvdrl.views.palette import COLOURS
from dvdrl.views.paths import roll_out, walls


def report(directories: Path | str | Sequence[Path | str], out: Path | str | None = None) -> Path:
    """Write one self-contained HTML page about a run, or about several to compare them.

    The page of a single run includes the videos that `dvdrl render` has made.

    Args:
        directories: one or several: run directories, those of several seeds, or folders of runs.
        out: the file to write. Default: report.html in the run directory, or in the current one for several runs.

    Returns:
        The file.

    Raises:
        DvdrlError: there is no run, one cannot be read, or the file cannot be written.
    """
    several: Any = [directories] if isinstance(directories, Path | str) else directories
    for each in several if isinstance(several, Iterable) else [several]:
        expect("directories", each, str, Path)
    if out is not None:
        expect("out", out, str, Path)
    runs = runs_in([Path(directory) for directory in several])
    out = Path(out) if out is not None else (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    page = make_page(gather(runs, videos=True))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomically(out, page.encode(errors="replace"), durable=False)
    except OSError as error:
        raise DvdrlError(f"cannot write to {out}: {error.strerror}; --out chooses another file") from error
    return out


def gather(runs: Sequence[Path], *, videos: bool) -> dict[str, Any]:
    """All data of the page, ready for JSON."""
    read = [(summary.read_config(run), summary.read_lines(run)) for run in runs]
    shown = []
    for run, (options, lines) in zip(runs, read, strict=True):
        about = summary.summarize_run(run, options, lines)
        about["paths"] = _paths(run, options)
        about["niches"] = niches.ends_with(run)
        about["lives"] = niches.lives(lines, summary.BUCKETS) if about["niches"] is not None else None
        about["videos"] = _videos(run) if videos and len(runs) == 1 else {}
        shown.append(about)
    return {
        "runs": shown,
        "comparison": summary.compare(read),
        "colours": len(COLOURS),
        "buckets": summary.BUCKETS,
    }


def make_page(data: dict[str, Any], *, watch: bool = False) -> str:
    """The page with its style, script and data. With `watch`, it asks its server for newer data."""
    part = resources.files("dvdrl.views") / "page"
    style = (part / "page.css").read_text() + "".join(f".c{i}{{--c:{colour}}}" for i, colour in enumerate(COLOURS))
    script = (part / "page.js").read_text()
    # Only the page's own script, style and address are allowed, whatever a run directory contains.
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; media-src data:; "
        f"connect-src '{'self' if watch else 'none'}'; base-uri 'none'; form-action 'none'"
    )
    run = data["runs"][0]
    page = Template((part / "page.html").read_text()).substitute(
        policy=policy,
        title=html.escape(f"{run['algorithm']} on {run['task']}"),
        style=style,
        script=script,
        data=to_json(data).replace("<", "\\u003c"),
    )
    return page.replace('<html lang="en">', '<html lang="en" data-watch="true">', 1) if watch else page


def to_json(data: dict[str, Any]) -> str:
    """The data as compact JSON."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _videos(run: Path) -> dict[str, str]:
    """The videos that `dvdrl render` has made, as data URLs: one per member, and `tiled`."""
    films = {}
    for path in (*(run / "videos").glob("member-*.mp4"), run / "videos" / "tiled.mp4"):
        with contextlib.suppress(OSError):  # there is none, or a link, which may point to anything
            content = files.read(path, most=files.MOST_OF_FILM, within=run)
            name = path.stem.removeprefix("member-")
            films[name] = "data:video/mp4;base64," + base64.b64encode(content).decode()
    return films


def _paths(run: Path, options: dict[str, Any]) -> dict[str, Any] | None:
    """The paths of the members of a run on Point, by its latest policies. None for other tasks or without policies."""
    if options.get("task") != Point.id:
        return None
    task_options = options.get("task_options")
    try:
        task = registry.make(Point.id, **(task_options if isinstance(task_options, dict) else {}))
        assert isinstance(task, Point)
        routes, returns = roll_out(task, policies.load(run / "policies"))
    except DvdrlError:
        return None
    members = routes.swapaxes(0, 1).round(3).tolist()
    return {"walls": walls(task), "goal": GOAL, "members": members, "returns": returns.tolist()}
