"""A search over options with Optuna. Each trial trains several seeds at once, and is given up if others do better.

    pip install 'dvdrl[search]'
    python examples/optuna_search.py runs/search

The trials are in search.db, an SQLite file, and the runs beside it. Stop it at any time: the same command goes on, and
first finishes the trial that it was in. `optuna-dashboard sqlite:///runs/search/search.db` shows the trials.
"""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState

import dvdrl


def main(
    out: Path, trials: int = 20, seeds: int = 3, pruner: optuna.pruners.BasePruner | None = None, **options: Any
) -> optuna.Study:
    """Search until there are so many trials; `options` are those that do not change."""
    options = {"task": "Swimmer-v5", "iterations": 40, **options}
    out.mkdir(parents=True, exist_ok=True)

    def objective(trial: optuna.Trial) -> float:
        """The best return of a seed in the last iteration, averaged over the seeds."""
        chosen = {
            "sigma": trial.suggest_float("sigma", 0.01, 0.2, log=True),
            "learning_rate": trial.suggest_float("learning_rate", 0.005, 0.1, log=True),
        }
        returns: dict[int, list[float]] = defaultdict(list)

        def look(line: Any) -> None:
            of_seeds = returns[line["iteration"]]
            of_seeds.append(line["best_return"])
            if len(of_seeds) == seeds:  # of the last seed in this iteration
                trial.report(float(np.mean(of_seeds)), line["iteration"])
                if trial.should_prune():
                    raise optuna.TrialPruned

        directory = out / trial.user_attrs.get("run", f"trial-{trial.number}")
        trial.set_user_attr("run", directory.name)
        if any(directory.glob("seed-*/config.json")):
            lines = [line for each in sorted(directory.glob("seed-*")) for line in dvdrl.Run(each).metrics]
            for line in sorted(lines, key=lambda line: line["iteration"]):
                look(line)
            dvdrl.resume(directory, on_iteration=lambda done: look(done.metrics))
        else:
            niche_es = dvdrl.NicheES(**chosen, **options, seeds=f"0..{seeds - 1}", out=directory)
            dvdrl.train(niche_es, on_iteration=lambda done: look(done.metrics))
        return float(np.mean(returns[max(returns)]))

    pruner = pruner or optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=10)
    storage = f"sqlite:///{out / 'search.db'}"
    study = optuna.create_study(
        study_name="dvdrl", storage=storage, direction="maximize", pruner=pruner, load_if_exists=True
    )
    latest = {trial.user_attrs["run"]: trial for trial in study.trials if "run" in trial.user_attrs}
    for run, trial in latest.items():
        if trial.state in (TrialState.RUNNING, TrialState.FAIL):  # killed, or stopped by Ctrl-C
            study.enqueue_trial(trial.params, user_attrs={"run": run})
    done = len(study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED)))
    study.optimize(objective, n_trials=max(0, trials - done))
    return study


if __name__ == "__main__":
    found = main(Path(sys.argv[1]))
    print(found.best_value, found.best_params)
