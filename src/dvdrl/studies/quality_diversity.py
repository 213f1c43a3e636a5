"""A peer of the variants of `dvdrl reproduce modes`: CMA-MAE, with the task's measures and with our behaviours.

It trains the same network in the same tasks, from the same kind of initial parameters, with the same number of episodes
as the evolution strategies with gradients: one emitter for each member, and a batch as large as a member's
perturbations. Its policies see observations as they are: a filter that learns would change what the elites in the
archive do. By default it knows the task's measures, such as where a point ends, which no other variant sees.
`BY_VISITS` has the behaviour of niche-ES instead, the mean of the observations. An archive needs its ranges before it
begins, so a first batch of policies with random parameters shows them.
"""

import contextlib
import csv
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from dvdrl import files
from dvdrl.archives import CMAMAE, Elites, Ranges
from dvdrl.diversity import KERNELS, gram, ordered_shares
from dvdrl.errors import DvdrlError
from dvdrl.interfaces import Episodes, Rollouts
from dvdrl.policies import Agents, Policy
from dvdrl.record import record, writing
from dvdrl.rollouts import Local
from dvdrl.rollouts.measures import of_task
from dvdrl.runs.directory import planned
from dvdrl.runs.options import ES
from dvdrl.runs.presets import resolve
from dvdrl.runs.trainer import make_envs, make_policy, task_of
from dvdrl.studies import tables
from dvdrl.studies.kept import Result
from dvdrl.studies.measures import number, rounded
from dvdrl.studies.modes import FOUND, MODES

FILE = "cma-mae.csv"
BY_MEASURES, BY_VISITS = "cma-mae", "cma-mae by visits"
WHOLE = ", whole archive"
"""The variants in tables: as many elites as other variants have members, and with `WHOLE` all elites."""
_MOST = 2**20
"""The size of a file that is read, in bytes."""
_STARTS = 1_000_000
"""The first start of an evaluation, as in `runs.evaluation`."""
_LENGTH_SCALE = 0.2
"""Of the kernel by which elites are chosen, as a part of the ranges of behaviours."""
_LEAST_RANGE = 1e-6
"""Of a behaviour's coordinate that never varies."""


def reproduce(directory: Path, *, scale: str, seeds: str | None, setting: str | None) -> None:
    """Run CMA-MAE in one setting of `modes` or in all; print the table, and save the numbers of each seed.

    Raises:
        DvdrlError: there is no such scale or setting, or seeds are not two numbers; nothing has been written.
    """
    scales = {name: [each for each in size.length if each in FOUND] for name, size in MODES.scales.items()}
    if not (settings := scales.get(scale)):
        raise DvdrlError(f"scale: modes-qd has {', '.join(name for name in scales if scales[name])}; got {scale}")
    if setting is not None and setting not in settings:
        raise DvdrlError(f"setting: modes-qd has {', '.join(settings)} at the scale {scale}; got {setting!r}")
    seeds = seeds or MODES.scales[scale].seeds
    runs = [
        (each, config)
        for each in ([setting] if setting else settings)
        for _, config in planned(replace(_options(each, scale), seeds=seeds))
    ]
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        files.create(directory / FILE)
    found: list[Result] = []
    for name, config in runs:
        print(f"{name}, seed {config.seed}", file=sys.stderr)
        found += results(name, config)
        with writing(directory):
            tables.write_csv(directory / FILE, [tables.run_row(result) for result in found])
            made = record("ribs", "numpy", "mujoco", seeds=seeds, scale=scale)
            files.write_atomically((directory / FILE).with_suffix(".json"), made.encode())
    tables.print_summary(tables.summarize(found, MODES), MODES)
    print(f"Saved {directory}/{FILE}, cma-mae.json")


def summary(directory: Path) -> list[dict[str, Any]]:
    """The rows of a table, as `tables.summarize` makes them, of what is saved in the directory; empty if nothing is."""
    path = directory / FILE
    if not path.exists():
        return []
    about = ("setting", "variant", "seed", "env_steps", "seconds")
    saved = [
        Result(
            row["setting"],
            row["variant"],
            "local",
            int(row["seed"]),
            int(row["env_steps"]),
            float(row["seconds"]),
            {name: float(value) for name, value in row.items() if name not in about},
        )
        for row in csv.DictReader(files.read(path, most=_MOST).decode().splitlines())
    ]
    return tables.summarize(saved, MODES)


def results(setting: str, config: ES[Never]) -> list[Result]:
    """The results of one seed, by measures and by visits: of as many elites as others have members, and of all."""
    return [result for variant in (BY_MEASURES, BY_VISITS) for result in _results(variant, setting, config)]


