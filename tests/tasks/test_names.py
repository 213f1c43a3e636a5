"""The names of observed values: those of the joints whose positions and velocities they are."""

import mujoco
import numpy as np
import pytest

import dvdrl
from dvdrl.engines import observation_names
from dvdrl.tasks import registry
from dvdrl.tasks.landmarks import Landmarks
from dvdrl.tasks.names import coordinate_names

HIDE = "exclude_current_positions_from_observation"


@pytest.mark.parametrize("task_id", registry.TASKS)
def test_every_observed_value_has_a_name_of_its_own(task_id):
    task = registry.make(task_id)
    observed = dvdrl.make_vec(task, 1).reset(seed=0)[0]
    assert len(set(task.observation_names)) == task.observation_size == observed.shape[1]


@pytest.mark.parametrize("hide", [True, False])
@pytest.mark.parametrize(
    ("task_id", "first"),
    [("HalfCheetah-v5", "rootx position"), ("Ant-v5", "root x position"), ("Swimmer-v5", "slider1 position")],
)
def test_a_name_is_that_of_the_joint_whose_position_or_velocity_is_observed(task_id, first, hide):
    task = registry.make(task_id, **{HIDE: hide})
    envs = dvdrl.make_vec(task, 1).unwrapped
    observed = dict(zip(task.observation_names, envs.reset(seed=0)[0][0], strict=True))
    model, qpos, qvel = task.model, envs._qpos[0], envs._qvel[0]
    hinges = np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE)
    for joint in hinges:
        name = model.joint(joint).name
        assert observed[f"{name} position"] == qpos[model.jnt_qposadr[joint]]
        assert observed[f"{name} velocity"] == qvel[model.jnt_dofadr[joint]]
    # How far along the track the robot is, the first coordinate: observed only if it is not hidden.
    assert (first in observed) != hide


def test_names_by_hand():
    # A free joint has seven positions, the last four a quaternion that begins with w, and six velocities. Ant leaves
    # the first two positions out, and 78 contact forces follow that belong to no joint.
    names = registry.make("Ant-v5").observation_names
    assert names[:2] == ("root z position", "root w orientation")
    assert names[13:19] == tuple(f"root {axis} {kind}" for kind in ("velocity", "angular velocity") for axis in "xyz")
    assert names[27:] == tuple(f"observation {place}" for place in range(27, 105))
    # Sines of angles have no joint's name; velocities of these angles do.
    around = registry.make("Reacher-v5").observation_names[3:7]
    assert around == ("observation 3", "target_x position", "target_y position", "joint0 velocity")


def test_joints_without_names_have_numbers():
    bodies = """
      <body><geom size="1"/><joint type="ball"/></body>
      <body><geom size="1"/><joint name="slide" type="slide"/></body>
    """
    orientation = [f"joint 0 {part} orientation" for part in "wxyz"]
    spin = [f"joint 0 {axis} angular velocity" for axis in "xyz"]
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    assert coordinate_names(model) == [*orientation, "slide position", *spin, "slide velocity"]


def test_observations_of_any_environment_have_names():
    of_the_joints = ("x position", "y position", "x velocity", "y velocity")
    assert observation_names("Landmarks-v0", 4, landmarks=3) == of_the_joints
    assert observation_names("some_module:Landmarks-v0", 4) == of_the_joints
    assert observation_names(Landmarks(), 4) == of_the_joints
    generic = tuple(f"observation {place}" for place in range(8))
    assert observation_names("Pendulum-v1", 3) == generic[:3]
    assert observation_names("Landmarks-v0", 8) == generic  # a wrapper stacks two observations
