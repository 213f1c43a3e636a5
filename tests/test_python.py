"""The Python interface explains itself: names, help, short texts of objects, columns, slices, and errors."""

import dataclasses
import inspect
import pydoc
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dvdrl
from dvdrl.cli import read
from dvdrl.errors import DvdrlError
from dvdrl.policies import MLP, Member, Places, Population, Standing
from dvdrl.runs import metrics, policies
from dvdrl.runs.directory import load
from written_runs import numbers, write_numbers, write_run

ES = dvdrl.ES(task="Point-v0", population=1, sensings=1, iterations=1)


def test_public_names_are_all_there_is_and_none_needs_an_import_of_its_own() -> None:
    names = dir(dvdrl)
    assert names == sorted(dvdrl.__all__)
    assert {"train", "report", "render", "export", "reproduce", "diversity", "NicheES", "load"} < set(names)
    code = f"import dvdrl; print([getattr(dvdrl, name) for name in {names}][0].__name__, dvdrl.diversity.gram.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "DvDES gram\n"


@pytest.mark.parametrize("name", ["train", "resume", "load", "evaluate", "report", "render", "export", "reproduce"])
def test_the_help_of_a_function_has_every_argument(name: str) -> None:
    function = getattr(dvdrl, name)
    text = pydoc.plain(pydoc.render_doc(function))
    for argument in inspect.signature(function).parameters:
        assert f"\n        {argument}: " in text or f"\n        **{argument}: " in text, argument


@pytest.mark.parametrize("kind", [dvdrl.NicheES, dvdrl.DvDTD3, dvdrl.Population, dvdrl.Iteration, Standing, Places])
def test_the_help_of_a_class_has_the_text_of_every_field(kind: Any) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    fields = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields
    untold = [field for field in fields if f" {field}: " not in text]
    assert set(untold) <= ({"task", "policy"} if kind is dvdrl.Population else set())


def test_the_help_of_options_has_their_plain_types_and_nothing_else() -> None:
    text = pydoc.plain(pydoc.render_doc(dvdrl.NicheES))
    assert "task: str, task_options: dict[str, typing.Any] = {}, wrappers: tuple[str, ...] = ()" in text
    assert "iterations: int | None = None" in text
    for part in ("tyro", "Annotated", " at 0x", "+Open] = "):
        assert part not in text
    assert " x_axis: " not in text  # of the class, and not for its users
    about = text[text.index("Attributes:") : text.index("Methods")]
    assert max(map(len, about.splitlines())) <= 100


def test_objects_are_described_in_one_short_line(tmp_path: Path) -> None:
    population = write_run(tmp_path / "run", MLP((6, 4, 2)))
    run = dvdrl.Run("runs/point")
    assert repr(run) == "Run('runs/point')"
    assert repr(replace(ES, out=Path("x"))).startswith("ES(task='Point-v0', population=1, iterations=1, out=")
    assert repr(dvdrl.DvDTD3(task="Hopper-v5")) == "DvDTD3(task='Hopper-v5')"
    assert repr(population) == "<3 policies for Point-v0>"
    assert repr(population[-1]) == "<member 2 of 3 policies for Point-v0>"
    assert repr(dvdrl.Iteration(run, {"iteration": 3}, population)) == "Iteration(3 of runs/point)"
    assert repr(metrics.Lines(numbers([1, 2]))) == (
        "<2 lines with iteration, env_steps, best_return, mean_return, ...>"
    )


def test_metrics_are_lines_and_columns(tmp_path: Path) -> None:
    lines = numbers([1, 2, 3], members=2)
    lines[1]["held_out_return"] = 5.0
    lines[1]["held_out_returns"] = [4.0, 6.0]
    lines[2]["member_returns"] = [1.0, 2.0, 3.0]
    run = dvdrl.Run(write_numbers(tmp_path / "run", lines))
    assert run.metrics == lines
    assert run.metrics[-1]["iteration"] == 3
    np.testing.assert_array_equal(run.metrics["env_steps"], [1000, 2000, 3000])
    np.testing.assert_array_equal(run.metrics["held_out_return"], [np.nan, 5.0, np.nan])
    np.testing.assert_array_equal(run.metrics["held_out_returns"], [[np.nan, np.nan], [4.0, 6.0], [np.nan, np.nan]])
    first = run.metrics[:2]
    assert first["member_returns"].shape == (2, 2)  # two iterations, two members
    assert [len(row) for row in run.metrics["member_returns"]] == [2, 2, 3]
    assert run.metrics.columns[:2] == ["iteration", "env_steps"]
    with pytest.raises(KeyError, match="no column 'best_retrun'; did you mean best_return"):
        run.metrics["best_retrun"]
    table = run.metrics.to_pandas()
    assert table.index.tolist() == [1, 2, 3]
    assert table["best_return"].tolist() == [line["best_return"] for line in lines]


def test_without_pandas_there_are_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    lines = metrics.Lines(numbers([1, 2]))
    assert lines["iteration"].tolist() == [1, 2]
    with pytest.raises(DvdrlError, match="pandas is not installed; pip install pandas"):
        lines.to_pandas()


