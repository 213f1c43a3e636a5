"""`dvdrl train` and `dvdrl resume`."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from tyro.conf import Positional, subcommand

from dvdrl.cli.modules import Module, import_named
from dvdrl.errors import printable, quoted
from dvdrl.imports import search_working_directory
from dvdrl.runs.options import ALGORITHMS
from dvdrl.runs.training import Training

if TYPE_CHECKING:
    Algorithm = Training
else:
    Algorithm = Union[tuple(Annotated[kind[None], subcommand(name)] for name, kind in ALGORITHMS.items())]  # noqa: UP007


@dataclass(frozen=True)
class Train:
    """Train a population. Each algorithm has its own help, such as `dvdrl train dvd-es --help`.

    `dvdrl train --config FILE [--out DIR]` repeats a run from its config.json.
    """

    options: Algorithm

    def __call__(self) -> None:
        """Train."""
        from dvdrl.runs.loop import train

        search_working_directory(named=":" in self.options.task or bool(self.options.modules()))
        _say_where(train(self.options))


@dataclass(frozen=True)
class Repeat:
    """Repeat a run from its config.json."""

    config: Path
    """The config.json of a run."""
    out: Path | None = None
    """The new run directory. Default: runs/TASK-ALGORITHM-SEED."""
    module: Module = None

    def __call__(self) -> None:
        """Train with the options in the file."""
        from dvdrl.runs.file import from_json, refuse_unknown_module
        from dvdrl.runs.loop import train

        options = from_json(self.config)
        import_named(self.module)
        refuse_unknown_module(options)
        _say_where(train(replace(options, out=self.out)))


@dataclass(frozen=True)
class Resume:
    """Continue a stopped run, exactly as if it had not stopped; or all runs that --seeds put into a directory.

    With --iterations or --steps, a finished run goes on to this new end. See docs/runs.md.
    """

    directory: Positional[Path]
    """The run directory."""
    iterations: int | None = None
    """New number of iterations, in all."""
    steps: int | None = None
    """New number of environment steps, in all."""
    executor: Literal["local", "ray", "device"] | None = None
    """Where rollouts run from now on, as in `dvdrl train`. Only for ES."""
    ray_time_limit: float | None = None
    """As in `dvdrl train`, from now on. Only for ES."""
    keep_checkpoints: int | None = None
    """Number of the latest checkpoints to keep, from now on."""
    keep_every: int | None = None
    """Keep the population of every N-th iteration, from now on."""
    wandb: bool | None = None
    """Whether to send metrics to Weights & Biases, from now on."""
    ray_address: str | None = None
    """Ray cluster to join, as in `dvdrl train`. Run directories do not store it."""
    module: Module = None

    def __call__(self) -> None:
        """Continue the training."""
        from dvdrl.runs.loop import resume

        import_named(self.module)
        others = ("directory", "ray_address", "module")
        changes = {name: value for name, value in vars(self).items() if name not in others}
        _say_where(resume(self.directory, ray_address=self.ray_address, **changes))


def _say_where(trained: Any) -> None:
    """Print where the trained runs are, and how to look at them."""
    directory = trained[0].directory.parent if isinstance(trained, list) else trained.directory
    print(printable(f"finished: {directory}; `dvdrl report {quoted(directory)}` shows it"), file=sys.stderr)
