"""The documentation site: built strictly and without a network, whole, and usable in a browser from files alone."""

import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from dvdrl.cli.parse import help_for, parsed

pytest.importorskip("zensical", reason="the extra `docs` is not installed")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> Path:
    done = subprocess.run([sys.executable, "tools/site.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    return ROOT / "build" / "site" / "html"


class Links(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, page: Path):
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors = {""}
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attributes if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "source", "video", "iframe") and "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    # 404.html is shown at any address, so its links begin at the root of a server.
    return {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}


def test_all_internal_links_hold(pages: dict[Path, Links]) -> None:
    broken = []
    for page, found in pages.items():
        for link in (*found.links, *found.loaded):
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not target.is_file() or (target in pages and unquote(parts.fragment) not in pages[target].anchors):
                broken.append((str(page), link))
    assert broken == []


def test_nothing_is_loaded_from_other_hosts(pages: dict[Path, Links]) -> None:
    assert {address for found in pages.values() for address in found.loaded if urlsplit(address).netloc} == set()


def test_bars_within_code_in_tables_have_no_backslash(site: Path) -> None:
    """GitHub needs one there."""
    assert r"`dvdrl report \| render`" in (ROOT / "docs" / "features.md").read_text()
    assert "<code>dvdrl report | render</code>" in (site / "docs" / "features.html").read_text()


def test_every_page_can_be_reached_by_the_navigation(site: Path) -> None:
    def leaves(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [leaf for each in (entry.values() if isinstance(entry, dict) else entry) for leaf in leaves(each)]

    source = site.with_name("source")
    named = leaves(tomllib.loads(site.with_name("zensical.toml").read_text())["project"]["nav"])
    assert sorted(named) == sorted(str(page.relative_to(source)) for page in source.rglob("*.md"))


@pytest.mark.parametrize("module", ["dvdrl", "dvdrl.diversity", "dvdrl.es", "dvdrl.off_policy", "dvdrl.policies"])
def test_every_public_name_is_in_the_reference(pages: dict[Path, Links], module: str) -> None:
    shown = set().union(*(found.anchors for page, found in pages.items() if page.parent.name == "reference"))
    ends = {anchor.rpartition(".")[2] for anchor in shown if anchor.startswith("dvdrl.")}
    assert {name for name in importlib.import_module(module).__all__ if name not in ends} == {"__version__"} & {
        *importlib.import_module(module).__all__
    }


def test_the_reference_has_the_help_of_every_command(site: Path) -> None:
    page = (site.with_name("source") / "reference" / "cli.md").read_text()
    done = subprocess.run([sys.executable, "-m", "dvdrl", "--help"], capture_output=True, text=True, check=True)
    commands = re.findall(r"^  ([a-z]+) ", done.stdout.partition("commands:")[2].partition("options:")[0], re.MULTILINE)
    assert len(commands) >= 9
    for command in [*commands, "train niche-es", "train dvd-td3"]:
        assert f"usage: dvdrl {command} " in page


def test_commands_that_no_test_runs_can_be_read() -> None:
    """Commands in ```console take long, or need a network or a cluster; those in ```bash are run."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("results/*/*.md")]
    blocks = [found for page in pages for found in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.M | re.S)]
    commands = [found for block in blocks for found in re.findall(r"^\w*\$ dvdrl (.+)$", block, re.M)]
    assert len(commands) > 30
    for command in commands:
        words = shlex.split(command, comments=True)
        assert words == ["--version"] or help_for(words) or parsed(words)  # else it is refused, with the reason


def test_pictures_of_concepts_show_what_is_computed(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "tools" / "pictures.py")
    assert spec
    assert spec.loader
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    pictures.draw(tmp_path)

    def texts(directory: Path) -> dict[str, list[str]]:
        drawn = {path.name: path.read_text() for path in directory.glob("*.svg")}
        return {name: re.findall(r"<text[^>]*>([^<]*)<", drawing) for name, drawing in drawn.items()}

    assert texts(tmp_path) == texts(ROOT / "docs" / "concepts")  # else: python tools/pictures.py


FOCUS = """
let focus = document.activeElement;
while (focus.shadowRoot && focus.shadowRoot.activeElement) focus = focus.shadowRoot.activeElement;
"""


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1400, "light")])
def test_search_and_navigation_by_the_keyboard_alone_without_a_network(
    site: Path, open_page: Any, width: int, scheme: str
) -> None:
    page = open_page((site / "index.html").resolve().as_uri(), width=width, color_scheme=scheme)
    keys = page.page.keyboard
    assert page.overflow() <= 0
    shown = page.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).slice(0, 3)")
    assert (max(map(float, shown)) < 60) == (scheme == "dark")
    for wide in ("docs/tasks.html", "docs/evidence.html", "reference/cli.html"):  # a formula, tables, long lines
        page.page.goto((site / wide).resolve().as_uri())
        assert page.overflow() <= 0
    page.page.goto((site / "index.html").resolve().as_uri())

    for _ in range(12):
        keys.press("Tab")
        if page.page.evaluate("document.activeElement.innerText.trim()") == "Start here":
            break
    keys.press("Enter")
    page.page.wait_for_url("**/docs/start.html")

    keys.press("/")
    page.wait_for(f"(() => {{ {FOCUS} return focus.tagName === 'INPUT' && focus.type === 'text' }})()")
    keys.type("rational quadratic")
    # Results come while one types; Enter opens the first one.
    first = "focus.getRootNode().querySelector('a[href]')?.href ?? ''"
    page.wait_for(f"(() => {{ {FOCUS} return ({first}).includes('diversity.html') }})()")
    keys.press("Enter")
    page.page.wait_for_url("**/diversity.html*")
    assert page.errors == []
    assert {address for address in page.asked if not address.startswith("file:")} == set()