def test_some_members_are_a_population(tmp_path: Path) -> None:
    population = write_run(tmp_path / "run", MLP((6, 4, 2)), members=4)
    m = np.arange(4, dtype=np.float32)
    places = Places(m, m[:, None], ("x",), np.ones(1, np.float32), np.ones(1, np.float32))
    population = replace(population, standing=Standing(m, m > 1, places))
    obs = np.linspace(-1, 1, 6)
    actions = population.act(obs)
    assert population.distinct is not None
    for which, numbers_ in (
        (slice(1, 3), [1, 2]),
        (slice(None, None, -1), [3, 2, 1, 0]),
        ([0, 2], [0, 2]),
        (population.distinct, [2, 3]),
    ):
        some = population[which]
        assert isinstance(some, Population)
        np.testing.assert_array_equal(some.act(obs), actions[numbers_])
        assert some.shares is not None
        assert some.standing is not None
        assert some.standing.places is not None
        for known in (some.shares, some.standing.places.quality, some.standing.places.behaviours[:, 0]):
            np.testing.assert_array_equal(known, numbers_)  # each member took with it what is its own
    member = population[np.int64(-1)]
    assert isinstance(member, Member)
    np.testing.assert_array_equal(member.act(obs), actions[3])
    policies.save(tmp_path / "some", population[1:3])  # it can be written like any other
    np.testing.assert_array_equal(policies.load(tmp_path / "some").act(obs), actions[1:3])
    for wrong in ([4], slice(4, None), [], "first", [0.5], [True]):
        with pytest.raises(IndexError, match=r"^members: expected "):
            population[wrong]


def test_commands_call_the_functions_of_the_same_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run", MLP((6, 4, 2)))
    directory = str(tmp_path / "run")
    assert dvdrl.report(directory) == dvdrl.report([Path(directory)]) == tmp_path / "run" / "report.html"
    files = dvdrl.export(directory, "safetensors", str(tmp_path / "files"))
    assert [file.name for file in files] == ["population.safetensors", *(f"member-{i}.safetensors" for i in range(3))]
    read.Export(Path(directory), "safetensors", tmp_path / "files")()
    assert capsys.readouterr().out.split() == [str(file) for file in files]
    films = dvdrl.render(directory, steps=1, width=16, height=16)
    read.Render((Path(directory),), steps=1, width=16, height=16)()
    assert capsys.readouterr().out.split() == [str(film) for film in films]
    monkeypatch.chdir(tmp_path)
    assert dvdrl.reproduce("tabular", "tables") == Path("tables")
    assert (tmp_path / "tables" / "populations.csv").is_file()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda run: dvdrl.train("Point-v0"), "options: expected Training, got 'Point-v0'"),
        (lambda run: dvdrl.train(dvdrl.ES), "options: expected Training, got <class"),
        (lambda run: dvdrl.train(ES, on_iteration=5), "on_iteration: expected a function, got 5"),
        (lambda run: dvdrl.train(replace(ES, out=5)), "out: expected str or Path, got 5"),
        (lambda run: dvdrl.train(replace(ES, from_=5)), "from: expected str or Path, got 5"),
        (lambda run: dvdrl.train(replace(ES, task=5)), "task: expected str, got 5"),
        (lambda run: dvdrl.train(replace(ES, hidden=32)), "hidden: expected a tuple of int, got 32"),
        (lambda run: dvdrl.train(replace(ES, sensings=2.0)), "sensings: expected int, got 2.0"),
        (lambda run: dvdrl.train(replace(ES, population=True)), "population: expected int, got True"),
        (lambda run: dvdrl.resume(run, iterations="7"), "iterations: expected int, got '7'"),
        (lambda run: dvdrl.resume(5), "directory: expected str or Path, got 5"),
        (lambda run: load(5), "directory: expected str or Path, got 5"),
        (lambda run: dvdrl.load(run, which=1.5), "which: expected last, best, best-each or an iteration"),
        (lambda run: dvdrl.load(run, which=["best"]), "which: expected last, best, best-each or an iteration"),
        (lambda run: dvdrl.evaluate(run, episodes="3"), "episodes: expected int, got '3'"),
        (lambda run: dvdrl.report(5), "directories: expected str or Path, got 5"),
        (lambda run: dvdrl.report(run, 5), "out: expected str or Path, got 5"),
        (lambda run: dvdrl.export(run, "safetensors", 5), "out: expected str or Path, got 5"),
        (lambda run: dvdrl.export(run, "torch"), "to: expected one of onnx, safetensors, got 'torch'"),
        (lambda run: dvdrl.render(run, width="320"), "width: expected int, got '320'"),
        (lambda run: dvdrl.reproduce("tabula"), "experiment: expected one of tabular, .*, got 'tabula'"),
        (lambda run: dvdrl.reproduce("point", 5), "out: expected str or Path, got 5"),
        (lambda run: dvdrl.reproduce("point", processes="2"), "processes: expected int, got '2'"),
        (lambda run: dvdrl.make_vec(5), "task: expected str or Task, got 5"),
        (lambda run: dvdrl.make_vec("Point-v0", "3"), "num_envs: expected int, got '3'"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(call: Any, said: str, tmp_path: Path) -> None:
    write_run(tmp_path / "run", MLP((6, 4, 2)))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DvdrlError, match=f"^{said}"):
        call(tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == before
