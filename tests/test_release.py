"""What a release consists of: metadata, workflows, sdist and wheel; and a new user, who has nothing but these."""

import datetime
import importlib.util
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def dist(release: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("release") / "dist"
    release.build(out)
    return out


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", ".github/workflows/*.yml"),
        ("vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/[bi]*.yml"),
        ("vendor.github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
    ],
)
def test_files_for_github_and_citation_are_valid(schema: str, files: str) -> None:
    paths = sorted(map(str, ROOT.glob(files)))
    assert paths
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *paths]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_workflows_are_linted() -> None:
    zizmor = Path(sys.executable).with_name("zizmor")
    lint = [zizmor, "--offline", "--no-progress", "--min-severity", "medium", ROOT / ".github"]
    done = subprocess.run(lint, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_version_is_the_same_everywhere(release: ModuleType) -> None:
    """The changelog gets its date with the release, so before it there is one difference, and the tag may add one."""
    said = release.differences(tag="v0.0.1")
    assert said[-1] == f"the tag is v0.0.1, the package has {release.version()}"
    assert [each for each in said[:-1] if not each.startswith("CHANGELOG.md")] == []


def test_the_changelog_is_dated_once(release: ModuleType, tmp_path: Path) -> None:
    changelog, now = tmp_path / "CHANGELOG.md", release.version()
    changelog.write_text("# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n")
    assert release.differences(changelog=changelog) == [
        f"CHANGELOG.md has no date for {now}: python tools/release.py date"
    ]
    release.date(changelog, now, datetime.date(2026, 3, 5))
    assert f"## [Unreleased]\n\n## [{now}] - 2026-03-05\n\n### Added\n" in changelog.read_text()
    assert release.differences(changelog=changelog) == []
    with pytest.raises(SystemExit, match="already"):
        release.date(changelog, now, datetime.date(2026, 3, 6))
    changelog.write_text(changelog.read_text().replace("d]\n", "d]\n\n- Another thing.\n", 1))
    assert len(release.differences(changelog=changelog)) == 1  # it belongs to no version


def test_the_sdist_has_all_that_its_tests_read(dist: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    left_out = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()} - names
    assert {name for name in left_out if not name.startswith((".ci/", ".pre-commit"))} == set()
    assert archive.stat().st_size < 10e6


def test_a_new_user_comes_to_a_film(release: ModuleType, dist: Path) -> None:
    """From the installation of the wheel to a film of their own training, by docs/start.md alone."""
    release.attempt(dist, sys.executable)
