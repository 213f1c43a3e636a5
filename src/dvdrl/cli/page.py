"""The pages of `--help`, as plain text: the options in groups, each with the default that will be used."""

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tyro.conf import FlagConversionOff, Positional, UseAppendAction

from dvdrl.documented import texts
from dvdrl.runs.fields import GROUPS, facts
from dvdrl.runs.training import Training

_COLUMN, _WIDEST = 26, 100
_WORDS = {int: "INT", float: "NUMBER", str: "TEXT", Path: "PATH", bool: "True|False"}
_SAID = re.compile(r" *\bDefault: .*?\.(?=\s|$)")
"""A sentence on the default, which is left out where the default itself is shown."""


def overview(prog: str, about: str, commands: Mapping[str, str], more: Iterable[tuple[str, str]]) -> str:
    """The page of a command that has commands: their names with one line each."""
    rows = [*_rows(("commands", commands.items())), *_rows(("options", [("-h, --help", "Show this page."), *more]))]
    usage = f"usage: {prog} COMMAND [OPTIONS]"
    return "\n".join(
        [usage, "", *_wrapped(about), *rows, "", f"`{prog} COMMAND --help` shows the options of a command."]
    )


def page(prog: str, kind: type[Any], *, defaults: Any = None, about: str = "") -> str:
    """The page of a command whose options are the fields of a dataclass.

    Args:
        prog: the command as it is typed.
        kind: the dataclass.
        defaults: an object with the values that the options have if they are not given.
        about: text below the description.
    """
    grouped: dict[str, list[tuple[str, str]]] = {}
    positional, told = [], texts(kind)
    hints = get_type_hints(kind, include_extras=True)
    declared = facts(kind) if issubclass(kind, Training) else {}
    for field in dataclasses.fields(kind):
        if (metadata := getattr(hints[field.name], "__metadata__", ())) and Positional in metadata:
            values, text = metavar(hints[field.name]), told[field.name]
            if len(values) > _COLUMN:
                text = f"{text} {_one_of(values)}"
            if "PATH" not in values:
                values = field.name.upper()
            grouped.setdefault("arguments", []).append((values, text))
            positional.append(values if field.default is dataclasses.MISSING else f"[{values}]")
            continue
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        default = None if required else getattr(defaults, field.name, field.default)
        text = told.get(field.name) or next(each.help for each in metadata if getattr(each, "help", None))
        if required:
            text += " (required)"
            positional.append(invocation(field.name, hints[field.name], default))
        elif default not in (None, (), {}) and default is not False and default is not dataclasses.MISSING:
            text = f"{_SAID.sub('', text)} (default: {_shown(default)})"
        group = declared[field.name].group if declared else "options"
        invoked = invocation(field.name, hints[field.name], default)
        if len(invoked) > 3 * _COLUMN:
            invoked, text = f"{invoked.split()[0]} {field.name.upper()}", f"{text} {_one_of(invoked.split()[1])}"
        grouped.setdefault(group, []).append((invoked, text))
    grouped.setdefault(GROUPS[-1] if declared else "options", []).append(("-h, --help", "Show this page."))
    order = [group for group in ("arguments", *GROUPS, "options") if group in grouped]
    usage = " ".join(["usage:", prog, *positional, "[OPTIONS]"])
    description = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:")[0]
    rows = [row for group in order for row in _rows((group, grouped[group]))]
    return "\n".join([usage, "", *_wrapped(description), *(["", *_wrapped(about)] if about else []), *rows])


def first_line(kind: type[Any]) -> str:
    """What a command does, in one line."""
    return inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]


def _one_of(values: str) -> str:
    return f"One of {', '.join(values.split('|'))}."


def _width() -> int:
    return min(get_terminal_size().columns, _WIDEST)


def _wrapped(text: str) -> list[str]:
    """The text in lines that fit, with its own paragraphs and lists."""
    lines: list[str] = []
    for line in re.sub(r"\n(?!\n|- |  )(?<!\n\n)", " ", text).splitlines():
        lines += textwrap.wrap(line, _width(), subsequent_indent="  " if line.startswith("- ") else "") or [""]
    return lines


def _rows(group: tuple[str, Iterable[tuple[str, str]]]) -> list[str]:
    """A group: its title, and its rows of a name and what it means."""
    title, rows = group
    lines = ["", f"{title}:"]
    for name, text in rows:
        wrapped = textwrap.wrap(text, _width() - _COLUMN, break_on_hyphens=False)
        if len(name) + 4 > _COLUMN:
            lines += textwrap.wrap(
                name,
                _width() - 2,
                initial_indent="  ",
                subsequent_indent="      ",
                break_on_hyphens=False,
                break_long_words=False,
            )
        else:
            lines.append(f"  {name}".ljust(_COLUMN) + (wrapped.pop(0) if wrapped else ""))
        lines += [" " * _COLUMN + line for line in wrapped]
    return lines


def invocation(name: str, hint: Any, default: Any) -> str:
    """How an option is given."""
    flag = "--" + _flag_of(name, hint)
    if _plain(hint) == [bool] and FlagConversionOff not in getattr(hint, "__metadata__", ()):
        return f"--no-{flag[2:]}" if default is True else flag
    return f"{flag} {metavar(hint)}"


def _flag_of(name: str, hint: Any) -> str:
    """The name of a field on the command line, without its dashes."""
    named = (getattr(each, "name", None) for each in getattr(hint, "__metadata__", ()))
    return next((each for each in named if isinstance(each, str)), name.replace("_", "-"))


def _plain(hint: Any) -> list[Any]:
    """The types that a value can have, other than None."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [each for part in get_args(hint) for each in _plain(part)]
    return [] if hint is NoneType or isinstance(hint, TypeVar) else [hint]


def metavar(hint: Any) -> str:
    """What stands for a value of this type."""
    for each in getattr(hint, "__metadata__", ()):
        if isinstance(stated := getattr(each, "metavar", None), str):
            return stated
    repeated = UseAppendAction in getattr(hint, "__metadata__", ())
    return "|".join(_word(kind, repeated) for kind in _plain(hint))


def _word(kind: Any, repeated: bool) -> str:
    inside = get_args(kind)
    if get_origin(kind) is Literal:
        return "|".join(map(str, inside))
    if get_origin(kind) is tuple:
        return metavar(inside[0]) + ("" if repeated else " ...")
    if get_origin(kind) is dict:
        return "NAME VALUE ..."
    return _WORDS.get(kind, "VALUE")


def _shown(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(map(_shown, value))
    return "yes" if value is True else f"{value:g}" if isinstance(value, float) else f"{value}"
