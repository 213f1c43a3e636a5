"""What the source says below the fields of a class: the help of the command line, and what `help()` shows in Python."""

import ast
import functools
import inspect
import sys
from itertools import pairwise
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type[Any])


def texts(kind: type[Any]) -> dict[str, str]:
    """The text below each field of a class and of its bases. A class that declares a field again may keep the text."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= _in_module(base.__module__).get(base.__qualname__, {})
    return found


def documented(kind: Class) -> Class:
    """Add the texts of the fields to the docstring of a class."""
    lines = [f"    {name}: {text}" for name, text in texts(kind).items()]
    if lines and kind.__doc__:
        kind.__doc__ = "\n".join([inspect.cleandoc(kind.__doc__), "", "Attributes:", *lines])
    return kind


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
            text = below.value.value if isinstance(below.value, ast.Constant) else None
            if isinstance(text, str):
                found[field.target.id] = " ".join(text.split())
    return found
