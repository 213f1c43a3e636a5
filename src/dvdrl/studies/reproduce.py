"""Reproduces any experiment: those that are grids of runs, and the others."""

from pathlib import Path
from typing import get_args

from dvdrl.errors import DvdrlError, expect
from dvdrl.studies import study, tabular, theory
from dvdrl.studies.names import ExperimentName, Scale


def reproduce(
    experiment: ExperimentName,
    out: Path | str | None = None,
    *,
    scale: Scale = "paper",
    setting: str | None = None,
    seeds: str | None = None,
    executor: str = "local",
    processes: int = 1,
    tables_only: bool = False,
) -> Path:
    """Reproduce an experiment of the paper: print its tables, and save the numbers and the figure.

    Args:
        experiment: its name; `dvdrl reproduce --list` describes each and estimates its cost on this machine.
        out: the directory for the tables, the figure, their data and a record of how they were made. Results that are
            already there are not trained again. Default: results/EXPERIMENT; with a setting, a directory in it.
        scale: how much of it to run: smoke, small, medium or paper.
        setting: only one task, such as Swimmer-v5, or one wall, such as "half width 4". Default: all of the scale.
        seeds: first and last seed to train, such as 0..9. Default: those of the scale.
        executor: where the rollouts of ES run.
        processes: the number of trainings that run at once, each in its own process.
        tables_only: train nothing; make the tables and the figure from what is finished.

    Returns:
        The directory.

    Raises:
        DvdrlError: there is no such experiment, an argument is not for it, or as in `dvdrl.studies.study`.
    """
    words = {"experiment": (experiment, ExperimentName), "scale": (scale, Scale)}
    for name, (word, known) in words.items():
        if word not in get_args(known):
            raise DvdrlError(f"{name}: expected one of {', '.join(get_args(known))}, got {word!r}")
    expect("processes", processes, int)
    if out is not None:
        expect("out", out, str, Path)
    if processes < 1:
        raise DvdrlError(f"processes: expected at least 1, got {processes}")
    of_peers = experiment.removesuffix("-qd")  # a peer's results are beside those that they are compared with
    directory = Path(out) if out is not None else Path("results") / of_peers / (setting or "").replace(" ", "-")
    if experiment in ("tabular", "theory"):
        if setting is not None:
            raise DvdrlError(f"setting: {experiment} has none; got {setting!r}")
        (tabular if experiment == "tabular" else theory).reproduce(directory)
    elif experiment == "modes-qd":
        if executor != "local" or processes > 1 or tables_only:
            raise DvdrlError("modes-qd: expected neither --executor, --processes nor --tables-only")
        from dvdrl.studies import quality_diversity  # needs an extra

        quality_diversity.reproduce(directory, scale=scale, seeds=seeds, setting=setting)
    else:
        study.reproduce(
            experiment,
            directory,
            scale=scale,
            seeds=seeds,
            executor=executor,
            setting=setting,
            processes=processes,
            tables_only=tables_only,
        )
    return directory
