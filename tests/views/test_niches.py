"""What the page shows of niche-ES: what it ends with, how those members differ, and what became of the present ones."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dvdrl.policies import MLP, Places, Standing
from dvdrl.runs import policies
from dvdrl.views import niches
from dvdrl.views.report import report
from written_runs import numbers, write_run

NAMES = ("torso height", "</script><b>x</b>", "forward velocity", "never")
PLACES = Places(
    quality=np.float32([30, 20.5, 10, 5]),
    behaviours=np.float32([[1.25, 0, 3.1, 7], [1.5, 1, -2.4, 7], [1, 0, 3, 7], [1.25, 900, 3.1, 7]]),
    coordinates=NAMES,
    relevance=np.float32([0.4, 0, 0.6, 0]),
    noise=np.float32([0.25, 0.1, 1, 0]),
)
STANDING = Standing(np.float32([1, 0.99, 0.02, 0.75]), np.array([True, True, False, True]), PLACES)


def test_the_coordinate_that_is_named_is_the_one_that_counts_most() -> None:
    differences = niches.differences(STANDING, PLACES)
    # Members 0 and 1 are 1 apart in units of noise in the first coordinate, which counts sqrt(0.4), and 5.5 in the
    # third, which counts sqrt(0.6). The second explains nothing, so 900 there is no difference, nor is member 3 one.
    forward = {"coordinate": "forward velocity", "here": 3.1, "there": -2.4}
    assert differences[0] == [{"member": 1, **forward}]
    assert differences[1][0] == {"member": 0, "coordinate": "forward velocity", "here": -2.4, "there": 3.1}
    assert differences[2] == []  # not distinct
    # Had the noise of the third been 10 instead, it would be 0.55 sqrt(0.6) = 0.43 to sqrt(0.4) = 0.63.
    noisy = PLACES._replace(noise=np.float32([0.25, 0.1, 10, 0]))
    assert niches.differences(STANDING, noisy)[0][0] == {
        "member": 1,
        "coordinate": "torso height",
        "here": 1.25,
        "there": 1.5,
    }


def test_of_many_members_the_nearest_are_named() -> None:
    M = 9
    places = Places(
        np.zeros(M, np.float32), np.arange(M, dtype=np.float32)[:, None] ** 2, ("x",), np.ones(1), np.ones(1)
    )
    differences = niches.differences(Standing(np.ones(M), np.ones(M, bool)), places)
    assert [each["member"] for each in differences[8]] == [7, 6, 5, 4]
    assert [each["member"] for each in differences[0]] == [1, 2, 3, 4]


def test_lives_are_stretches_and_points() -> None:
    lines = [{"iteration": t, "distinct": [t in (2, 3, 5), t == 5], "renewed": [False, t == 1]} for t in range(1, 6)]
    assert niches.lives(lines, 600) == {
        "x": [1, 2, 3, 4, 5],
        "distinct": [[[1, 3], [4, 5]], [[4, 5]]],
        "renewed": [[], [0]],
    }


def test_long_lives_keep_every_renewal() -> None:
    renewed = {7, 8, 77, 99}
    lines = [{"iteration": t, "distinct": [t >= 35], "renewed": [t in renewed]} for t in range(100)]
    # Ten parts of ten lines each. Of that from 30 to 39, one half is distinct, which is not most of it.
    assert niches.lives(lines, 10) == {
        "x": list(range(0, 100, 10)),
        "distinct": [[[4, 10]]],
        "renewed": [[0, 7, 9]],
    }


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [{"iteration": 1}],
        [{"iteration": 1, "distinct": [False], "renewed": [False]}],
        [{"iteration": 1, "distinct": "yes", "renewed": [1, None]}],
    ],
)
def test_without_lives_there_is_nothing_to_show(lines: list[dict[str, Any]]) -> None:
    assert niches.lives(lines, 600) is None


def test_lines_without_lives_are_gaps_in_them() -> None:
    lines = [{"iteration": 1, "distinct": [True]}, {"iteration": 2}, {"iteration": 3, "distinct": [True, True]}]
    assert niches.lives(lines, 600) == {
        "x": [1, 2, 3],
        "distinct": [[[0, 1], [2, 3]], [[2, 3]]],
        "renewed": [[], []],
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that ends with more members than its lines have."""
    directory = tmp_path / "run"
    population = write_run(directory, MLP((6, 4, 2)), members=4, task="Elsewhere-v0")
    policies.save(directory / "policies", replace(population, standing=STANDING))
    lines = numbers(range(1, 41))
    for line in lines:
        t = line["iteration"]
        line |= {"distinct": [t > 10, 20 < t < 31, False], "renewed": [False, t in (5, 31), t == 31]}
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


