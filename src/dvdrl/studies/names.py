"""The names of experiments and scales. Nothing heavy is imported here, so that `--help` answers at once."""

from typing import Literal

ExperimentName = Literal[
    "tabular", "theory", "point", "multimodal", "unimodal", "kernels", "adaptive", "humanoid", "states", "population",
    "modes", "modes-qd", "modes-alone", "modes-parts", "modes-auto", "environments", "adaptation",
    "adaptation-off-policy", "humanoid-choices", "td3-choices", "td3-base",
    "off-policy-base", "off-policy-modes", "off-policy-modes-alone",
]  # fmt: skip
Scale = Literal["smoke", "small", "medium", "paper"]
