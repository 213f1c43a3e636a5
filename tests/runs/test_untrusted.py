"""Run directories from somebody else: reading them runs no code, writes nothing elsewhere, and ends in a result or an
error of ours, whatever they hold."""

import ast
import contextlib
import json
import os
import pickle
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.policies import MLP
from dvdrl.runs import checkpoint, file, metrics, transitions
from dvdrl.runs.directory import planned
from dvdrl.views.report import gather, make_page
from written_runs import numbers, write_numbers, write_run

MANY = int(os.environ.get("FUZZ_EXAMPLES", "40"))
SOURCE = Path(dvdrl.__file__).parent


def test_no_code_of_ours_reads_pickles_or_evaluates_text() -> None:
    forbidden = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "runpy"}
    calls = {"eval", "exec", "compile", "__import__"}
    imports_by_name = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                assert not forbidden.intersection(name.split(".")[0] for name in names), path
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                assert not (isinstance(node.func, ast.Name) and name in calls), path
                assert not any(keyword.arg in ("allow_pickle", "weights_only") for keyword in node.keywords), path
                if name == "import_module":
                    imports_by_name.add(path.relative_to(SOURCE).as_posix())
    # Of public names, of subcommands, of what draws; of modules that the user names, or that a file names, after
    # `refuse_unknown_module`; of an algorithm's trainer, which its class names and no file can.
    assert imports_by_name == {"__init__.py", "cli/studies.py", "imports.py", "runs/loop.py", "views/render.py"}
    # What passes between this process and its own workers, through pipes and not through files.
    users = {path.name for path in SOURCE.rglob("*.py") if "CloudpickleWrapper" in path.read_text()}
    assert users == {"gymnasium.py"}


class Bomb:
    """Leaves a file behind if it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with something of everything."""
    directory = tmp_path_factory.mktemp("theirs") / "run"
    write_run(directory, MLP((6, 4, 2)))
    made = write_numbers(directory.with_name("numbers"), numbers([1, 2, 3]), task="Point-v0")
    shutil.copy(made / "metrics.jsonl", directory)
    progress = checkpoint.Progress(3, 30, 1.5)
    segment = transitions.write(directory / "replay", 3, np.ones((4, 3), np.float32))
    checkpoint.save(directory / "checkpoints", {"states": np.zeros((2, 6))}, progress._replace(replay=(segment,)))
    return directory


def read_everything(directory: Path) -> None:
    """All that reads a run directory; what each says of it is its own."""
    run = dvdrl.Run(directory)
    for read in (
        lambda: run.config,
        lambda: run.metrics,
        lambda: run.finished,
        lambda: run.record,
        lambda: dvdrl.load(directory).act(np.zeros(6)),
        lambda: make_page(gather([directory], videos=True)),
        lambda: checkpoint.load(directory / "checkpoints", {"states": np.zeros((2, 6))}, 3),
        lambda: checkpoint.load_tensor(directory / "checkpoints", 3, "states"),
        lambda: checkpoint.oldest_progress(directory / "checkpoints"),
        lambda: transitions.read(directory / "replay", [checkpoint.Segment(3, 4, "")]),
        lambda: dvdrl.resume(directory / "none"),
    ):
        with contextlib.suppress(DvdrlError):
            read()


@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "metrics.jsonl", "record.json", "policies/policies.json", "policies/member-0.safetensors"),
        *("checkpoints/00000003.safetensors", "replay/00000003.safetensors"),
    ],
)
def test_a_pickle_in_place_of_a_file_is_not_loaded(run: Path, name: str, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    pickle.loads(pickle.dumps(Bomb(tmp_path / "works")))
    assert (tmp_path / "works").exists()
    read_everything(tmp_path / "run")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("option", ["out", "seeds", "ray_address", "nothing"])
def test_a_configuration_cannot_say_where_things_go(run: Path, option: str, tmp_path: Path) -> None:
    values = json.loads((run / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values | {option: str(tmp_path / "elsewhere")}))
    with pytest.raises(DvdrlError, match=f"dvd-es has no option '{option}'"):
        file.from_json(tmp_path / "config.json")


@pytest.mark.parametrize("task", ["../../../etc/passwd", "/etc/passwd", "..", "a\0b", "a\nb", "module:../x"])
def test_the_default_directory_is_one_below_runs(task: str) -> None:
    for seeds in (None, "0..1"):
        for directory, _ in planned(dvdrl.ES(task=task, seeds=seeds)):
            assert ".." not in directory.parts
            assert directory.parts[0] == "runs"
            assert len(directory.parts) == (2 if seeds is None else 3)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=MANY)