def test_runs_that_do_not_say_it_have_none_of_it(run: Path) -> None:
    assert niches.ends_with(run) is not None
    path = run / "policies" / "policies.json"
    path.write_text(path.read_text().replace("forward", "backward"))  # changed by somebody
    assert niches.ends_with(run) is None
    path.unlink()
    assert niches.ends_with(run) is None


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1400, "light")])
def test_the_page_shows_what_it_ends_with(run: Path, open_page: Any, width: int, scheme: str) -> None:
    page = open_page(report([run]).resolve().as_uri(), width=width, color_scheme=scheme)
    assert page.errors == []
    assert page.overflow() == 0
    assert page.page.locator(".card").count() == 4
    assert page.texts("#return-1") == ["return 20.5"]
    assert page.texts("[id^=distinct-]") == [
        "distinct, share 1.00",
        "distinct, share 0.99",
        "not distinct, share 0.02",
        "distinct, share 0.75",
    ]
    assert page.texts(".card:nth-child(1) .note") == ["differs from member 1 in forward velocity: 3.1 and −2.4"]
    assert page.texts(".card:nth-child(3) .note") == []
    # Filled circles are distinct, and the axes are the two coordinates that count most.
    assert page.page.locator("#places circle").count() == 4
    assert page.page.locator("#places circle.open").count() == 1
    assert "forward velocity and torso height" in page.texts("#places figcaption")[0]
    assert page.texts("#axis-x option")[:2] == ["forward velocity (0.60)", "torso height (0.40)"]


def test_the_map_of_places_can_be_read_and_changed_with_the_keyboard(run: Path, open_page: Any) -> None:
    page = open_page(report([run]).resolve().as_uri())
    picture = page.page.locator("#places svg")
    picture.focus()
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowRight")
    assert page.texts("#places .tip div") == [
        "member 1: distinct",
        "forward velocity: −2.4",
        "torso height: 1.5",
        "return: 20.5",
    ]
    page.page.keyboard.press("ArrowLeft")
    assert page.texts("#places .tip div")[0] == "member 0: distinct"

    def places() -> list[str]:
        found = page.page.locator("#places g").evaluate_all("all => all.map(each => each.getAttribute('transform'))")
        return [str(place) for place in found]

    # To the right is more, and so is up: members 0 and 1 differ in both.
    (x0, y0), (x1, y1) = (map(float, place[10:-1].split()) for place in places()[:2])
    assert x0 > x1
    assert y0 > y1  # pixels count downwards
    before = places()
    page.page.locator("#axis-y").select_option("2")
    assert "</script><b>x</b>" in page.texts("#places figcaption")[0]
    assert places() != before
    picture = page.page.locator("#places svg")
    box = picture.bounding_box()
    x, y = (float(number) for number in places()[3][10:-1].split())
    page.page.mouse.move(box["x"] + x, box["y"] + y)
    assert page.texts("#places .tip div")[0] == "member 3: distinct"
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)
    assert not page.page.locator("#places .tip").is_visible()
    assert page.errors == []


def test_lives_are_drawn_and_read(run: Path, open_page: Any) -> None:
    page = open_page(report([run]).resolve().as_uri())
    assert page.page.locator("#lives-chart path.bar").count() == 2  # member 2 never was distinct
    assert page.page.locator("#lives-chart circle.ink").count() == 3
    assert page.page.locator("#lives-chart svg text").all_text_contents()[:3] == ["0", "1", "2"]
    chart = page.page.locator("#lives-chart svg")
    chart.focus()
    page.page.keyboard.press("ArrowRight")
    for _ in range(30):
        page.page.keyboard.press("ArrowRight")
    assert page.texts("#lives-chart .tip div") == [
        "iteration 31",
        "member 0: distinct",
        "member 1: –",
        "member 2: –",
        "renewed: member 1, member 2",
    ]
    assert page.errors == []


def test_one_coordinate_is_enough(run: Path, open_page: Any) -> None:
    population = policies.load(run / "policies")
    one = Places(PLACES.quality, PLACES.behaviours[:, 2:3], ("x",), np.ones(1, np.float32), np.ones(1, np.float32))
    policies.save(run / "policies", replace(population, standing=STANDING._replace(places=one)))
    page = open_page(report([run]).resolve().as_uri())
    assert page.page.locator("#places circle").count() == 4
    assert page.errors == []


def test_cards_of_other_runs_say_who_is_distinct_at_an_iteration(run: Path, open_page: Any) -> None:
    population = policies.load(run / "policies")
    policies.save(run / "policies", replace(population, standing=STANDING._replace(places=None)))
    page = open_page(report([run]).resolve().as_uri())
    assert page.page.locator("#niches").count() == 0
    said = ["distinct-0", "distinct-1", "distinct-2"]
    assert [page.texts(f"#{each}")[0] for each in said] == ["distinct", "not distinct", "not distinct"]
    page.page.locator("#slider").fill("24")  # iteration 25
    assert [page.texts(f"#{each}")[0] for each in said] == ["distinct", "distinct", "not distinct"]
    assert page.errors == []
