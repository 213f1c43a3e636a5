"""Declarations of options. Each option is declared once, with its default, its bounds and its role.

An option is a field of a frozen dataclass. Its type defines the possible values, the docstring below it is the help
text, and `option` holds the rest. A subclass that declares an option again states only what differs.
"""

import dataclasses
import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dvdrl.errors import DvdrlError, expect

Role = Literal["run", "incidental", "algorithm", "part", "outside"]
"""run: the task, the length of the training, and when members are evaluated.
incidental: runs that differ only in this option differ only by chance.
algorithm: an argument of the algorithm's factory, with the same name.
part: used to make a part first, such as the kernel, the controller or the policy.
outside: where a run is written and which machines compute it. It is not in config.json, so no file can decide it."""


Group = Literal["basic", "learning", "diversity", "execution", "files"]
"""Where the help of the command line lists an option."""
GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True)
class Bounds:
    """The limits of an option, or of each of its numbers. Every number must also be finite."""

    at_least: float = -math.inf
    at_most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def __contains__(self, number: float) -> bool:
        return self.at_least <= number <= self.at_most and self.above < number < self.below

    def __str__(self) -> str:
        if math.isfinite(self.at_least) and math.isfinite(self.at_most):
            return f"a number from {self.at_least} to {self.at_most}"
        limits = {"at least": self.at_least, "at most": self.at_most, "more than": self.above, "less than": self.below}
        given = {words: limit for words, limit in limits.items() if math.isfinite(limit)}
        return " and ".join(f"{words} {_as_power(limit)}" for words, limit in given.items())


@dataclass(frozen=True)
class Facts:
    """What an option declares besides its type, default and help."""

    role: Role = "algorithm"
    bounds: Bounds = Bounds()
    may_be_empty: bool = True
    """Whether an option that consists of several numbers may have none."""
    may_change: bool = False
    """Whether `resume` can give it another value."""
    group: Group = "learning"


def option(
    default: Any = dataclasses.MISSING,
    *,
    factory: Callable[[], Any] | None = None,
    role: Role | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    may_be_empty: bool | None = None,
    may_change: bool | None = None,
    group: Group | None = None,
) -> Any:
    """Declare an option: its default, or a factory for the default, and its facts.

    Facts that are not given come from the base class, or else from `Facts`. All bounds together count as one fact.
    """
    given = {"at_least": at_least, "at_most": at_most, "above": above, "below": below}
    limits: dict[str, float] = {name: limit for name, limit in given.items() if limit is not None}
    stated: dict[str, Any] = {"role": role, "bounds": Bounds(**limits) if limits else None}
    stated |= {"may_be_empty": may_be_empty, "may_change": may_change, "group": group}
    metadata = {name: fact for name, fact in stated.items() if fact is not None}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def facts(kind: type[Any]) -> Mapping[str, Facts]:
    """The facts of each option in a class of options, by name."""
    stated: dict[str, dict[str, Any]] = {}
    for base in reversed(kind.__mro__):
        for name, field in getattr(base, "__dataclass_fields__", {}).items():
            stated[name] = stated.get(name, {}) | dict(field.metadata)
    return {field.name: Facts(**stated[field.name]) for field in dataclasses.fields(kind)}


def values(options: Any, role: Role) -> dict[str, Any]:
    """The values of the options with a role, by name."""
    return {name: getattr(options, name) for name, each in facts(type(options)).items() if each.role == role}


def choices(kind: type[Any], name: str) -> tuple[str, ...]:
    """The words that an option accepts."""
    words: tuple[str, ...] = _without_none(get_type_hints(kind)[name])[1]
    return words


def check(options: Any) -> None:
    """Refuse options with a value of another type than declared, or out of its bounds.

    Raises:
        DvdrlError: there is such a value. The message names the option.
    """
    types = get_type_hints(type(options))
    for name, each in facts(type(options)).items():
        value = getattr(options, name)
        if each.role == "outside":
            if value is not None:
                expect(name.rstrip("_"), value, *((str, Path) if _without_none(types[name])[0] is Path else (str,)))
            continue
        try:
            typed(types[name], list(value) if isinstance(value, tuple) else value)
        except (ValueError, OverflowError) as error:
            raise DvdrlError(f"{name}: expected {type_name(types[name])}, got {reprlib.repr(value)}") from error
        if value == () and not each.may_be_empty:
            raise DvdrlError(f"{name}: expected at least one number, got none")
        several = isinstance(value, tuple)
        for number in value if several else (value,):
            if isinstance(number, int | float) and number not in each.bounds:
                expected = each.bounds if -math.inf < number < math.inf else "a finite number"
                got = reprlib.repr(number)
                raise DvdrlError(f"{name}: expected {'each to be ' if several else ''}{expected}, got {got}")
            if isinstance(number, int) and abs(number) >= 2**53:  # beyond, it is no floating-point number
                raise DvdrlError(f"{name}: expected less than 2**53, got {reprlib.repr(number)}")


def typed(kind: Any, value: Any) -> Any:
    """Convert a JSON value to the type of a field.

    Raises:
        ValueError: the value has another type.
        OverflowError: the number is too large.
    """
    inner, inside = _without_none(kind)
    origin = get_origin(inner)
    if value is None and inner is not kind:
        return None
    if origin is Literal:
        if isinstance(value, str) and value in inside:
            return value
    elif origin is tuple:
        if isinstance(value, list):
            return tuple(typed(inside[0], item) for item in value)
    elif inner is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif isinstance(value, origin or inner) and isinstance(value, bool) == (inner is bool):
        return value
    raise ValueError(value)


def type_name(kind: Any) -> str:
    """The name of a type, for messages."""
    inner, inside = _without_none(kind)
    if get_origin(inner) is tuple:
        return f"a tuple of {type_name(inside[0])}"
    return f"one of {', '.join(inside)}" if get_origin(inner) is Literal else getattr(inner, "__name__", str(inner))


def _without_none(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type and its arguments. `type | None` and `type | Open` count as `type`, because an open option is None.

    So does `type | Literal["auto"]`, because such an option is spelled out before it is looked at.
    """
    if get_origin(kind) in (Union, UnionType):
        left_out = (NoneType, Literal["auto"])
        (kind,) = (each for each in get_args(kind) if each not in left_out and not isinstance(each, TypeVar))
    return kind, get_args(kind)


def _as_power(limit: float) -> str:
    exponent = int(limit).bit_length() - 1
    return f"2**{exponent}" if limit == 2**exponent and exponent > 15 else str(limit)
