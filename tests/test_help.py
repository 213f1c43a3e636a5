"""`--help`: options in groups that fit into 80 columns, with the defaults that will be used."""

import dataclasses
import re
from typing import Any, get_type_hints

import pytest
from tyro.conf import Positional

import dvdrl
from dvdrl.cli.parse import COMMANDS, help_for
from dvdrl.runs.fields import facts
from dvdrl.runs.options import ALGORITHMS
from dvdrl.runs.presets import resolve


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def page(*words: str) -> str:
    """The page, in which every line fits."""
    found = help_for([*words, "--help"])
    assert found is not None
    assert max(map(len, found.splitlines())) <= 80
    return found


def rows(text: str) -> dict[str, str]:
    """The text of each option, by its name, on one line."""
    found, name = {}, ""
    for line in text.splitlines():
        if begins := re.match(r"  (--?[\w-]+)", line):
            name = begins[1]
        elif not line.startswith(" "):
            name = ""
        found[name] = f"{found.get(name, '')} {line.strip()}"
    return found


def test_the_first_page_names_every_command_and_the_version() -> None:
    text = page()
    assert all(re.search(rf"^  {name} +\w", text, re.M) for name in COMMANDS)
    assert "--version" in text


@pytest.mark.parametrize("kind", ALGORITHMS.values())
def test_each_option_is_in_its_group_with_the_default_that_is_used(kind: Any) -> None:
    text = page("train", kind.algorithm)
    assert re.findall(r"^(\w+):$", text, re.M) == ["basic", "learning", "diversity", "execution", "files"]
    shown, resolved = rows(text), resolve(kind(task="HalfCheetah-v5"))
    assert "(required)" in shown["--task"]
    for name, value in vars(resolved).items():
        flag = {"for_": "--for", "from_": "--from", "wrappers": "--wrapper"}.get(name, f"--{name.replace('_', '-')}")
        said = shown[flag if value is not True else f"--no-{flag[2:]}"]
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert f"(default: {value:g})" in said if isinstance(value, float) else f"(default: {value})" in said
            assert said.count("efault: ") == 1  # a sentence would say it twice, and for one preset only
    parts = re.split(r"^(\w+):$", text, flags=re.M)
    for title, part in zip(parts[1::2], parts[2::2], strict=True):
        for name in rows(part):
            option = name.removeprefix("--").removeprefix("no-").replace("-", "_")
            declared = facts(kind).get({"for": "for_", "from": "from_", "wrapper": "wrappers"}.get(option, option))
            assert declared is None or declared.group == title


def test_defaults_are_those_of_the_task_and_the_preset_that_are_given() -> None:
    shown = rows(page("train", "es", "--preset", "paper", "--task", "Swimmer-v5"))
    assert shown["--hidden"].endswith("(default: 16 16)")  # of the paper's table for Swimmer
    assert shown["--sigma"].endswith("(default: 0.1)")
    assert shown["--starts"].endswith("(default: same)")
    plateau = rows(page("train", "dvd-es", "--task", "Swimmer-v5", "--controller", "plateau"))
    assert plateau["--arms"].endswith("(default: 0 0.5 0.8)")
    # What cannot be read does not keep the page away.
    assert rows(page("train", "es", "--sigma", "x", "--no-such", "1"))["--sigma"].endswith("(default: 0.05)")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "train"])
def test_every_option_of_a_command_has_a_text(name: str) -> None:
    text = page(name)
    hints = get_type_hints(COMMANDS[name], include_extras=True)
    for field in dataclasses.fields(COMMANDS[name]):
        flag = {"for_": "for"}.get(field.name, field.name.replace("_", "-"))
        if Positional in getattr(hints[field.name], "__metadata__", ()):
            assert re.search(rf"^  (PATH|PATH \.\.\.|{field.name.upper()}) +\w", text, re.M)
        else:
            assert re.search(rf"^  --{flag}\b", text, re.M)
    assert all(len(said) > 30 for flag, said in rows(text).items() if flag)


def test_options_in_python_have_the_same_texts() -> None:
    assert dvdrl.DvDES.__doc__ is not None
    for text in ("patience: For plateau: after this many rounds", "task: The task to train on", "sigma: Standard dev"):
        assert text in dvdrl.DvDES.__doc__
    assert "patience" not in str(dvdrl.ES.__doc__)
