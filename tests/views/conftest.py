"""A real browser, without a display; tests that need one are skipped where none is installed."""

import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = ("--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no browser to look at pages with: apt install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=False, args=list(FLAGS))
        yield browser
        browser.close()


class Page:
    """A page, the errors that its console has shown, and the addresses that it asked for."""

    def __init__(self, context: Any):
        self.page = context.new_page()
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.page.on(
            "console", lambda said: self.errors.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.errors.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url[:60]))

    def texts(self, selector: str) -> list[str]:
        return [text.strip() for text in self.page.locator(selector).all_inner_texts()]

    def wait_for(self, expression: str, seconds: float = 20.0) -> None:
        """Until the expression is true; Playwright's own way needs an eval, which the page forbids."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < end, f"still not so: {expression}"
            self.page.wait_for_timeout(20)

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """open_page(address, width=.., network=..) -> Page"""
    contexts = []

    def open_one(address: str, *, width: int = 1400, network: bool = False, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_offline(not network)
        contexts.append(context)
        page = Page(context)
        page.page.goto(address)
        return page

    yield open_one
    for context in contexts:
        context.close()
