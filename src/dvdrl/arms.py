"""Which of several arms is the best, in few trials; what is known of the arms from elsewhere is the prior.

An arm is a member of a population, its prior is what it returns on the undamaged robot, and a trial is an episode on
the damaged one. The rule is a top-two rule: the arm that looks best, or the one that most probably beats it, is tried
next (Russo, "Simple Bayesian algorithms for best-arm identification", 2016; here without random numbers, as in Jourdan
et al., "Top two algorithms revisited", 2022). All functions are pure, and the state has all that was observed.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import ndtr

MARGIN = 0.05
"""An arm is as good as another if it returns at most this share less."""
DOUBT = 0.1
"""Trials end when the probability that another arm is better by more than the margin is less than this."""
_DAMAGE = 0.02
"""The change of returns by a damage that is expected before the first trial, as a share of the best return."""
_LEAST_NOISE = 0.02
"""The least deviation of a trial that is expected before the first one, as a share of the best return."""


class State(NamedTuple):
    """What is known of M arms."""

    prior: Float[np.ndarray, " M"]
    """The return of each arm, as it is known from elsewhere."""
    noise: float
    """The deviation of single returns there."""
    counts: Int[np.ndarray, " M"]
    """How often each arm was tried."""
    means: Float[np.ndarray, " M"]
    """The mean return of its trials; 0 if there are none."""
    squares: float
    """The sum over all trials of the squared difference from the mean of their arm."""


class Belief(NamedTuple):
    """What the arms probably return: normal distributions."""

    means: Float[np.ndarray, " M"]
    variances: Float[np.ndarray, " M"]


def init(returns: ArrayLike, deviations: ArrayLike) -> State:
    """No trial yet.

    Args:
        returns: what each arm returned elsewhere, on average, (M,).
        deviations: the deviation of these returns over episodes, (M,).
    """
    prior, noises = np.array(returns, np.float64), np.array(deviations, np.float64)
    if prior.ndim != 1 or not prior.size or noises.shape != prior.shape or not np.isfinite([prior, noises]).all():
        raise ValueError(f"returns: expected finite numbers of shape (M,), and their deviations; got {prior}, {noises}")
    noise = float(np.sqrt(np.mean(np.square(noises))))
    return State(prior, noise, np.zeros(len(prior), np.int64), np.zeros(len(prior)), 0.0)


def update(state: State, arm: int, returned: float) -> State:
    """The state after one more trial."""
    counts, means = state.counts.copy(), state.means.copy()
    counts[arm] += 1
    difference = returned - means[arm]
    means[arm] += difference / counts[arm]
    return state._replace(counts=counts, means=means, squares=state.squares + difference * (returned - means[arm]))


def belief(state: State) -> Belief:
    """What the arms probably return now.

    The return of an arm is that of the prior plus a change by the damage, and a trial adds noise. The sizes of both are
    estimated from the trials, beginning with an expected size that counts as much as one. So trials that agree with the
    prior let it stand, and a surprise opens everything.
    """
    tried = state.counts > 0
    scale = max(np.abs(state.prior).max(), state.noise, 1e-100)  # where all returns are 0, nothing is divided by 0
    expected = max(state.noise, _LEAST_NOISE * scale) ** 2
    spare = int(state.counts.sum() - tried.sum())
    noise = (expected + state.squares) / (1 + spare)
    surprise = np.square(state.means - state.prior)[tried] - noise / state.counts[tried]
    damage = ((_DAMAGE * scale) ** 2 + np.maximum(surprise, 0.0).sum()) / (1 + tried.sum())
    precision = 1 / damage + state.counts / noise
    return Belief((state.prior / damage + state.counts * state.means / noise) / precision, 1 / precision)


def chosen(state: State) -> int:
    """The arm that probably returns most."""
    return int(np.argmax(belief(state).means))


def select(state: State, most: int) -> int | None:
    """The arm to try next; None after `most` trials, or if another trial is hardly worth it.

    Of the arm that probably returns most, and the one that most probably returns more than it, it is the one that is
    known less. Trials end when the first has been tried, and the second is better by the margin only with a small
    probability.
    """
    if len(state.prior) == 1 or state.counts.sum() >= most:
        return None
    means, variances = belief(state)
    best = int(np.argmax(means))
    distances = (means - means[best]) / np.sqrt(variances + variances[best])
    distances[best] = -np.inf
    rival = int(np.argmax(distances))
    ahead = means[rival] - means[best] - MARGIN * abs(means[best])
    if state.counts[best] and ndtr(ahead / np.sqrt(variances[rival] + variances[best])) < DOUBT:
        return None
    return rival if variances[rival] > variances[best] else best
