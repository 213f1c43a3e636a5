"""The option --perturb of the commands that run a task."""

from typing import Annotated

import tyro

PerturbTexts = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(
        metavar="NAME=VALUE",
        help="Change something in the task, such as motor:hip_1=0 or friction=0.5; may be repeated."
        " `dvdrl tasks TASK --perturbations` lists what there is.",
    ),
]
