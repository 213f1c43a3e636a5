"""The paper's multi-modal tasks: HalfCheetah and Ant, where running forward and running backward both pay.

A policy has no input that names the task, so it cannot solve both in one episode. We read the paper as follows: the
return of an episode is that of the better task over the whole episode. The reward of a step is therefore
`max(F_t, B_t) - max(F_{t-1}, B_{t-1})`, where F and B are the returns so far. It sums to `max(F_T, B_T)`.

This reward depends on the whole episode so far. Algorithms that learn values of states need one that does not: `markov`
pays the better direction of each step.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from dvdrl.errors import DvdrlError
from dvdrl.tasks.draws import Draws
from dvdrl.tasks.locomotion import Ant, HalfCheetah, Locomotion, total
from dvdrl.tasks.task import MODE, Data, Reward, xp_of


@dataclass(frozen=True, kw_only=True)
class EitherDirection(Locomotion):
    """A task with two modes; `reward_mode_forward` and `reward_mode_backward` report each one separately.

    It carries the position along x, then the two returns so far; with `noisy` instead the direction, with `markov`
    nothing.
    """

    noisy: bool = False
    """Select another reading of the paper: each reset draws a hidden direction, and only that direction pays."""
    markov: bool = False
    """Each step pays the better direction. The reward depends on this step alone, as off-policy learners assume."""

    fastest: ClassVar[float]
    """A velocity, in m/s, that hardly any policy exceeds in either direction."""

    def __post_init__(self) -> None:
        """Refuse options that contradict each other."""
        super().__post_init__()
        if self.noisy and self.markov:
            raise DvdrlError(
                "noisy and markov: expected at most one of them, got both; noisy pays one hidden direction in the whole"
                " episode, markov the better one in each step"
            )

    @property
    def modes(self) -> tuple[str, ...]:
        """See Task."""
        return ("forward", "backward")

    @property
    def measure_ranges(self) -> tuple[tuple[float, float], ...]:
        """See Task."""
        return ((-self.fastest, self.fastest),)

    def begin(self, draws: Draws, data: Data) -> Any:
        """See Task."""
        xp, x = xp_of(data["qpos"]), self.position(data)
        if self.noisy:
            forward = draws.uniform(0.0, 1.0, 1) < 0.5
            return xp.concat([x, xp.where(forward, 1.0, -1.0)], axis=1)
        if self.markov:
            return x
        return xp.concat([x, 0 * x, 0 * x], axis=1)

    def reward(self, carry: Any, action: Any, data: Data) -> Reward:
        """See Task."""
        xp, x = xp_of(data["qpos"]), self.position(data)
        velocity = (x[:, 0] - carry[:, 0]) / self.dt
        gain = self.forward_reward_weight * velocity
        parts = self.other_parts(action, data)
        forward, backward = total(gain, parts), total(-gain, parts)
        parts |= {MODE + "forward": forward, MODE + "backward": backward}
        parts |= {"x_position": data["qpos"][:, 0], "x_velocity": velocity}
        if self.noisy:
            paid = xp.where(carry[:, 1] > 0, forward, backward)
            return Reward(paid, parts, xp.concat([x, carry[:, 1:]], axis=1))
        if self.markov:
            return Reward(xp.maximum(forward, backward), parts, x)
        before = carry[:, 1:]
        after = before + xp.stack([forward, backward], axis=1)
        growth = xp.max(after, axis=1) - xp.max(before, axis=1)
        return Reward(growth, parts, xp.concat([x, after], axis=1))


# The robot comes first so that its options have its defaults. `begin` and `reward` are still EitherDirection's: the
# robot inherits them from Locomotion, which comes after EitherDirection.
@dataclass(frozen=True, kw_only=True)
class HalfCheetahFwdBwd(HalfCheetah, EitherDirection):
    """HalfCheetah-FwdBwd-v0."""

    id: ClassVar[str] = "HalfCheetah-FwdBwd-v0"
    fastest: ClassVar[float] = 10.0


@dataclass(frozen=True, kw_only=True)
class AntFwdBwd(Ant, EitherDirection):
    """Ant-FwdBwd-v0."""

    id: ClassVar[str] = "Ant-FwdBwd-v0"
    fastest: ClassVar[float] = 6.0
