"""Measures how long it takes to write the report of a run of 10,000 iterations, and to draw it in Chromium.

Run by `python tools/page_speed.py`.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from dvdrl.views.report import report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from written_runs import numbers, write_numbers

with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
    run = write_numbers(Path(directory) / "run", numbers(range(1, 10_001), members=5))
    begin = time.perf_counter()
    page = report([run])
    print(f"written in {time.perf_counter() - begin:.2f} s, {page.stat().st_size / 1e6:.2f} MB")
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), chromium_sandbox=False)
    for _ in range(5):
        tab = browser.new_page(viewport={"width": 1400, "height": 900})
        tab.goto(page.as_uri())
        drawn = tab.evaluate("performance.getEntriesByName('rendered')[0].startTime")
        print(f"drawn {drawn / 1000:.2f} s after the request")
        tab.close()
    browser.close()