@given(data=st.data())
def test_any_configuration_is_read_or_refused(data: st.DataObject, run: Path, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "configurations" / "config.json"  # not above the runs of other tests
    path.parent.mkdir(exist_ok=True)
    values = json.loads((run / "config.json").read_text())
    names = [*values, "ray_address", "out", "nothing"]
    for name in data.draw(st.lists(st.sampled_from(names), max_size=3)):
        values[name] = data.draw(anything)
    for name in data.draw(st.lists(st.sampled_from(sorted(values)), max_size=1)):
        del values[name]
    path.write_text(json.dumps(values))
    try:
        options = file.from_json(path)
    except DvdrlError as error:
        said = str(error)
    else:
        said = str(path)
        # What was read can be written, read again, and is complete.
        path.write_text(file.to_json(options))
        assert file.from_json(path) == options
        assert options.iterations is not None
        assert options.population is not None
    assert said.startswith(str(path))
    assert "\n" not in said


def damaged(data: st.DataObject, content: bytes) -> bytes:
    """The content with some bytes replaced, cut out or put in."""
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(content)))
        length = data.draw(st.sampled_from([0, 1, 1, 8, len(content)]))
        content = content[:begin] + data.draw(st.binary(max_size=9)) + content[begin + length :]
    return content


@settings(max_examples=MANY)
@given(data=st.data())
def test_any_damage_is_read_or_refused(data: st.DataObject, run: Path, tmp_path_factory: Any) -> None:
    directory = tmp_path_factory.getbasetemp() / "fuzzed"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(run, directory)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=2)):
        path.write_bytes(damaged(data, path.read_bytes()))
    read_everything(directory)


line = st.dictionaries(
    st.sampled_from([*numbers([1])[0], "nothing"]), anything | st.lists(st.floats(), max_size=3), max_size=6
)


@settings(max_examples=MANY)
@given(lines=st.lists(line, max_size=3), iteration=st.sampled_from([1, 2, 10**400, -1, "1", None, 1.5]))
def test_any_metrics_are_read_or_refused(lines: list[Any], iteration: Any, run: Path, tmp_path_factory: Any) -> None:
    directory = tmp_path_factory.getbasetemp() / "metrics"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(run, directory)
    text = "".join(json.dumps({"iteration": iteration, **each}) + "\n" for each in lines)
    (directory / "metrics.jsonl").write_text(text)
    read_everything(directory)
    known = all(type({"iteration": iteration, **each}["iteration"]) is int for each in lines)
    with contextlib.nullcontext() if known else pytest.raises(DvdrlError, match=r"metrics\.jsonl, line"):
        assert len(metrics.read(directory / "metrics.jsonl")) == len(lines)


def with_header(header: Any, body: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@settings(max_examples=MANY)
@given(data=st.data())
def test_any_header_is_read_or_refused(data: st.DataObject, run: Path, tmp_path_factory: Any) -> None:
    """Checkpoints, parts of a replay buffer and policies with headers that are JSON but not what was written."""
    directory = tmp_path_factory.getbasetemp() / "headers"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(run, directory)
    path = data.draw(st.sampled_from(sorted(directory.rglob("*.safetensors"))))
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    name = data.draw(st.sampled_from(sorted(header)))
    parts = [{}, "__metadata__", {"dtype": "BF16"}, {"dtype": "F64"}, {"dtype": "I64"}, {"shape": [1]}]
    change = data.draw(st.sampled_from(parts) | anything)
    header[name] = {**header[name], **change} if isinstance(change, dict) else change
    if isinstance(header[name], dict) and "progress" in header[name]:
        told = data.draw(anything)
        header[name]["progress"] = data.draw(st.sampled_from([json.dumps(told), "[" * 5000, "{}", "", "null"]))
        header[name]["sha256"] = data.draw(st.sampled_from([header[name]["sha256"], ""]))
    path.write_bytes(with_header(header, content[8 + length :]))
    read_everything(directory)


def test_parts_that_do_not_make_a_replay_buffer_are_refused(tmp_path: Path) -> None:
    first = transitions.write(tmp_path, 1, np.ones((4, 3), np.float32))
    wider = transitions.write(tmp_path, 2, np.ones((4, 5), np.float32))
    too_large = first._replace(num_rows=10**15)
    for segments in ([], [first, wider], [first._replace(num_rows=3)], [first, too_large]):
        with pytest.raises(DvdrlError, match="do not make one"):
            transitions.read(tmp_path, segments)


@pytest.mark.parametrize(
    "told",
    [
        *({}, [], None, {"iteration": -1, "env_steps": 0, "seconds": 0.0}, {"iteration": 3, "env_steps": 0}),
        {"iteration": "../../x", "env_steps": 0, "seconds": 0.0},
        {"iteration": 3, "env_steps": 0, "seconds": 0.0, "replay": [["../../x", 1, ""]]},
        {"iteration": 3, "env_steps": 0, "seconds": 0.0, "replay": [[1, 2]]},
        {"iteration": 3, "env_steps": 0, "seconds": 0.0, "replay": 5, "more": 1},
    ],
)
def test_a_progress_with_the_right_digest_is_not_believed_either(told: Any, tmp_path: Path) -> None:
    # Whoever wants to can compute a digest: what it covers is looked at nevertheless.
    tensors, text = {"['states']": np.zeros(2)}, json.dumps(told)
    content = checkpoint.to_bytes(tensors, metadata={"progress": text, "sha256": checkpoint.digest(tensors, text)})
    (tmp_path / "00000003.safetensors").write_bytes(content)
    with pytest.raises(DvdrlError, match="not a checkpoint that can be read"):
        checkpoint.load(tmp_path, {"states": np.zeros(2)}, 3)
