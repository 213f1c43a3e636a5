"""Run directories and kept cells with valid digests and odd contents: as somebody would write them who means ill.

Damage is found by digests; these files have the right ones. Whatever reads them ends in a result or in one line.
"""

import contextlib
import hashlib
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from hypothesis import strategies as st
from safetensors.numpy import save as to_bytes

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.runs.evaluation import evaluate
from dvdrl.runs.tensors import digest
from dvdrl.studies import kept
from dvdrl.studies.cells import Cell
from dvdrl.studies.experiments import EXPERIMENTS
from dvdrl.studies.kept import Result
from dvdrl.studies.study import reproduce
from dvdrl.views.export import export
from dvdrl.views.render import render
from dvdrl.views.report import report

STUDY = {"scale": "smoke", "seeds": "0..1", "executor": "local", "tables_only": True}

deep: Any = 1
for _ in range(60):
    deep = [deep]
ODD = [
    *(None, True, -1, 0, 1, 1.5, 2**53, 2**63, 10**400, -(10**400), 1e308, -1e308, 5e-324, float("nan"), float("inf")),
    *("", "x", "\x1b[2J\a", "\ud800", "\n\r", "../../x", "</script>", "a" * 10_000, "Point-v0", "none"),
    *([], [1], [None], ["x"], [float("nan")], [1e308, -1e308], {}, {"a": 1}, {"": None}, deep, [[1], [2, 3]]),
]
odd = st.sampled_from(ODD)


def make(directory: Path) -> None:
    """A run of ES, a run of TD3, and the kept cells of a study: small, finished and whole."""
    common: dict[str, Any] = {"task": "Point-v0", "population": 2, "hidden": (2,), "iterations": 2, "num_states": 3}
    dvdrl.train(dvdrl.DvDES(**common, sensings=1, out=directory / "es"))
    steps = {"iteration_steps": 100, "random_steps": 50, "evaluation_episodes": 1, "steps": 200, "buffer_size": 300}
    dvdrl.train(dvdrl.DvDTD3(**common, **steps, batch_size=4, out=directory / "td3"))
    for setting in EXPERIMENTS["point"].scales["smoke"].length:
        for variant in EXPERIMENTS["point"].variants:
            cell = Cell("point", setting, variant, "smoke", "0..1", "local")
            curves = {"x": np.arange(3), "best": np.arange(3.0), "lambda": np.zeros(3)}
            measures = {"best": 2.0, "final": 2.0}
            results = [Result(setting, variant, "local", n, 10, 1.5, measures, curves, {"jax": "1"}) for n in (0, 1)]
            cell.keep(results, directory / "study")


def change_json(data: st.DataObject, values: Any) -> Any:
    """The value with something odd in it, anywhere."""
    if isinstance(values, dict) and values and data.draw(st.integers(0, 9)):
        name = data.draw(st.sampled_from(sorted(values)))
        what = data.draw(st.sampled_from(["value", "value", "value", "remove", "add"]))
        if what == "remove":
            return {key: value for key, value in values.items() if key != name}
        if what == "add":
            return {**values, data.draw(st.sampled_from(["nothing", "", "\x1b[2J", "seeds", "out"])): data.draw(odd)}
        return {**values, name: change_json(data, values[name])}
    if isinstance(values, list) and values and data.draw(st.booleans()):
        index = data.draw(st.integers(0, len(values) - 1))
        return [*values[:index], change_json(data, values[index]), *values[index + 1 :]]
    return data.draw(odd)


def change_array(data: st.DataObject, array: np.ndarray) -> np.ndarray:
    """Another type, another shape, or numbers that no training gives."""
    what = data.draw(st.sampled_from(["type", "shape", "numbers", "one number"]))
    if what == "type":
        kinds = ["?", "u1", "i4", "i8", "f2", "f4", "f8", "c8", "u4"]
        with np.errstate(all="ignore"):
            return array.real.astype(data.draw(st.sampled_from(kinds)))
    if what == "shape":
        shapes: list[Callable[[], np.ndarray]] = [
            *(lambda: array[None], lambda: array.reshape(-1), lambda: array.reshape(-1)[:0], lambda: array[..., :-1]),
            *(lambda: array.reshape(-1)[0] if array.size else array, lambda: np.concatenate([array, array])),
        ]
        return np.ascontiguousarray(data.draw(st.sampled_from(shapes[:3] if array.ndim == 0 else shapes))())
    numbers = [0, 1, -1, 1e30, -1e30, 3e38, 1e-40, float("nan"), float("inf"), 2**31 - 1, 255]
    changed = array.copy().reshape(-1)
    with np.errstate(all="ignore"), contextlib.suppress(OverflowError, ValueError):
        number = np.asarray(data.draw(st.sampled_from(numbers))).astype(array.dtype)
        changed[: None if what == "numbers" else 1] = number
    return changed.reshape(array.shape)


