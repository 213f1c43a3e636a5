"""Diversity via Determinants: populations of policies that are all good and all different."""

from typing import TYPE_CHECKING, Any

from dvdrl._version import __version__ as __version__

if TYPE_CHECKING:
    from dvdrl import diversity as diversity
    from dvdrl.engines import make_vec as make_vec
    from dvdrl.policies import Member as Member
    from dvdrl.policies import Population as Population
    from dvdrl.runs.adaptation import adapt as adapt
    from dvdrl.runs.directory import Run as Run
    from dvdrl.runs.directory import load as load
    from dvdrl.runs.evaluation import evaluate as evaluate
    from dvdrl.runs.hooks import Iteration as Iteration
    from dvdrl.runs.hooks import Stop as Stop
    from dvdrl.runs.loop import resume as resume
    from dvdrl.runs.loop import train as train
    from dvdrl.runs.options import ES as ES
    from dvdrl.runs.options import ETD3 as ETD3
    from dvdrl.runs.options import NSRES as NSRES
    from dvdrl.runs.options import TD3 as TD3
    from dvdrl.runs.options import XQC as XQC
    from dvdrl.runs.options import DvDES as DvDES
    from dvdrl.runs.options import DvDTD3 as DvDTD3
    from dvdrl.runs.options import DvDXQC as DvDXQC
    from dvdrl.runs.options import NicheES as NicheES
    from dvdrl.runs.options import NicheXQC as NicheXQC
    from dvdrl.studies.reproduce import reproduce as reproduce
    from dvdrl.views.export import export as export
    from dvdrl.views.render import render as render
    from dvdrl.views.report import report as report

# Public names by the module that holds them, imported when first used: `import dvdrl` itself stays light.
_PUBLIC = {
    "make_vec": "dvdrl.engines",
    **dict.fromkeys(
        ("ES", "NSRES", "DvDES", "NicheES", "TD3", "ETD3", "DvDTD3", "XQC", "DvDXQC", "NicheXQC"), "dvdrl.runs.options"
    ),
    "evaluate": "dvdrl.runs.evaluation",
    "adapt": "dvdrl.runs.adaptation",
    **dict.fromkeys(("Run", "load"), "dvdrl.runs.directory"),
    **dict.fromkeys(("resume", "train"), "dvdrl.runs.loop"),
    **dict.fromkeys(("Iteration", "Stop"), "dvdrl.runs.hooks"),
    **dict.fromkeys(("Member", "Population"), "dvdrl.policies"),
    **{name: f"dvdrl.views.{name}" for name in ("export", "render", "report")},
    "reproduce": "dvdrl.studies.reproduce",
}
_MODULES = ("diversity",)
"""Public modules that need not be imported by themselves."""
__all__ = ["__version__", *_MODULES, *_PUBLIC]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"dvdrl.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dvdrl' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
