"""docs/reproduction.md and the pages of experiments say what results/ says."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def documents():
    spec = importlib.util.spec_from_file_location("reproduction", ROOT / "tools" / "reproduction.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.documents()


def test_the_documents_are_what_the_results_make_them(documents):
    other = [str(path.relative_to(ROOT)) for path, text in documents.items() if path.read_text() != text]
    assert other == []  # else: make reproduction


def test_every_verdict_is_one_sentence_or_two(documents):
    rows = [line for line in documents[ROOT / "docs" / "reproduction.md"].splitlines() if line.startswith("| [")]
    for row in rows:
        verdict = row.split(" | ")[2]
        assert 1 <= len(re.findall(r"[a-z0-9)]\.(?: |$)", verdict)) <= 2, verdict


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/**/*.md")], ids=lambda path: str(path)
)
def test_links_to_files_lead_somewhere(page):
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
        assert "://" in target or (page.parent / target).exists(), target
