"""What the source says below the fields of a class: the help of the command line, and what `help()` shows in Python."""

import ast
import dataclasses
import functools
import inspect
import operator
import sys
import textwrap
from itertools import pairwise
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Class = TypeVar("Class", bound=type[Any])
_WIDTH = 90


def texts(kind: type[Any]) -> dict[str, str]:
    """The text below each field of a class and of its bases. A class that declares a field again may keep the text.

    What a class itself has (`ClassVar`) is no field.
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= _in_module(base.__module__).get(base.__qualname__, {})
    return found


def documented(kind: Class) -> Class:
    """Add the texts of the fields to the docstring of a class."""
    lines = [
        textwrap.fill(f"{name}: {text}", _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for name, text in texts(kind).items()
    ]
    if lines and kind.__doc__:
        kind.__doc__ = "\n".join([inspect.cleandoc(kind.__doc__), "", "Attributes:", *lines])
    return kind


def show_plain_types(kind: Any) -> None:
    """Have `help()` show the arguments of a dataclass with plain types, without what is only for the command line."""
    hints, required = get_type_hints(kind), inspect.Parameter.empty
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for field in dataclasses.fields(kind):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=required if default is dataclasses.MISSING else default,
                annotation=_plain(hints[field.name]),
            )
        )
    kind.__init__.__signature__ = inspect.Signature(parameters)


def _plain(hint: Any) -> Any:
    """A type in which None stands for the type variable of options that are left open."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    return functools.reduce(operator.or_, (None if isinstance(part, TypeVar) else part for part in get_args(hint)))


@functools.cache
def _in_module(name: str) -> dict[str, dict[str, str]]:
    """The texts of the fields of each class in a module; none without its source, as in a frozen program."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError, KeyError):
        return {}
    return {node.name: _in_body(node.body) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _in_body(body: list[ast.stmt]) -> dict[str, str]:
    found = {}
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            if ast.unparse(field.annotation).startswith("ClassVar"):
                continue
            text = below.value.value if isinstance(below.value, ast.Constant) else None
            if isinstance(text, str):
                found[field.target.id] = " ".join(text.split())
    return found
