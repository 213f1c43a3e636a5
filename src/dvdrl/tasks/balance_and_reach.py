"""Gymnasium's four other MuJoCo v5 tasks: two pendulums to balance, two arms to reach and to push with."""

from dataclasses import dataclass
from typing import Any, ClassVar

from dvdrl.tasks.draws import Draws
from dvdrl.tasks.gymnasium_models import GymnasiumTask, NoisyStart, NormalVelocityStart
from dvdrl.tasks.locomotion import sum_of_squares
from dvdrl.tasks.task import Data, Reward, xp_of


@dataclass(frozen=True, kw_only=True)
class InvertedPendulum(NoisyStart):
    """InvertedPendulum-v5."""

    id: ClassVar[str] = "InvertedPendulum-v5"
    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    reset_noise_scale: float = 0.01

    def observe(self, data: Data) -> Any:
        """See Task."""
        return xp_of(data["qpos"]).concat([data["qpos"], data["qvel"]], axis=1)

    def terminated(self, data: Data) -> Any:
        """See Task."""
        xp = xp_of(data["qpos"])
        return ~xp.isfinite(self.observe(data)).all(axis=1) | (xp.abs(data["qpos"][:, 1]) > 0.2)

    def reward(self, carry: Any, action: Any, data: Data) -> Reward:  # noqa: ARG002
        """See Task."""
        upright = 1.0 - self.terminated(data)
        return Reward(upright, {"reward_survive": upright}, carry)


def square(values: Any) -> Any:
    """The square by pow(), as in Gymnasium: pow(x, 2) is not always equal to x * x in the last bit."""
    xp = xp_of(values)
    return xp.power(values, xp.full_like(values, 2.0))


@dataclass(frozen=True, kw_only=True)
class InvertedDoublePendulum(NormalVelocityStart):
    """InvertedDoublePendulum-v5."""

    id: ClassVar[str] = "InvertedDoublePendulum-v5"
    xml_file: str = "inverted_double_pendulum.xml"
    frame_skip: int = 5
    healthy_reward: float = 10.0
    reset_noise_scale: float = 0.1

    @property
    def fields(self) -> tuple[str, ...]:
        """See Task."""
        return ("qpos", "qvel", "site_xpos", "qfrc_constraint")

    def observe(self, data: Data) -> Any:
        """See Task."""
        xp = xp_of(data["qpos"])
        angles = data["qpos"][:, 1:]
        return xp.concat(
            [
                data["qpos"][:, :1],
                xp.sin(angles),
                xp.cos(angles),
                xp.clip(data["qvel"], -10, 10),
                xp.clip(data["qfrc_constraint"][:, :1], -10, 10),
            ],
            axis=1,
        )

    def terminated(self, data: Data) -> Any:
        """See Task."""
        return data["site_xpos"][:, 0, 2] <= 1

    def reward(self, carry: Any, action: Any, data: Data) -> Reward:  # noqa: ARG002
        """See Task."""
        tip_x, tip_z = data["site_xpos"][:, 0, 0], data["site_xpos"][:, 0, 2]
        distance = 0.01 * square(tip_x) + square(tip_z - 2)
        velocity = 1e-3 * square(data["qvel"][:, 1]) + 5e-3 * square(data["qvel"][:, 2])
        alive = self.healthy_reward * (1.0 - self.terminated(data))
        parts = {"reward_survive": alive, "distance_penalty": -distance, "velocity_penalty": -velocity}
        return Reward(alive - distance - velocity, parts, carry)


@dataclass(frozen=True, kw_only=True)
class _Arm(GymnasiumTask):
    """A task that reads the positions of named bodies."""

    reward_dist_weight: float = 1.0

    @property
    def fields(self) -> tuple[str, ...]:
        """See Task."""
        return ("qpos", "qvel", "xpos")

    def body(self, data: Data, name: str) -> Any:
        """Position of a body, (n, 3)."""
        return data["xpos"][:, self.model.body(name).id]


