"""The page in a real browser, with the network cut."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.policies import MLP
from dvdrl.runs import file
from dvdrl.views.render import render
from dvdrl.views.report import make_page, report
from written_runs import numbers, write_numbers, write_run

HOSTILE = "<script>alert(1)</script>"


def embedded(page: str) -> Any:
    """The data in a page, as its script reads them."""
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on Point with metrics, policies and videos."""
    directory = tmp_path_factory.mktemp("point") / "run"
    write_run(directory, MLP((6, 4, 2)), members=3)
    lines = "".join(json.dumps(line) + "\n" for line in numbers(range(1, 41)))
    (directory / "metrics.jsonl").write_text(lines)
    render(directory, steps=10, width=64, height=48)
    return directory


def address(path: Path) -> str:
    return path.resolve().as_uri()


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1400, "light")])
def test_everything_is_there_offline(point: Path, open_page: Any, width: int, scheme: str) -> None:
    out = report([point])
    assert out == point / "report.html"
    page = open_page(address(out), width=width, color_scheme=scheme)
    sections = ["overview", "returns", "control", "diversity", "behaviour", "members", "paths", "making"]
    assert page.page.locator("main > section").evaluate_all("all => all.map(each => each.id)") == sections
    assert page.overflow() == 0
    assert page.page.locator("html").get_attribute("data-theme") == scheme
    page.page.locator("#theme").click()
    assert page.page.locator("html").get_attribute("data-theme") != scheme
    page.wait_for("[...document.querySelectorAll('video')].every(each => each.readyState >= 1)")
    assert page.page.locator("video").evaluate_all("all => all.map(each => each.duration.toFixed(2))") == ["0.44"] * 4
    assert page.page.locator("#paths polyline").count() == 3
    assert page.errors == []
    assert page.asked == [address(out)[:60]]  # itself


def test_values_on_the_page_are_those_of_the_run(point: Path, open_page: Any) -> None:
    lines = numbers(range(1, 41))
    page = open_page(address(report([point])))

    def shown(value: float) -> str:
        return f"{float(f'{value:.6g}'):g}" if abs(value) < 1e5 else str(value)

    assert page.page.locator("[data-value=best_return]").inner_text().replace("−", "-") == shown(
        lines[-1]["best_return"]
    )
    # With the keyboard: into the first chart, to its first point, then to the second.
    chart = page.page.locator("#returns-chart svg")
    chart.focus()
    for index in (0, 1):
        page.page.keyboard.press("ArrowRight")
        tip = page.texts("#returns-chart .tip div")
        members = [f"member {m}: {shown(value)}" for m, value in enumerate(lines[index]["member_returns"])]
        expected = [f"iteration {index + 1}", *members, f"best: {shown(lines[index]['best_return'])}"]
        assert [text.replace("−", "-") for text in tip] == expected
    # With the pointer, at the right end.
    box = chart.bounding_box()
    page.page.mouse.move(box["x"] + box["width"] - 10, box["y"] + 50)
    assert page.texts("#returns-chart .tip div")[0] == "iteration 40"
    assert page.errors == []


def test_the_slider_moves_heat_map_map_and_cards(point: Path, open_page: Any) -> None:
    lines = numbers(range(1, 41))
    page = open_page(address(report([point])))

    def see() -> tuple[list[str], list[str], str]:
        places = page.page.locator(".map g").evaluate_all("all => all.map(each => each.getAttribute('transform'))")
        return page.texts("#heat td"), places, page.page.locator("#return-0").inner_text()

    def cells(line: dict[str, Any]) -> list[str]:
        a, b, c = (f"{value:.2f}" for value in line["similarities"])
        return ["1.00", a, b, a, "1.00", c, b, c, "1.00"]

    last = see()
    assert last[0] == cells(lines[-1])
    slider = page.page.locator("#slider")
    slider.focus()
    page.page.keyboard.press("Home")
    first = see()
    assert first[0] == cells(lines[0])
    assert page.page.locator("output").inner_text() == "iteration 1"
    assert all(before != after for before, after in zip(last[1], first[1], strict=True))
    assert first[2] != last[2]
    # The nearest other member of member 0: the smaller of its two distances.
    to_1, to_2, _ = lines[0]["distances"]
    assert f"nearest: member {1 if to_1 < to_2 else 2}, at {min(to_1, to_2):.3}"[:-1] in page.texts("#near-0")[0]
    page.page.keyboard.press("ArrowRight")
    assert see()[0] == cells(lines[1])
    page.page.locator("#play").click()
    page.wait_for("document.querySelector('output').textContent === 'iteration 5'")
    page.page.locator("#play").click()
    assert page.errors == []


def test_the_legend_switches_lines(point: Path, open_page: Any) -> None:
    page = open_page(address(report([point])))
    lines, button = (
        page.page.locator("#returns-chart path.line"),
        page.page.locator("#returns-chart .legend button").nth(1),
    )
    assert lines.count() == 4
    button.focus()
    page.page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "false"
    assert lines.count() == 3
    button.click()
    assert lines.count() == 4


