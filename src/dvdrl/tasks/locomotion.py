"""Gymnasium's seven MuJoCo v5 tasks that move a body: equal to Gymnasium's own to the last bit.

The paper trains on Swimmer, Walker2d, HalfCheetah, Ant and Humanoid. Operations have the same order as in Gymnasium,
because floating-point addition is not associative.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from dvdrl.tasks.draws import Draws
from dvdrl.tasks.gymnasium_models import NoisyStart, NormalVelocityStart
from dvdrl.tasks.task import Data, Reward, xp_of


@dataclass(frozen=True, kw_only=True)
class Locomotion(NoisyStart):
    """The reward is the velocity along x minus the cost of control; some tasks add contacts and staying healthy."""

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float
    exclude_current_positions_from_observation: bool = True

    num_positions: ClassVar[int] = 1
    """The number of leading coordinates that are the body's position. The observation leaves them out."""

    @property
    def measures(self) -> tuple[str, ...]:
        """See Task."""
        return ("x_velocity",)

    def position(self, data: Data) -> Any:
        """The position of the body along x, (n, 1). The reward depends on its change."""
        return data["qpos"][:, :1]

    def other_parts(self, action: Any, data: Data) -> dict[str, Any]:  # noqa: ARG002
        """The parts of the reward that do not depend on the direction of travel."""
        return {"reward_ctrl": -(self.ctrl_cost_weight * sum_of_squares(action))}

    def seen_positions(self, data: Data) -> Any:
        """The coordinates in the observation."""
        return (
            data["qpos"][:, self.num_positions :] if self.exclude_current_positions_from_observation else data["qpos"]
        )

    def observe(self, data: Data) -> Any:
        """See Task."""
        return xp_of(data["qpos"]).concat([self.seen_positions(data), data["qvel"]], axis=1)

    def begin(self, draws: Draws, data: Data) -> Any:  # noqa: ARG002
        """Carry the position to the next step."""
        return self.position(data)

    def reward(self, carry: Any, action: Any, data: Data) -> Reward:
        """See Task."""
        position = self.position(data)
        velocity = (position[:, 0] - carry[:, 0]) / self.dt
        forward = self.forward_reward_weight * velocity
        parts = self.other_parts(action, data)
        moved = {"x_position": data["qpos"][:, 0], "x_velocity": velocity}
        return Reward(total(forward, parts), {"reward_forward": forward, **parts, **moved}, position)


def total(forward: Any, parts: dict[str, Any]) -> Any:
    """Gains plus costs. Each is summed separately first, as in Gymnasium."""
    gains = forward + parts.get("reward_survive", 0.0)
    return gains + (parts["reward_ctrl"] + parts.get("reward_contact", 0.0))


def sum_of_squares(array: Any) -> Any:
    """The sum of squares over all axes of each simulation, (n, ...) -> (n,)."""
    xp = xp_of(array)
    return xp.sum(xp.square(array.reshape(array.shape[0], -1)), axis=-1)


def within(values: Any, bounds: tuple[float, float]) -> Any:
    """Whether values lie strictly inside bounds."""
    return (bounds[0] < values) & (values < bounds[1])


@dataclass(frozen=True, kw_only=True)
class HalfCheetah(NormalVelocityStart, Locomotion):
    """HalfCheetah-v5."""

    id: ClassVar[str] = "HalfCheetah-v5"
    xml_file: str = "half_cheetah.xml"
    frame_skip: int = 5
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Swimmer(Locomotion):
    """Swimmer-v5."""

    id: ClassVar[str] = "Swimmer-v5"
    xml_file: str = "swimmer.xml"
    frame_skip: int = 4
    ctrl_cost_weight: float = 1e-4
    reset_noise_scale: float = 0.1
    num_positions: ClassVar[int] = 2


@dataclass(frozen=True, kw_only=True)
class Healthy(Locomotion):
    """Rewards staying healthy; the episode ends when the body is no longer healthy."""

    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True

    @abstractmethod
    def healthy(self, data: Data) -> Any:
        """Whether each simulation is in a state that the task calls healthy, (n,)."""

    def terminated(self, data: Data) -> Any:
        """See Task."""
        if not self.terminate_when_unhealthy:
            return super().terminated(data)
        return ~self.healthy(data)

    def other_parts(self, action: Any, data: Data) -> dict[str, Any]:
        """See Locomotion."""
        survive = self.healthy(data) * self.healthy_reward
        return {**super().other_parts(action, data), "reward_survive": survive}


