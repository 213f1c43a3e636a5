"""The paper's multi-modal tasks: HalfCheetah and Ant, where running forward and running backward both pay.

A policy has no task input, so it cannot serve both at once. Our reading: the return of an episode is that of the
better of the two tasks over the whole episode. As a reward for each step that is the growth of the better of the
two running returns, `max(F_t, B_t) - max(F_{t-1}, B_{t-1})`, which sums to `max(F_T, B_T)`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from dvdrl.tasks.draws import Draws
from dvdrl.tasks.locomotion import Ant, HalfCheetah, Locomotion, total
from dvdrl.tasks.task import MODE, Data, Reward, xp_of


@dataclass(frozen=True, kw_only=True)
class EitherDirection(Locomotion):
    """Two modes of one task; `reward_mode_forward` and `reward_mode_backward` report each by itself.

    What is carried: the position along x, then the two running returns or, with `noisy`, the direction.
    """

    modes: ClassVar[tuple[str, ...]] = ("forward", "backward")

    noisy: bool = False
    """The other reading: at each reset a direction is drawn, unseen by the policy, and only that one pays."""

    def begin(self, draws: Draws, data: Data) -> Any:
        """See Task."""
        xp, x = xp_of(data["qpos"]), self.position(data)
        if self.noisy:
            forward = draws.uniform(0.0, 1.0, 1) < 0.5
            return xp.concat([x, xp.where(forward, 1.0, -1.0)], axis=1)
        return xp.concat([x, 0 * x, 0 * x], axis=1)

    def reward(self, carry: Any, action: Any, data: Data) -> Reward:
        """See Task."""
        xp, x = xp_of(data["qpos"]), self.position(data)
        velocity = self.forward_reward_weight * ((x[:, 0] - carry[:, 0]) / self.dt)
        parts = self.other_parts(action, data)
        forward, backward = total(velocity, parts), total(-velocity, parts)
        modes = {MODE + "forward": forward, MODE + "backward": backward}
        if self.noisy:
            paid = xp.where(carry[:, 1] > 0, forward, backward)
            return Reward(paid, {**parts, **modes}, xp.concat([x, carry[:, 1:]], axis=1))
        before = carry[:, 1:]
        after = before + xp.stack([forward, backward], axis=1)
        growth = xp.max(after, axis=1) - xp.max(before, axis=1)
        return Reward(growth, {**parts, **modes}, xp.concat([x, after], axis=1))


# The robot comes first for the defaults of its options; begin and reward are still EitherDirection's, since the robot
# leaves those to Locomotion, which EitherDirection precedes.
@dataclass(frozen=True, kw_only=True)
class HalfCheetahFwdBwd(HalfCheetah, EitherDirection):
    """HalfCheetah-FwdBwd-v0."""

    id: ClassVar[str] = "HalfCheetah-FwdBwd-v0"


@dataclass(frozen=True, kw_only=True)
class AntFwdBwd(Ant, EitherDirection):
    """Ant-FwdBwd-v0."""

    id: ClassVar[str] = "Ant-FwdBwd-v0"