def write_arrays(path: Path, arrays: dict[str, np.ndarray], metadata: dict[str, str], narrow: str = "") -> None:
    """`narrow`: the name of an array that is declared to be of a type that NumPy has not, of the same size."""
    content = to_bytes(arrays, metadata)
    (length,) = struct.unpack("<Q", content[:8])
    header, _ = json.JSONDecoder().raw_decode(content[8 : 8 + length].decode())
    if narrow:
        kinds = {1: "F8_E4M3", 2: "BF16"}
        header[narrow]["dtype"] = kinds.get(arrays[narrow].itemsize, header[narrow]["dtype"])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def change(data: st.DataObject, directory: Path) -> None:
    """Something odd in one file of a run, with the digest that belongs to it."""
    found = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    kinds = [
        "config.json",
        "metrics.jsonl",
        "record.json",
        "policies.json",
        "member",
        "checkpoint",
        "progress",
        "replay",
    ]
    kind = data.draw(st.sampled_from(kinds))
    if kind == "metrics.jsonl":
        path = directory / kind
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for index in data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=2)):
            lines[index] = change_json(data, lines[index])
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif kind in ("config.json", "record.json", "policies.json"):
        path = next(each for each in found if each.name == kind)
        values = json.loads(path.read_text())
        if isinstance(values, dict):
            values.pop("sha256", None)
        values = change_json(data, values)
        if kind == "policies.json" and isinstance(values, dict):
            values["sha256"] = digest({}, json.dumps(values))
        path.write_text(json.dumps(values))
    else:
        folder = {"member": "policies", "replay": "replay"}.get(kind, "checkpoints")
        paths = [each for each in found if each.parent.name == folder and each.suffix == ".safetensors"]
        if not paths:
            return
        change_arrays(data, data.draw(st.sampled_from(paths[-2:])), kind)


def change_arrays(data: st.DataObject, path: Path, kind: str) -> None:
    try:
        arrays, about = read_arrays(path)
    except (TypeError, AttributeError):  # it has a type that NumPy has not, from the change before
        return
    narrow = ""
    if kind != "progress" and arrays:
        name = data.draw(st.sampled_from(sorted(arrays)))
        arrays[name] = change_array(data, arrays[name])
        if data.draw(st.integers(0, 9)) == 0:
            del arrays[name]
        elif data.draw(st.integers(0, 9)) == 0:
            narrow = name
    if kind in ("checkpoint", "progress"):
        told = json.loads(about["progress"])
        about["progress"] = json.dumps(change_json(data, told) if kind == "progress" else told)
    if kind != "replay":
        about["sha256"] = digest(arrays, about.get("progress", ""))
    write_arrays(path, arrays, about, narrow)
    if kind == "replay":  # the checkpoints that name it have its digest
        rows = arrays.get("rows", np.zeros((0, 0), np.float32))
        sha256 = hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest()
        for each in (path.parents[1] / "checkpoints").iterdir():
            state, about = read_arrays(each)
            told = json.loads(about["progress"])
            with contextlib.suppress(KeyError, TypeError, ValueError):  # the change before has left no such list
                told["replay"] = [
                    [n, len(rows) if rows.ndim else 1, sha256] if n == int(path.stem) else [n, count, before]
                    for n, count, before in told["replay"]
                ]
            about["progress"] = json.dumps(told)
            about["sha256"] = digest(state, about["progress"])
            write_arrays(each, state, about)


def change_cell(data: st.DataObject, study: Path) -> None:
    """Something odd in one kept cell, with the digest that belongs to it."""
    path = data.draw(st.sampled_from(sorted((study / "cells").rglob("*.json"))))
    values = json.loads(path.read_text())
    del values["sha256"]
    values = change_json(data, values)
    if isinstance(values, dict):
        values["sha256"] = kept._digest(values)
    path.write_text(json.dumps(values))


COMMANDS: dict[str, Callable[[Path], Any]] = {
    "load": lambda run: dvdrl.load(run).act(np.zeros(6)),
    "evaluate": lambda run: json.dumps(evaluate(run, episodes=1), allow_nan=False),
    "resume": dvdrl.resume,
    "report": lambda run: report([run]),
    "render": lambda run: render(run, steps=1, width=16, height=16),
    "export": lambda run: export(run, "safetensors"),
}


def go_on(run: Path) -> None:
    """Have one iteration left to be trained."""
    path = run / "config.json"
    values = json.loads(path.read_text())
    values |= {"iterations": 3} | ({"steps": 300} if values["steps"] else {})
    path.write_text(json.dumps(values))


def try_one(data: st.DataObject, whole: Path, scratch: Path) -> None:
    """One case: something odd, and a command that reads it."""
    shutil.rmtree(scratch, ignore_errors=True)
    name = data.draw(st.sampled_from([*COMMANDS, "reproduce"]))
    if name == "reproduce":
        shutil.copytree(whole / "study", scratch)
        change_cell(data, scratch)
    else:
        shutil.copytree(whole / data.draw(st.sampled_from(["es", "td3"])), scratch)
        if name == "resume" and data.draw(st.booleans()):
            go_on(scratch)
        for _ in range(data.draw(st.integers(1, 2))):
            change(data, scratch)
    try:
        # As users have it: numbers that are not finite are found by dvdrl.
        with contextlib.chdir(scratch.parent), jax.debug_nans(False):
            reproduce("point", scratch, **STUDY) if name == "reproduce" else COMMANDS[name](scratch)
    except DvdrlError as error:
        said = str(error)
        assert said
        assert said.isprintable()
