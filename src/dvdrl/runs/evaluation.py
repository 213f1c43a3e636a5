"""Evaluation of a run: the returns of its members from starts not used in training, and their diversity."""

import contextlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Never

import jax
import numpy as np
from jaxtyping import Float

from dvdrl.diversity import KERNELS, embed, gram, measure
from dvdrl.errors import DvdrlError, expect
from dvdrl.interfaces import Rollouts
from dvdrl.policies import Agents, Population
from dvdrl.rollouts.measures import Measures, of_task
from dvdrl.runs import checkpoint, metrics, standing
from dvdrl.runs.changes import refuse_edited
from dvdrl.runs.directory import Run, Which, existing_run, population_of
from dvdrl.runs.file import refuse_unknown_module
from dvdrl.runs.memory import NUMBER, Need, refuse_what_cannot_fit
from dvdrl.runs.trainer import make_local, task_of
from dvdrl.runs.training import Training
from dvdrl.tasks.perturbations import UNPERTURBED, Perturb
from dvdrl.tasks.perturbations import described as perturbed
from dvdrl.tasks.task import Task


def evaluate(
    directory: Path | str,
    episodes: int = 10,
    seed: int = 1_000_000,
    which: Which = "last",
    perturb: Perturb = UNPERTURBED,
) -> dict[str, Any]:
    """Roll out every member of a run from new starts, and measure how diverse the population is.

    Args:
        directory: the run directory.
        episodes: of each member.
        seed: of the first start.
        which: which population: "last", "best", "best-each" or an iteration; see docs/runs.md.
        perturb: what is changed in the task, such as {"friction": 0.5}; see docs/adapt.md.

    Returns:
        `member_returns` (the mean of each member), `member_deviations`, `best_return`, `mean_return`; `shares`, the
        share of each member in the determinant given the fitter ones, and `distinct`, whether each is good and
        different. For niche-ES these two are what it has found itself. For the others, shares are those of the
        behaviours on the run's last states, and good is what is a quarter of the way from the first iteration to the
        best one.
        Tasks with several modes also have `mode_returns`: for each mode, the mean return of each member in that mode
        alone. With pyribs installed, tasks with ranges of measures also have `qd_score` and `coverage` (docs/tasks.md).
        All other entries are the metrics of `dvdrl.diversity.measure` for the behaviours on the run's last
        states, except those with a value for each pair of members.
    """
    expect("episodes", episodes, int)
    expect("seed", seed, int)
    expect("perturb", perturb, Mapping)
    if episodes < 1:
        raise DvdrlError(f"episodes: expected at least 1, got {episodes}")
    if not 0 <= seed <= 2**32 - episodes:
        raise DvdrlError(f"seed: expected 0 to {2**32 - episodes}, got {seed}")
    run = existing_run(directory)
    options, (iteration, population) = run.config, population_of(run, which)
    refuse_edited(run)
    refuse_unknown_module(options)
    M = len(population)
    size = NUMBER * (population.policy.network.num_params + 2 * population.policy.num_observed)
    refuse_what_cannot_fit([Need("the rollouts", ("episodes",), M * episodes * size)])
    rows = np.repeat(np.arange(M), episodes)
    rollouts = Rollouts(
        member=rows,
        agents=Agents(*(array[rows] for array in population.agents)),
        start=np.tile(np.arange(seed, seed + episodes, dtype=np.uint32), M),
        key=np.zeros((len(rows), 2), np.uint32),
    )
    task = task_of(options)
    measures = of_task(task) if task is not None and task.measure_ranges else Measures()
    # A policy may put out what is not finite: that is looked at below.
    quiet = np.errstate(over="ignore", invalid="ignore")
    with quiet, contextlib.closing(make_local(options, population.policy, measures, perturb)) as local:
        found = jax.tree.map(np.asarray, local.run(rollouts))
    if not (finite := np.isfinite(found.returns) & np.isfinite(found.measures).all(axis=1)).all():
        lost = np.unique(rows[~finite]).tolist()
        raise DvdrlError(f"{run.directory}: in an episode members {lost} put out numbers that are not finite")
    states = _last_states(run.directory, population)
    returns = found.returns.reshape(M, episodes)
    by_member = returns.mean(axis=1).tolist()
    measured = _diversity(options, population, states)
    shares, distinct = _standing(run, population, measured["similarities"], by_member)
    modes = {mode: total.reshape(M, episodes).mean(axis=1).tolist() for mode, total in found.modes.items()}
    return {
        "task": options.task,
        "algorithm": options.algorithm,
        "iteration": iteration,
        **({"perturb": dict(perturb)} if perturb else {}),
        "episodes": episodes,
        "member_returns": by_member,
        "member_deviations": returns.std(axis=1).tolist(),
        "best_return": float(returns.mean(axis=1).max()),
        "mean_return": float(returns.mean()),
        "shares": shares,
        "distinct": distinct,
        **({"mode_returns": modes} if modes else {}),
        **_quality_diversity(run, task, found.measures.reshape(M, episodes, -1).mean(axis=1), by_member),
        **{name: value for name, value in measured.items() if name not in metrics.PAIRS},
    }


