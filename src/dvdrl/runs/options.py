"""The options of a run, as frozen dataclasses. `dvdrl train` and the Python interface use the same classes.

`training` has the options of any run, `es_options` and `off_policy_options` those of each algorithm.
Nothing heavy is imported in any of them, so that `--help` answers at once.
"""

from dvdrl.documented import show_plain_types
from dvdrl.runs.es_options import ES, NSRES, Compared, DvDES, NicheES, parse_measure
from dvdrl.runs.fields import Role, facts
from dvdrl.runs.off_policy_options import (
    ETD3,
    TD3,
    XQC,
    ControlledInRounds,
    DvDTD3,
    DvDXQC,
    NicheXQC,
    OffPolicyTraining,
)
from dvdrl.runs.training import Controlled, InNiches, Training

__all__ = [
    "ALGORITHMS",
    "ES",
    "ETD3",
    "NSRES",
    "TD3",
    "XQC",
    "Compared",
    "Controlled",
    "ControlledInRounds",
    "DvDES",
    "DvDTD3",
    "DvDXQC",
    "InNiches",
    "NicheES",
    "NicheXQC",
    "OffPolicyTraining",
    "parse_measure",
    "with_role",
]

_ALL: tuple[type[Training], ...] = (ES, NSRES, DvDES, NicheES, TD3, ETD3, DvDTD3, XQC, DvDXQC, NicheXQC)
ALGORITHMS = {kind.algorithm: kind for kind in _ALL}
"""The class of options of each algorithm, by the algorithm's name."""
for _kind in _ALL:
    show_plain_types(_kind)


def with_role(*roles: Role) -> set[str]:
    """The names of all options, of any algorithm, that have one of these roles."""
    return {name for kind in _ALL for name, each in facts(kind).items() if each.role in roles}
