"""How well rules choose the best of several arms in few trials: the rule of `dvdrl adapt` and three others.

The arms are made up. What they return undamaged is known from ten episodes, and damage changes it in one of four ways.
The others are uniform trials, successive halving (Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed
bandits", 2013) and top-two Thompson sampling (Russo, 2016), which has the same beliefs as ours. All may have two trials
for each arm; ours stops earlier.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dvdrl import arms
from dvdrl.record import provenance

EPISODES = 10
NOISES = (0.02, 0.1, 0.3)
"""Deviations of a return, as shares of its mean."""
_LEFT: dict[str, Callable[[np.random.Generator, int], Float[np.ndarray, " M"]]] = {
    "undamaged": lambda rng, size: np.ones(size),
    "alike": lambda rng, size: rng.uniform(0.2, 1) * (1 + 0.05 * rng.normal(size=size)),
    "apart": lambda rng, size: rng.uniform(0, 1, size),
    "one left": lambda rng, size: np.where(np.arange(size) == rng.integers(size), 0.7, 0.1),
}
"""What damages leave of the return of each arm: all; nearly the same share in all arms; another share in each; or a
good share in one arm and hardly anything in all others."""
DAMAGES = tuple(_LEFT)
SIZES = (3, 5, 10, 20)
PROBLEMS, SEED = 200, 500


class Problem(NamedTuple):
    """Arms after a damage, and what is known of them from before."""

    means: Float[np.ndarray, " M"]
    noise: float
    known: arms.State

    def trial(self, rng: np.random.Generator, arm: int) -> float:
        """What an arm returns once."""
        return float(self.means[arm] * (1 + self.noise * rng.normal()))


Rule = Callable[[Problem, np.random.Generator, int], tuple[int, int]]
"""Arms and the most trials -> the chosen arm, and how many trials it took."""


def problem(rng: np.random.Generator, size: int, damage: str, noise: float) -> Problem:
    """Arms that return 600 to 1,000 undamaged."""
    before = rng.uniform(600, 1000, size)
    episodes = before[:, None] * (1 + noise * rng.normal(size=(size, EPISODES)))
    return Problem(before * _LEFT[damage](rng, size), noise, arms.init(episodes.mean(axis=1), episodes.std(axis=1)))


def ours(given: Problem, rng: np.random.Generator, most: int) -> tuple[int, int]:
    """The rule of `dvdrl.arms`."""
    state = given.known
    while (arm := arms.select(state, most)) is not None:
        state = arms.update(state, arm, given.trial(rng, arm))
    return arms.chosen(state), int(state.counts.sum())


def top_two_thompson(given: Problem, rng: np.random.Generator, most: int) -> tuple[int, int]:
    """The best arm of a sample of the beliefs; in half of the trials that of the next sample that has another best."""
    state = given.known
    for _ in range(most):
        means, variances = arms.belief(state)
        samples = means + np.sqrt(variances) * rng.normal(size=(100, len(means)))
        best = samples.argmax(axis=1)
        others = best[best != best[0]]
        arm = int(others[0]) if rng.random() < 0.5 and len(others) else int(best[0])
        state = arms.update(state, arm, given.trial(rng, arm))
    return arms.chosen(state), most


def successive_halving(given: Problem, rng: np.random.Generator, most: int) -> tuple[int, int]:
    """Rounds with equal numbers of trials. After each, the better half of the arms is left."""
    size = len(given.means)
    left, state, rounds = np.argsort(-given.known.prior), given.known, int(np.ceil(np.log2(size)))
    for _ in range(rounds):
        for arm in np.tile(left, max(1, most // (len(left) * rounds))).tolist():
            if state.counts.sum() < most:
                state = arms.update(state, arm, given.trial(rng, arm))
        means = np.where(state.counts[left] > 0, state.means[left], -np.inf)
        left = left[np.argsort(-means, kind="stable")][: -(-len(left) // 2)]
    return int(left[0]), int(state.counts.sum())


def uniform(given: Problem, rng: np.random.Generator, most: int) -> tuple[int, int]:
    """Each arm equally often."""
    size = len(given.means)
    means = [np.mean([given.trial(rng, arm) for _ in range(most // size)]) for arm in range(size)]
    return int(np.argmax(means)), most


RULES: dict[str, Rule] = {
    "ours": ours,
    "top-two thompson": top_two_thompson,
    "successive halving": successive_halving,
    "uniform": uniform,
}


def measure(rule: Rule, size: int, damage: str, *, problems: int = PROBLEMS, seed: int = SEED) -> dict[str, float]:
    """What a rule chooses: means over problems.

    Returns:
        `share`, the chosen arm's return as a share of the best one's; `within_margin`, how often that is within 5 %;
        and `trials`.
    """
    shares, trials = [], []
    for i in range(problems):
        rng = np.random.default_rng([seed, size, DAMAGES.index(damage), i])
        given = problem(rng, size, damage, NOISES[i % len(NOISES)])
        arm, needed = rule(given, rng, 2 * size)
        shares.append(given.means[arm] / given.means.max())
        trials.append(needed)
    return {
        "share": float(np.mean(shares)),
        "within_margin": float(np.mean(np.array(shares) >= 1 - arms.MARGIN)),
        "trials": float(np.mean(trials)),
    }


def bench(*, as_json: bool) -> None:
    """Print what each rule chooses."""
    rows: list[dict[str, Any]] = [
        {"rule": name, "arms": size, "damage": damage, **measure(rule, size, damage)}
        for size in SIZES
        for damage in DAMAGES
        for name, rule in RULES.items()
    ]
    if as_json:
        print(json.dumps({**provenance("numpy"), "problems": PROBLEMS, "seed": SEED, "rows": rows}, indent=2))
        return
    print(f"means over {PROBLEMS} problems; at most two trials for each arm")
    for row in rows:
        print(
            f"{row['arms']:3} arms, {row['damage']:10} {row['rule']:19} {row['share']:6.1%} of the best,"
            f" within 5 % in {row['within_margin']:4.0%}, {row['trials']:5.1f} trials"
        )
