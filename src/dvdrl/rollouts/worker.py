"""Episodes inside a worker process: whole episodes, with their policies, instead of single steps.

A worker takes one episode after the other from the queue, and runs several side by side. A slow one does not hold up
the others. An episode depends on nothing but its own rollout, so it does not matter which worker runs it, beside what.
"""

import time
from itertools import count
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from dvdrl.engines import refuse_endless
from dvdrl.engines.worker import AT_ONCE, Environments, Queue, gather
from dvdrl.interfaces import Episodes, Rollouts
from dvdrl.policies import Agents, Policy
from dvdrl.rollouts.measures import Measures
from dvdrl.rollouts.tally import BLOCK, Tally, joined, replaces, sampling_noise
from dvdrl.tasks.task import MODE

_TURNS = 32
"""Steps between two looks at whether the main process still waits."""


def write(file: Path, rollouts: Rollouts) -> None:
    """Write rollouts to a file that all workers map into their memory. Each copies only the episodes that it runs."""
    fields = {**rollouts.agents._asdict(), "start": rollouts.start, "key": rollouts.key}
    arrays = {name: np.asarray(field) for name, field in fields.items()}
    records = np.empty(len(arrays["start"]), [(name, array.dtype, array.shape[1:]) for name, array in arrays.items()])
    for name, array in arrays.items():
        records[name] = array
    np.save(file, records)


def play(
    environments: Environments, queue: Queue, *, policy: Policy, measures: Measures, file: Path
) -> tuple[Int[np.ndarray, "m"], Episodes, float]:
    """Run episodes of a file until the queue has no more.

    Returns:
        their numbers, their results, and the seconds inside the environments.
    """
    jax.config.update("jax_platforms", "cpu")  # on a machine with a GPU, do not reserve its memory
    records: Any = np.load(file, mmap_mode="r")
    width = min(AT_ONCE, len(records))
    environments.make(width)
    first_replaces = np.asarray(replaces(records["key"], 0))
    num_outputs = policy.head.num_outputs

    def drawn(episode: int, step: int) -> Any:
        return np.asarray(sampling_noise(records["key"][episode][None], step, num_outputs))[0]

    # One row for each environment: the episode in it, and all that belongs to this episode.
    number, steps = np.full(width, -1), np.zeros(width, int)
    noise = np.zeros((width, BLOCK, num_outputs) if policy.sampled else 0, np.float32)
    obs, keep = np.zeros((width, policy.num_observed)), np.zeros((width, BLOCK), bool)
    everyone = Agents(*(np.empty((width, *records[name].shape[1:]), records[name].dtype) for name in Agents._fields))
    tally = Tally(width, policy.num_observed, measures)

    free, changed, seconds = list(range(width)), True, 0.0
    played, parts = [], [tally.episodes(slice(0))]
    for turn in count():
        if turn % _TURNS == 0 and environments.given_up():
            break
        while free and (taken := queue.take(width - len(free))) is not None:
            row = free.pop()
            begin = time.perf_counter()
            obs[row] = environments.begin(row, int(records["start"][taken]))
            seconds += time.perf_counter() - begin
            for name, array in everyone._asdict().items():
                array[row] = records[name][taken]
            number[row], steps[row], keep[row], changed = taken, 0, first_replaces[taken], True
            tally.begin(row, obs[row])
            if policy.sampled:
                noise[row] = drawn(taken, 0)
        if changed:
            which = np.flatnonzero(number >= 0)
            if not which.size:
                break
            rows: Any = slice(None) if which.size == width else which  # slices are views, and so faster
            agents, active, changed = Agents(*(array[rows] for array in everyone)), np.ones(which.size, bool), False

        place = steps[rows] % BLOCK
        if not place.all():
            for row in which[(place == 0) & (steps[rows] > 0)].tolist():
                keep[row] = replaces(records["key"][number[row]][None], steps[row])[0]
                refuse_endless(environments.envs[row], steps[row])
                if policy.sampled:
                    noise[row] = drawn(number[row], steps[row])
        seen = obs[rows]
        tally.add_acted_on(rows, seen, keep[which, place], active)
        outputs = policy.outputs(agents, seen[:, None])[:, 0]
        lost = ~np.isfinite(outputs).all(axis=1)
        if lost.any():  # no environment accepts such an action: the episode ends here, with a return of NaN
            outputs[lost] = 0.0
            tally.lose(which[lost])
        if policy.sampled:
            outputs = outputs + noise[which, place]
        begin = time.perf_counter()
        results = environments.step_in(which.tolist(), policy.head.actions(outputs))
        seconds += time.perf_counter() - begin
        observations, rewards, terminated, truncated, infos = zip(*results, strict=True)
        obs[rows] = observations
        steps[rows] += 1
        tally.add_results(rows, np.array(rewards), _wanted(infos, measures), obs[rows], ~lost)
        if any(terminated) or any(truncated) or lost.any():
            ended = which[np.array(terminated, bool) | np.array(truncated, bool) | lost]
            played += number[ended].tolist()
            parts.append(tally.episodes(ended))
            free += ended.tolist()
            number[ended], changed = -1, True
    return np.array(played, int), joined(parts), seconds


def _wanted(infos: Any, measures: Measures) -> dict[str, Any]:
    """What is measured, or paid in a mode; everything where that is not there, for the error to list."""
    if not any(infos):
        return {}
    names = {measure.key for measure in measures.each if measure.function is None}
    if all(names <= info.keys() for info in infos):
        infos = [{name: info[name] for name in info if name in names or name.startswith(MODE)} for info in infos]
    return gather(infos)
