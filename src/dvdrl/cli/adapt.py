"""`dvdrl adapt`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from dvdrl.cli.modules import Module, import_named
from dvdrl.cli.perturbed import PerturbTexts
from dvdrl.errors import printable


@dataclass(frozen=True)
class Adapt:
    """Choose the member of a run that is best on a changed robot, in few trials. See docs/adapt.md.

    A trial is an episode of one member on the perturbed task. What the members return on the unchanged task is known
    beforehand. On a real robot, `dvdrl.adapt` in Python does the same.
    """

    directory: Positional[Path]
    """The run directory."""
    perturb: PerturbTexts = ()
    trials: int | None = None
    """Largest number of trials. Default: twice the number of members. Most often fewer are needed."""
    episodes: int = 10
    """Number of fresh episodes in which the chosen member is then evaluated; and of episodes of each member on the
    unchanged task, before the trials."""
    which: Literal["last", "best", "best-each"] | int = "last"
    """Which population: the last; the best, by mean return from new starts; each member at its own best; or that of an
    iteration, if it was kept. See docs/runs.md."""
    json: bool = False
    """Print one JSON object instead of a table."""
    module: Module = ()

    def __call__(self) -> None:
        """Adapt and print."""
        import json

        from dvdrl.runs.adaptation import adapt, described
        from dvdrl.tasks.perturbations import parsed

        import_named(self.module)
        perturb = parsed(self.perturb)
        result = adapt(self.directory, perturb=perturb, trials=self.trials, episodes=self.episodes, which=self.which)
        print(json.dumps(result) if self.json else "\n".join(map(printable, described(result))))