def norm(vectors: Any) -> Any:
    """Euclidean norm, (n, k) -> (n,), by a dot product, as numpy.linalg.norm computes it for one vector."""
    xp = xp_of(vectors)
    return xp.sqrt(xp.vecdot(vectors, vectors))


@dataclass(frozen=True, kw_only=True)
class Reacher(_Arm):
    """Reacher-v5."""

    id: ClassVar[str] = "Reacher-v5"
    xml_file: str = "reacher.xml"
    frame_skip: int = 2
    horizon: int = 50
    reward_control_weight: float = 1.0

    def reset(self, draws: Draws) -> tuple[Any, Any]:
        """The target is uniform in a disc; its position is the last two coordinates."""
        model = self.model
        qpos = draws.uniform(-0.1, 0.1, model.nq) + model.qpos0[None]
        goal = draws.uniform_until([-0.2, -0.2], [0.2, 0.2], lambda drawn: norm(drawn) < 0.2)
        qvel = draws.uniform(-0.005, 0.005, model.nv)
        xp = xp_of(qpos)
        return xp.concat([qpos[:, :-2], goal], axis=1), xp.concat([qvel[:, :-2], 0 * goal], axis=1)

    def observe(self, data: Data) -> Any:
        """See Task."""
        xp = xp_of(data["qpos"])
        angles = data["qpos"][:, :2]
        to_target = self.body(data, "fingertip") - self.body(data, "target")
        return xp.concat(
            [xp.cos(angles), xp.sin(angles), data["qpos"][:, 2:], data["qvel"][:, :2], to_target[:, :2]],
            axis=1,
        )

    def reward(self, carry: Any, action: Any, data: Data) -> Reward:
        """See Task."""
        distance = norm(self.body(data, "fingertip") - self.body(data, "target"))
        parts = {
            "reward_dist": -distance * self.reward_dist_weight,
            "reward_ctrl": -sum_of_squares(action) * self.reward_control_weight,
        }
        return Reward(parts["reward_dist"] + parts["reward_ctrl"], parts, carry)


@dataclass(frozen=True, kw_only=True)
class Pusher(_Arm):
    """Pusher-v5."""

    id: ClassVar[str] = "Pusher-v5"
    xml_file: str = "pusher_v5.xml"
    frame_skip: int = 5
    horizon: int = 100
    reward_near_weight: float = 0.5
    reward_control_weight: float = 0.1

    def reset(self, draws: Draws) -> tuple[Any, Any]:
        """The goal (the last two coordinates) is at the origin; the object (the two before) is away from it."""
        model = self.model
        place = draws.uniform_until([-0.3, -0.2], [0.0, 0.2], lambda drawn: norm(drawn) > 0.17)
        qvel = draws.uniform(-0.005, 0.005, model.nv)
        xp = xp_of(qvel)
        arm = xp.broadcast_to(model.qpos0[:-4], (qvel.shape[0], model.nq - 4))
        return (
            xp.concat([arm, place, 0 * place], axis=1),
            xp.concat([qvel[:, :-4], 0 * qvel[:, -4:]], axis=1),
        )

    def observe(self, data: Data) -> Any:
        """See Task."""
        bodies = [self.body(data, name) for name in ("tips_arm", "object", "goal")]
        return xp_of(data["qpos"]).concat([data["qpos"][:, :7], data["qvel"][:, :7], *bodies], axis=1)

    def reward(self, carry: Any, action: Any, data: Data) -> Reward:
        """See Task."""
        pushed = self.body(data, "object")
        near = norm(pushed - self.body(data, "tips_arm"))
        distance = norm(pushed - self.body(data, "goal"))
        parts = {
            "reward_dist": -distance * self.reward_dist_weight,
            "reward_ctrl": -sum_of_squares(action) * self.reward_control_weight,
            "reward_near": -near * self.reward_near_weight,
        }
        return Reward(parts["reward_dist"] + parts["reward_ctrl"] + parts["reward_near"], parts, carry)