@dataclass(frozen=True, kw_only=True)
class Walker2d(Healthy):
    """Walker2d-v5."""

    id: ClassVar[str] = "Walker2d-v5"
    xml_file: str = "walker2d_v5.xml"
    frame_skip: int = 4
    ctrl_cost_weight: float = 1e-3
    healthy_z_range: tuple[float, float] = (0.8, 2.0)
    healthy_angle_range: tuple[float, float] = (-1.0, 1.0)
    reset_noise_scale: float = 5e-3

    def healthy(self, data: Data) -> Any:
        """See Healthy."""
        height, angle = data["qpos"][:, 1], data["qpos"][:, 2]
        return within(height, self.healthy_z_range) & within(angle, self.healthy_angle_range)

    def observe(self, data: Data) -> Any:
        """See Task."""
        xp = xp_of(data["qpos"])
        return xp.concat([self.seen_positions(data), xp.clip(data["qvel"], -10, 10)], axis=1)


@dataclass(frozen=True, kw_only=True)
class Hopper(Walker2d):
    """Hopper-v5: a one-legged Walker2d. All of its coordinates must stay in a range."""

    id: ClassVar[str] = "Hopper-v5"
    xml_file: str = "hopper.xml"
    healthy_state_range: tuple[float, float] = (-100.0, 100.0)
    healthy_z_range: tuple[float, float] = (0.7, float("inf"))
    healthy_angle_range: tuple[float, float] = (-0.2, 0.2)

    def healthy(self, data: Data) -> Any:
        """See Healthy."""
        xp = xp_of(data["qpos"])
        state = xp.concat([data["qpos"][:, 2:], data["qvel"]], axis=1)
        return xp.all(within(state, self.healthy_state_range), axis=1) & super().healthy(data)


@dataclass(frozen=True, kw_only=True)
class Ant(NormalVelocityStart, Healthy):
    """Ant-v5."""

    id: ClassVar[str] = "Ant-v5"
    xml_file: str = "ant.xml"
    frame_skip: int = 5
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    contact_force_range: tuple[float, float] = (-1.0, 1.0)
    healthy_z_range: tuple[float, float] = (0.2, 1.0)
    reset_noise_scale: float = 0.1
    include_cfrc_ext_in_observation: bool = True
    num_positions: ClassVar[int] = 2

    @property
    def fields(self) -> tuple[str, ...]:
        """See Task."""
        return ("qpos", "qvel", "xpos", "cfrc_ext")

    def position(self, data: Data) -> Any:
        """The position of the torso as kinematics last computed it, one physics stage behind qpos."""
        return data["xpos"][:, 1, :1]

    def contact_forces(self, data: Data) -> Any:
        """The clipped contact forces, (n, bodies, 6)."""
        return xp_of(data["qpos"]).clip(data["cfrc_ext"], *self.contact_force_range)

    def healthy(self, data: Data) -> Any:
        """See Healthy."""
        xp = xp_of(data["qpos"])
        low, high = self.healthy_z_range
        height = data["qpos"][:, 2]
        finite = xp.isfinite(data["qpos"]).all(axis=1) & xp.isfinite(data["qvel"]).all(axis=1)
        return finite & (low <= height) & (height <= high)

    def other_parts(self, action: Any, data: Data) -> dict[str, Any]:
        """See Locomotion."""
        contact_cost = self.contact_cost_weight * sum_of_squares(self.contact_forces(data))
        return {**super().other_parts(action, data), "reward_contact": -contact_cost}

    def observe(self, data: Data) -> Any:
        """See Task."""
        seen = [self.seen_positions(data), data["qvel"]]
        if self.include_cfrc_ext_in_observation:
            seen.append(self.contact_forces(data)[:, 1:].reshape(data["qpos"].shape[0], -1))
        return xp_of(data["qpos"]).concat(seen, axis=1)