@pytest.mark.parametrize(
    ("lines", "frames"),
    [
        (numbers([1]), 1),
        (numbers(range(1, 20), members=1), 19),
        (numbers([1, 2, 3, 30, 31, 60]), 6),
        (numbers(range(1, 10_001), members=5), 300),
        ([{k: v for k, v in line.items() if "distance" not in k} for line in numbers([1, 2])], 0),
        ([], 0),
    ],
    ids=["one iteration", "one member", "gaps", "10,000 iterations", "an older run", "no iteration yet"],
)
def test_runs_of_every_shape(lines: list[dict[str, Any]], frames: int, tmp_path: Path, open_page: Any) -> None:
    out = report([write_numbers(tmp_path / "run", lines)])
    assert out.stat().st_size < 2e6
    page = open_page(address(out), width=400)
    assert page.errors == []
    assert page.overflow() == 0
    assert page.page.locator("#behaviour").count() == (1 if frames else 0)
    if frames:
        assert page.page.locator("#slider").get_attribute("max") == str(frames - 1)
    assert page.page.locator(".card").count() == (len(lines[0]["member_returns"]) if lines else 0)
    if len(lines) == 6:  # three stretches, of which the last is a single point
        best = page.page.locator("#returns-chart path.ink").get_attribute("d")
        assert best.count("M") == 2
        assert page.page.locator("#returns-chart circle.ink").count() == 1
    if len(lines) > 1000:
        assert "10,000 iterations in 600 parts" in page.page.locator("#diversity .note").inner_text()
        assert page.page.evaluate("performance.getEntriesByName('rendered').length") == 1


def test_names_stay_text(tmp_path: Path, open_page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = write_numbers(
        Path(HOSTILE), numbers([1, 2]), task=HOSTILE, task_options={"</script><img src=x onerror=alert(2)>": 1}
    )
    other = write_numbers(Path('"><svg onload=alert(3)>'), numbers([1, 2]), task="HalfCheetah-v5")
    for directories in ([run], [run, other]):
        out = report(directories, tmp_path / "page.html")
        page = open_page(address(out))
        assert page.page.locator("h1").inner_text() == f"dvd-es on {HOSTILE}"
        assert page.page.title() == f"dvd-es on {HOSTILE}"
        assert HOSTILE in page.page.locator("#status").inner_text()
        assert "onerror=alert(2)" in page.page.locator("#command").inner_text()
        assert page.page.locator("img, [onload]").count() == 0
        assert page.errors == []  # a dialog would be among them


def test_several_runs_are_compared(tmp_path: Path, open_page: Any) -> None:
    for seed in range(3):
        write_numbers(tmp_path / "dvd" / f"seed-{seed}", numbers(range(1, 30), seed=seed), seed=seed)
    write_numbers(tmp_path / "other", numbers(range(1, 40), seed=9), sigma=0.5)
    out = report([tmp_path / "dvd", tmp_path / "other"], tmp_path / "page.html")
    page = open_page(address(out))
    assert page.texts("#comparison .legend button") == ["dvd-es, sigma 0.05 (3)", "dvd-es, sigma 0.5 (1)"]
    assert page.page.locator("#comparison path.band").count() == 1
    before = page.page.locator("#comparison path.line").first.get_attribute("d")
    page.page.locator("#measure").select_option("vendi_1")
    assert page.page.locator("#comparison path.line").first.get_attribute("d") != before
    page.page.locator("#run").select_option("3")
    assert page.page.locator("#status").inner_text() == f"{tmp_path}/other: 39 iterations"
    assert page.errors == []


def test_data_hold_what_the_run_holds(tmp_path: Path) -> None:
    lines = numbers(range(1, 30))
    (run,) = embedded(report([write_numbers(tmp_path / "run", lines)]).read_text())["runs"]
    assert run["curves"]["best_return"]["y"] == [line["best_return"] for line in lines]
    assert [frame["similarities"] for frame in run["frames"]] == [line["similarities"] for line in lines]


def test_a_page_asks_for_nothing(tmp_path: Path) -> None:
    page = report([write_numbers(tmp_path / "run", numbers([1]))]).read_text()
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a language, which nobody asks for
    assert "connect-src 'none'" in page


def test_a_link_is_no_video(tmp_path: Path) -> None:
    run = write_numbers(tmp_path / "run", numbers([1]))
    (tmp_path / "secret").write_text("key")
    (run / "videos").mkdir()
    (run / "videos" / "member-0.mp4").symlink_to(tmp_path / "secret")
    (run / "videos" / "member-1.mp4").write_bytes(b"film")
    data = embedded(report([run]).read_text())
    assert data["runs"][0]["videos"] == {"1": "data:video/mp4;base64,ZmlsbQ=="}


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(DvdrlError, match="not a run directory"):
        report([tmp_path])
    with pytest.raises(DvdrlError, match="no run directory given"):
        report([])
    run = write_numbers(tmp_path / "run", numbers([1]))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DvdrlError, match="--out chooses another file"):
        report([run], tmp_path / "file" / "page.html")
    assert report([run], tmp_path / "new" / "page.html").is_file()


def test_dollar_signs_are_not_placeholders(tmp_path: Path) -> None:
    page = report([write_numbers(tmp_path / "$data", [], task="$title")]).read_text()
    assert "dvd-es on $title" in page
    assert make_page(embedded(page)) == page
    assert file.from_json(tmp_path / "$data" / "config.json").task == "$title"


def test_a_run_that_was_trained(tmp_path: Path, open_page: Any) -> None:
    options = {
        "population": 2,
        "sensings": 2,
        "hidden": (4,),
        "iterations": 3,
        "num_states": 5,
        "normalization": "none",
    }
    dvdrl.train(dvdrl.DvDES(task="Point-v0", out=tmp_path / "run", **options))
    page = open_page(address(report([tmp_path / "run"])))
    assert page.page.locator("#slider").get_attribute("max") == "2"
    assert page.page.locator("#paths polyline").count() == 2
    assert page.errors == []
