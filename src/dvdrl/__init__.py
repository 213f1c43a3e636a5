"""Diversity via Determinants: populations of policies that are all good and all different."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dvdrl.engines import make_vec as make_vec

__version__ = "0.1.0"

# Public names by the module that holds them, imported when first used: `import dvdrl` itself stays light.
_PUBLIC = {"make_vec": "dvdrl.engines"}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dvdrl' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
