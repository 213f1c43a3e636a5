"""Files of a directory that somebody else has made: links, pipes, devices and sizes."""

import ast
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dvdrl
from dvdrl import files

SOURCE = Path(dvdrl.__file__).parent
OPENS = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "touch", "unlink", "rename", "replace"),
    *("safe_open", "load_file", "save_file", "tofile", "fromfile"),
    *("savefig", "save", "savez", "loadtxt", "savetxt", "genfromtxt", "symlink_to", "hardlink_to"),
}
ELSEWHERE = {
    # The parts of the page.
    ("views/report.py", "read_text"),
    # A header that MuJoCo is installed with.
    ("engines/post_constraint.py", "read_text"),
    # What the kernel reports of memory, at fixed paths.
    ("runs/memory.py", "read_text"),
    # The null device, where output goes that nobody reads any more.
    ("process.py", "open"),
    # A codec opens its file by its path: one in a new temporary directory.
    ("views/movie.py", "open"),
    # What worker processes map: a file in a new temporary directory.
    ("rollouts/worker.py", "save"),
    # By the descriptor of a file that `files` has opened.
    ("runs/tensors.py", "safe_open"),
}
"""Where something else than a file of a run is opened, or one that has been opened already."""


def calls() -> set[tuple[str, str]]:
    """(module, function) of what opens or changes a file by its path; pictures are saved into memory."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert all(alias.name != "shutil" for alias in node.names), path
            if isinstance(node, ast.ImportFrom) and node.module == "shutil":
                assert [alias.name for alias in node.names] == ["get_terminal_size"], path
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            owner = getattr(getattr(node.func, "value", None), "id", "")
            # `replace` of dataclasses and of texts; `save` of our own modules; what goes into a BytesIO.
            ours = owner in ("checkpoint", "policies", "figures", "files") or (path.stem, name) == ("figures", "save")
            other = ours or (name == "replace" and owner != "os")
            into_memory = any(getattr(argument, "id", "") == "picture" for argument in node.args)
            if name in OPENS and not other and not into_memory:
                found.add((path.relative_to(SOURCE).as_posix(), name))
    return found


def test_nothing_else_opens_files() -> None:
    assert {each for each in calls() if each[0] != "files.py"} == ELSEWHERE


READERS: list[Callable[[Path], Any]] = [
    lambda path: files.read(path, most=100),
    files.read_json,
    lambda path: list(files.read_lines(path)),
]
WRITERS: list[Callable[[Path], Any]] = [
    files.create,
    lambda path: files.opened_to_append(path).__enter__(),
]


@pytest.mark.parametrize("function", READERS + WRITERS)
def test_a_link_a_pipe_and_a_device_are_refused_at_once(function: Callable[[Path], Any], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}\n")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "dangling"):
        with pytest.raises(OSError, match=f"{name} is a link, and links are not followed here"):
            function(tmp_path / name)
    for path in (tmp_path / "folder", tmp_path / "pipe", Path("/dev/null"), Path("/dev/zero")):
        with pytest.raises(OSError, match=f"{path.name} is not a regular file"):
            function(path)
    assert (tmp_path / "secret").read_text() == "{}\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "function",
    [
        lambda path, within: files.read(path, most=100, within=within),
        lambda path, within: files.create(path, within=within),
        lambda path, within: files.write_atomically(path, b"new", within=within),
        lambda path, within: files.make_folder(path, within=within),
        lambda path, within: files.remove(path, within=within),
    ],
)
def test_a_folder_that_is_a_link_is_not_entered(function: Callable[[Path, Path], Any], tmp_path: Path) -> None:
    (tmp_path / "outside" / "inner").mkdir(parents=True)
    (tmp_path / "outside" / "inner" / "file").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "folder").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="folder is a link, and links are not followed here"):
        function(tmp_path / "run" / "folder" / "inner" / "file", tmp_path / "run")
    assert [path.name for path in (tmp_path / "outside" / "inner").iterdir()] == ["file"]
    assert (tmp_path / "outside" / "inner" / "file").read_text() == "precious"
    # The directory that the user has named may be one, and what is above it.
    (tmp_path / "mine").symlink_to(tmp_path / "outside")
    files.write_atomically(tmp_path / "mine" / "inner" / "file", b"new", within=tmp_path / "mine")
    assert (tmp_path / "outside" / "inner" / "file").read_text() == "new"


def test_writing_replaces_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("precious")
    for name in ("file", f".file{files.PARTIAL}"):
        (tmp_path / name).symlink_to(tmp_path / "outside")
    files.write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "outside").read_text() == "precious"


def test_sizes_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.truncate(2**40)  # a hole: it takes no room
    for read in READERS:
        with pytest.raises(OSError, match=f"large has {2**40} bytes, and at most [0-9]+ are read"):
            read(tmp_path / "large")
    monkeypatch.setattr(files, "MOST_OF_LINE", 10)
    (tmp_path / "lines").write_bytes(b"012345678\n" * 3 + b"cut short")
    assert list(files.read_lines(tmp_path / "lines")) == [b"012345678\n"] * 3
    (tmp_path / "lines").write_bytes(b"012345678\n" + b"01234567890\n")
    with pytest.raises(OSError, match="lines has a line of more bytes, and at most 10 are read"):
        list(files.read_lines(tmp_path / "lines"))


def test_json_is_not_nested_deeper_than_python_can_follow(tmp_path: Path) -> None:
    for depth, deep in ((50, False), (51, True), (900, True), (100_000, True)):
        for before, after in (("[", "]"), ('{"a":', "}")):
            (tmp_path / "file").write_text(before * depth + ("1" if before != "[" else "") + after * depth)
            if deep:
                with pytest.raises(ValueError, match="nested"):
                    files.read_json(tmp_path / "file")
            else:
                files.read_json(tmp_path / "file")
    (tmp_path / "file").write_text("3")
    assert files.read_json(tmp_path / "file") == 3
