"""`dvdrl train` and `dvdrl resume`."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from dvdrl.cli.modules import Module, import_named
from dvdrl.errors import printable, quoted
from dvdrl.imports import search_working_directory
from dvdrl.runs.training import Training


@dataclass(frozen=True)
class Train:
    """Train a population."""

    options: Training

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
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """For a run that began with policies of another one: where they are."""
    module: Module = ()

    def __call__(self) -> None:
        """Train with the options in the file."""
        from dvdrl.runs.file import from_json, refuse_unknown_module
        from dvdrl.runs.loop import train

        options = from_json(self.config)
        import_named(self.module)
        refuse_unknown_module(options)
        _say_where(train(replace(options, out=self.out, from_=self.from_)))


@dataclass(frozen=True)
class Resume:
    """Continue a stopped run, exactly as if it had not stopped; or all runs that --seeds put into a directory.

    With --iterations or --steps, a finished run goes on to this new end. A stop rule that has ended the run then no
    longer applies, unless it is given again. See docs/runs.md.
    """

    directory: Positional[Path]
    """The run directory."""
    iterations: int | None = None
    """New number of iterations, in all."""
    steps: int | None = None
    """New number of environment steps, in all."""
    until: float | None = None
    """Stop earlier, from now on: when the return of a member in an iteration has reached this."""
    until_stalled: int | None = None
    """Stop earlier, from now on: when the best return has not risen for this number of iterations."""
    for_: Annotated[str | None, tyro.conf.arg(name="for")] = None
    """Stop earlier: after the iteration in which this time from now is over, such as 30m, 2h or 1h30m."""
    executor: Literal["local", "ray", "device"] | None = None
    """Where simulations run from now on, as in `dvdrl train`. Only evolution strategies have device."""
    ray_time_limit: float | None = None
    """Seconds after which a Ray worker that does not answer is ended, from now on."""
    keep_checkpoints: int | None = None
    """Number of the latest checkpoints to keep, from now on."""
    keep_every: int | None = None
    """Keep the population of every N-th iteration, from now on."""
    wandb: Annotated[bool | None, tyro.conf.FlagConversionOff] = None
    """Whether to send metrics to Weights & Biases, from now on."""
    wandb_project: str | None = None
    """The project in Weights & Biases, from now on."""
    ray_address: str | None = None
    """Ray cluster to join, as in `dvdrl train`. Run directories do not store it."""
    module: Module = ()

    def __call__(self) -> None:
        """Continue the training."""
        from dvdrl.runs.loop import resume

        import_named(self.module)
        options = {name: value for name, value in vars(self).items() if name not in ("directory", "module")}
        _say_where(resume(self.directory, **options))


def _say_where(trained: Any) -> None:
    """Print where the trained runs are, and how to look at them."""
    directory = trained[0].directory.parent if isinstance(trained, list) else trained.directory
    reasons = [run.ended for run in (trained if isinstance(trained, list) else [trained])]
    if None in reasons:  # what has stopped it was said
        return
    why = ", ".join(sorted({reason for reason in reasons if reason}))
    print(printable(f"finished: {directory}: {why}; `dvdrl report {quoted(directory)}` shows it"), file=sys.stderr)