def _results(variant: str, setting: str, config: ES[Never]) -> list[Result]:
    begin = time.perf_counter()
    task = task_of(config)
    assert task is not None, "the experiment's settings are tasks of ours"
    policy = make_policy(config)
    with contextlib.closing(Local(make_envs(config), policy, of_task(task))) as local:
        elites, ranges, floor, env_steps = _search(config, policy, task.measure_ranges, local, variant)
        chosen = choose(elites, ranges, floor, config.population)
        returns, modes = _evaluated(elites.params, policy, local)
    seconds = time.perf_counter() - begin

    def result(name: str, members: Int[np.ndarray, "m"]) -> Result:
        there = [bool(each[members].max() > FOUND[setting]) for each in modes.values()]
        measures = {"best": returns[members].max(), "modes_found": sum(there), "all_modes": all(there)}
        numbers = {measure: number(value) for measure, value in measures.items()}
        return Result(setting, name, "local", config.seed, env_steps, rounded(seconds), numbers)

    return [result(variant, chosen), result(variant + WHOLE, np.arange(len(returns)))]


def choose(elites: Elites, ranges: Ranges, floor: float, num: int) -> Int[np.ndarray, "num"]:
    """The indices of so many elites that are good and different, by their returns and measures alone.

    The first is the best one. Then each time that elite is added whose product of two factors is the largest: its
    return above the floor, and its share in the determinant given those chosen so far.
    """
    low, high = np.asarray(ranges).T
    places = (elites.measures - low) / (high - low)
    gained = np.maximum(elites.returns - floor, 0.0)
    chosen = [int(np.argmax(elites.returns))]
    while len(chosen) < min(num, len(gained)):
        value = gained * np.asarray(_shares_beside(jnp.asarray(places[chosen]), jnp.asarray(places)))
        value[chosen] = -np.inf
        chosen.append(int(np.argmax(value)))
    return np.array(chosen)


@jax.jit
def _shares_beside(chosen: Float[Array, "k D"], places: Float[Array, "n D"]) -> Float[Array, "n"]:
    """The share of each place in the determinant of itself and those chosen, which count as fitter."""
    kernel = KERNELS["squared-exponential"](length_scale=_LENGTH_SCALE)

    def of_one(place: Float[Array, "D"]) -> Float[Array, ""]:
        K = gram(kernel, jnp.concatenate([chosen, place[None]]))
        return ordered_shares(K, -jnp.arange(len(K)))[-1]

    return jax.vmap(of_one)(places)


def _options(setting: str, scale: str) -> ES[Never]:
    """The options of ES in a setting: what CMA-MAE shares with all variants of `modes`."""
    options: Any = MODES.config(setting, "es", scale)
    resolved: ES[Never] = resolve(options)
    return resolved


def _search(
    config: ES[Never], policy: Policy, ranges: Ranges, local: Local, variant: str
) -> tuple[Elites, Ranges, float, int]:
    """(the elites, the ranges of behaviours, what the initial policies return, the number of environment steps)."""
    rng = np.random.default_rng(config.seed)
    env_steps = 0

    def tried(params: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n D"]]:
        """The returns and behaviours of so many policies."""
        nonlocal env_steps
        found = _episodes(params, rng.integers(2**32, size=len(params), dtype=np.uint32), policy, local)
        env_steps += int(found.lengths.sum())
        return found.returns, found.measures if variant == BY_MEASURES else found.moments.mean

    keys = jax.random.split(jax.random.key(config.seed), config.population)
    params = np.asarray(jax.vmap(policy.network.init)(keys), float)
    floor = float(tried(params)[0].mean())
    if variant == BY_VISITS:
        _, seen = tried(rng.normal(size=(2 * config.sensings * config.population, params.shape[1])))
        ranges = [
            (low, max(high, low + _LEAST_RANGE)) for low, high in np.stack([seen.min(0), seen.max(0)], 1).tolist()
        ]
    search = CMAMAE(params, ranges, floor, batch_size=2 * config.sensings, seed=config.seed)
    for _ in range(config.iterations):
        search.tell(*tried(search.ask()))
    return search.elites, ranges, floor, env_steps


def _evaluated(
    params: Float[np.ndarray, "n d"], policy: Policy, local: Local
) -> tuple[Float[np.ndarray, "n"], Mapping[str, Float[np.ndarray, "n"]]]:
    """(mean returns, mean returns in each mode alone) over new episodes, as other variants are evaluated."""
    starts = range(_STARTS, _STARTS + MODES.episodes)
    each = [_episodes(params, np.full(len(params), start, np.uint32), policy, local) for start in starts]
    modes = {mode: np.mean([found.modes[mode] for found in each], axis=0) for mode in each[0].modes}
    return np.mean([found.returns for found in each], axis=0), modes


def _episodes(
    params: Float[np.ndarray, "n d"], starts: UInt32[np.ndarray, "n"], policy: Policy, local: Local
) -> Episodes:
    """An episode of each policy, which sees observations as they are."""
    n = len(params)
    as_they_are = np.zeros((n, policy.num_observed), np.float32), np.ones((n, policy.num_observed), np.float32)
    agents = Agents(params.astype(np.float32), *as_they_are)
    return local.run(Rollouts(np.arange(n), agents, starts, np.zeros((n, 2), np.uint32)))