@dataclass(frozen=True, kw_only=True)
class HumanoidBody(NoisyStart):
    """What Humanoid and HumanoidStandup observe."""

    reset_noise_scale: float = 1e-2
    exclude_current_positions_from_observation: bool = True
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True

    @property
    def fields(self) -> tuple[str, ...]:
        """See Task."""
        seen = {
            "cinert": self.include_cinert_in_observation,
            "cvel": self.include_cvel_in_observation,
            "qfrc_actuator": self.include_qfrc_actuator_in_observation,
        }
        return ("qpos", "qvel", "ctrl", "cfrc_ext", *(name for name, included in seen.items() if included))

    def observe(self, data: Data) -> Any:
        """See Task."""
        n = data["qpos"].shape[0]
        hidden = 2 if self.exclude_current_positions_from_observation else 0
        seen = [data["qpos"][:, hidden:], data["qvel"]]
        if self.include_cinert_in_observation:
            seen.append(data["cinert"][:, 1:].reshape(n, -1))
        if self.include_cvel_in_observation:
            seen.append(data["cvel"][:, 1:].reshape(n, -1))
        if self.include_qfrc_actuator_in_observation:
            seen.append(data["qfrc_actuator"][:, 6:])  # the root joint has no actuators
        if self.include_cfrc_ext_in_observation:
            seen.append(data["cfrc_ext"][:, 1:].reshape(n, -1))
        return xp_of(data["qpos"]).concat(seen, axis=1)


@dataclass(frozen=True, kw_only=True)
class Humanoid(HumanoidBody, Healthy):
    """Humanoid-v5."""

    id: ClassVar[str] = "Humanoid-v5"
    xml_file: str = "humanoid.xml"
    frame_skip: int = 5
    forward_reward_weight: float = 1.25
    ctrl_cost_weight: float = 0.1
    contact_cost_weight: float = 5e-7
    contact_cost_range: tuple[float, float] = (float("-inf"), 10.0)
    healthy_reward: float = 5.0
    healthy_z_range: tuple[float, float] = (1.0, 2.0)

    @property
    def fields(self) -> tuple[str, ...]:
        """See Task."""
        return (*super().fields, "xipos", "body_mass")

    def position(self, data: Data) -> Any:
        """The position of the centre of mass."""
        mass = data["body_mass"]
        moment = xp_of(mass).einsum("nb,nbj->nj", mass, data["xipos"])
        return (moment / mass.sum(axis=1)[:, None])[:, :1]

    def healthy(self, data: Data) -> Any:
        """See Healthy."""
        return within(data["qpos"][:, 2], self.healthy_z_range)

    def other_parts(self, action: Any, data: Data) -> dict[str, Any]:  # noqa: ARG002
        """See Locomotion. The cost of control comes from MjData, so it has the precision of MjData."""
        contact_cost = self.contact_cost_weight * sum_of_squares(data["cfrc_ext"])
        contact_cost = xp_of(contact_cost).clip(contact_cost, *self.contact_cost_range)
        return {**super().other_parts(data["ctrl"], data), "reward_contact": -contact_cost}


@dataclass(frozen=True, kw_only=True)
class HumanoidStandup(HumanoidBody):
    """HumanoidStandup-v5."""

    id: ClassVar[str] = "HumanoidStandup-v5"
    xml_file: str = "humanoidstandup.xml"
    frame_skip: int = 5
    ctrl_cost_weight: float = 0.1
    impact_cost_weight: float = 0.5e-6
    impact_cost_range: tuple[float, float] = (float("-inf"), 10.0)

    def reward(self, carry: Any, action: Any, data: Data) -> Reward:  # noqa: ARG002
        """See Task."""
        height = data["qpos"][:, 2] / float(self.model.opt.timestep)
        control = self.ctrl_cost_weight * sum_of_squares(data["ctrl"])
        impact = self.impact_cost_weight * sum_of_squares(data["cfrc_ext"])
        impact = xp_of(impact).clip(impact, *self.impact_cost_range)
        parts = {"reward_linup": height, "reward_quadctrl": -control, "reward_impact": -impact}
        return Reward(height - control - impact + 1, parts, carry)