def described(result: Mapping[str, Any]) -> list[str]:
    """What `evaluate` returned, as lines for readers."""
    task = f"{result['task']}{perturbed(result.get('perturb', {}))}"
    lines = [f"{result['algorithm']} on {task}, iteration {result['iteration']}, {result['episodes']} episodes"]
    columns = (result[name] for name in ("member_returns", "member_deviations", "shares", "distinct"))
    for member, (mean, deviation, share, distinct) in enumerate(zip(*columns, strict=True)):
        said = "distinct" if distinct else "not distinct"
        lines.append(f"  member {member}  {mean:10.1f} ± {deviation:<8.1f} share {share:.2f}  {said}")
    for mode, returns in result.get("mode_returns", {}).items():
        lines.append(f"  {mode}: " + ", ".join(f"{value:.1f}" for value in returns))
    of = len(result["member_returns"])
    lines.append(f"  log det {result['log_det']:.3f}   Vendi score {result['vendi_1']:.2f} of {of}")
    if "qd_score" in result:
        lines.append(f"  QD score {result['qd_score']:.1f}   coverage {result['coverage']:.2%} of the cells")
    return lines


def _diversity(options: Training[Never], population: Population, states: Float[np.ndarray, "s obs"]) -> dict[str, Any]:
    """Diversity metrics of the members' behaviours on these states."""
    kernel = KERNELS[options.kernel](length_scale=options.length_scale)

    @jax.jit  # one program, because compiling its hundred operations one by one takes seconds
    def of_members(agents: Agents, states: Any) -> dict[str, jax.Array]:
        behaviours = embed(population.policy.behaviour, agents, states, options.normalization)
        return measure(gram(kernel, behaviours), behaviours)

    return metrics.plain(of_members(population.agents, states))


def _standing(
    run: Run, population: Population, similarities: list[float], returns: list[float]
) -> tuple[list[float], list[bool]]:
    """(share of each member, whether it is good and different)."""
    known = population.standing
    if known is not None and known.places is not None:
        return metrics.plain({"shares": known.shares})["shares"], known.distinct.tolist()
    shares = standing.shares(similarities, returns)
    return shares, standing.distinct(shares, returns, _reached(run, returns))


def _reached(run: Run, returns: list[float]) -> standing.Reached:
    """What the run has reached; before its first iteration, what is evaluated."""
    so_far = standing.reached_by(run.directory / "metrics.jsonl", run.metrics)
    return so_far or standing.Reached(float(np.mean(returns)), max(returns))


def _quality_diversity(
    run: Run, task: Task | None, measures: Float[np.ndarray, "M D"], returns: list[float]
) -> dict[str, float]:
    """The QD score, counted from the mean return of the first iteration, and the coverage."""
    if task is None or not task.measure_ranges or find_spec("ribs") is None:
        return {}
    from dvdrl.archives import qd_score_and_coverage  # takes seconds, and not every task needs it

    floor = _reached(run, returns).start
    score, coverage = qd_score_and_coverage(measures, np.asarray(returns), task.measure_ranges, floor)
    return {"qd_score": score, "coverage": coverage}


def _last_states(directory: Path, population: Population) -> Float[np.ndarray, "s obs"]:
    """The states on which the last iteration compared behaviours."""
    iteration = max(checkpoint.iterations(directory / "checkpoints"), default=None)
    if iteration is None:
        raise DvdrlError(f"{directory}: no checkpoint to evaluate")
    states = checkpoint.load_tensor(directory / "checkpoints", iteration, "states")
    observed = population.policy.num_observed
    if states.dtype != np.float32 or states.shape[1:] != (observed,) or not states.size:
        said = f"float32 of shape (states, {observed}), got {states.dtype} of shape {states.shape}"
        raise DvdrlError(f"{directory}: in the checkpoint of iteration {iteration}, expected states of {said}")
    with np.errstate(over="ignore", invalid="ignore"):
        behaviours = population.policy.behaviour(population.agents, states[None].repeat(len(population), axis=0))
    if not np.isfinite(behaviours).all():
        raise DvdrlError(f"{directory}: on the states of iteration {iteration}, behaviours are not finite")
    return states
