"""Perturbations: equal to the same change made in the MJCF by hand, and to a wrapper around Gymnasium's own tasks."""

import math
from importlib.util import find_spec
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import pytest

import dvdrl
from dvdrl.engines import perturbations
from dvdrl.engines.perturbed import Perturbed
from dvdrl.errors import DvdrlError
from dvdrl.tasks import registry

ASSETS = Path(find_spec("gymnasium").origin).parent / "envs" / "mujoco" / "assets"
OPTION = '<option integrator="RK4" timestep="0.002"/>'
SLOPE = math.radians(10)

# A perturbation of Hopper, and the edits of its MJCF that do the same: a text, and what takes its place.
BY_HAND = {
    "motor:leg_joint=0.3": [('gear="200.0" joint="leg_joint"', f'gear="{200 * 0.3!r}" joint="leg_joint"')],
    "motor=0.3": [('gear="200.0"', f'gear="{200 * 0.3!r}"')],
    "stuck:foot_joint=1": [
        # The joint's motor has a gear of 200 and controls of at most 1. 0.9999 is the hardest that MuJoCo has.
        ('name="foot_joint" pos', 'frictionloss="200" solimpfriction="0.9999 0.9999 0.001" name="foot_joint" pos')
    ],
    "friction=0.5": [
        ('friction="0.9"', 'friction="0.45"'),
        ('friction="2.0"', 'friction="1.0"'),
        ('type="plane"', 'type="plane" friction="0.5"'),
    ],
    "gravity=1.5": [(OPTION, OPTION.replace("/>", f' gravity="0 0 {-9.81 * 1.5!r}"/>'))],
    "slope=10": [
        (OPTION, OPTION.replace("/>", f' gravity="{-9.81 * math.sin(SLOPE)!r} 0 {-9.81 * math.cos(SLOPE)!r}"/>'))
    ],
    "mass=2": [("<geom conaffinity", '<geom density="2000" conaffinity')],  # the default is 1000
    "mass:torso=2": [('name="torso_geom"', 'density="2000" name="torso_geom"')],
}


def perturb_of(text):
    name, _, value = text.rpartition("=")
    return {name: float(value)}


def test_perturbed_simulations_equal_an_mjcf_that_was_edited_by_hand_to_the_bit(tmp_path):
    endless = {"terminate_when_unhealthy": False}
    mixed = dvdrl.make_vec("Hopper-v5", 1 + len(BY_HAND), perturb=[{}, *map(perturb_of, BY_HAND)], **endless)
    seen, _ = mixed.reset(seed=[3] * mixed.num_envs)
    edited = [dvdrl.make_vec("Hopper-v5", 1, **endless)]
    for number, edits in enumerate(BY_HAND.values()):
        text = (ASSETS / "hopper.xml").read_text()
        for before, after in edits:
            assert before in text
            text = text.replace(before, after)
        file = tmp_path / f"hopper-{number}.xml"
        file.write_text(text)
        edited.append(dvdrl.make_vec("Hopper-v5", 1, xml_file=str(file), **endless))
    for i, envs in enumerate(edited):
        np.testing.assert_array_equal(envs.reset(seed=3)[0][0], seen[i])
    rng = np.random.default_rng(0)
    for _ in range(60):  # long enough to fall, so that friction and all else matter
        action = rng.uniform(-1, 1, (1, 3)).astype(np.float32)
        seen, reward, *_ = mixed.step(action.repeat(mixed.num_envs, axis=0))
        for i, envs in enumerate(edited):
            want, paid, *_ = envs.step(action)
            np.testing.assert_array_equal(seen[i], want[0], err_msg=["unperturbed", *BY_HAND][i])
            assert reward[i] == paid[0]
    assert len({row.tobytes() for row in seen}) == len(seen)  # each has made a difference of its own


CHEETAHS = [
    {},
    {"motor": 0.7, "motor:bfoot": 0.3},
    {"stuck:bfoot": 0.5, "slope": -5},
    {"friction": 0.3, "gravity": 0.8, "mass:torso": 1.3},
    {"sensor-noise": 0.1},
    {"delay": 2},
    {"delay": 1, "sensor-noise": 0.01, "mass": 0.7},
]


@pytest.mark.filterwarnings("ignore:.*settotalmass.*")
def test_gymnasiums_own_task_in_a_wrapper_is_perturbed_alike_to_the_bit():
    ours = dvdrl.make_vec("HalfCheetah-v5", len(CHEETAHS), perturb=CHEETAHS)
    theirs = [Perturbed(gymnasium.make("HalfCheetah-v5"), perturb) for perturb in CHEETAHS]
    seen, _ = ours.reset(seed=0)
    for i, env in enumerate(theirs):
        np.testing.assert_array_equal(env.reset(seed=i)[0], seen[i])
    ours.action_space.seed(0)
    for _ in range(12):
        action = ours.action_space.sample()
        seen, reward, *_ = ours.step(action)
        for i, env in enumerate(theirs):
            want, paid, *_ = env.step(action[i])
            np.testing.assert_array_equal(seen[i], want, err_msg=str(CHEETAHS[i]))
            assert reward[i] == paid


def test_late_actions_are_those_of_earlier_steps_also_after_a_snapshot():
    late, prompt = (dvdrl.make_vec("HalfCheetah-v5", 2, perturb=perturb) for perturb in ({"delay": 2}, {}))
    late.reset(seed=0)
    prompt.reset(seed=0)
    rng = np.random.default_rng(0)
    actions = [*np.zeros((2, 2, 6), np.float32), *rng.uniform(-1, 1, (6, 2, 6)).astype(np.float32)]
    for step in range(6):
        seen, reward, *_ = late.step(actions[step + 2])
        want, paid, *_ = prompt.step(actions[step])
        np.testing.assert_array_equal(seen, want)
        np.testing.assert_array_equal(reward, paid)  # energy is paid when it is used
        if step == 3:
            saved = late.snapshot()
            late = dvdrl.make_vec("HalfCheetah-v5", 2, perturb={"delay": 2})
            late.reset(seed=5)
            late.restore(saved)


def test_a_stuck_joint_hardly_moves_and_a_dead_motor_does_nothing():
    still = {"stuck:bfoot": 10}  # ten times what its motor can
    envs = dvdrl.make_vec("HalfCheetah-v5", 3, perturb=[{}, still, {"motor": 0.0}])
    envs.reset(seed=0)
    envs.batch.bind("qpos")[:] = envs.batch.model.qpos0  # from the same place
    bfoot = envs.batch.model.joint("bfoot").qposadr[0]
    for _ in range(4):
        envs.step(np.ones((3, 6), np.float32))
    moved = np.abs(envs.batch.bind("qpos")[:, bfoot])
    assert moved[0] > 0.1
    assert moved[1] < 0.01
    # The dead one did what it does without actions.
    idle = dvdrl.make_vec("HalfCheetah-v5", 3)
    idle.reset(seed=0)
    idle.batch.bind("qpos")[:] = idle.batch.model.qpos0
    for _ in range(4):
        idle.step(np.zeros((3, 6), np.float32))
    np.testing.assert_array_equal(envs.batch.bind("qpos")[2], idle.batch.bind("qpos")[2])


SERVO = """
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody><body><joint name="{joint}" damping="1"/><geom size="0.1"/></body></worldbody>
  <actuator><position name="{joint}" joint="{joint}" kp="{kp}" ctrlrange="-1 1"/></actuator>
</mujoco>
"""


def test_a_servo_is_as_weak_as_one_with_a_smaller_gain():
    weak, small = (mujoco.MjModel.from_xml_string(SERVO.format(joint="a", kp=kp)) for kp in (4.0, 1.0))
    kinds = registry_of(weak)
    for kind, value in (("motor:a", 0.5), ("motor", 0.5)):  # together a quarter
        kinds[kind].change(lambda field: getattr(weak, field), value)
    for name in ("actuator_gainprm", "actuator_biasprm", "actuator_gear"):
        np.testing.assert_array_equal(getattr(weak, name), getattr(small, name))


def registry_of(model):
    from dvdrl.tasks.perturbations import of_model

    return of_model(model)


def test_what_a_task_has():
    assert [name for name in perturbations("Hopper-v5") if ":" not in name] == [
        "motor", "friction", "gravity", "slope", "mass", "sensor-noise", "delay"
    ]  # fmt: skip
    ant = perturbations("Ant-v5")
    assert ant["motor:hip_1"].range == "a number from 0 to 1"  # its motors have the names of their joints
    assert ant["stuck:ankle_4"].unchanged == 0
    assert "friction" not in perturbations("Landmarks-v0")  # a point without contacts or gravity
    assert list(perturbations("Pendulum-v1")) == ["motor", "motor:0", "sensor-noise", "delay"]
    assert list(perturbations("CartPole-v1")) == ["sensor-noise", "delay"]  # no motors: it chooses
    assert list(perturbations("FrozenLake-v1")) == ["delay"]  # and it sees no numbers


def test_environments_without_a_model_have_weaker_later_and_noisier_ones():
    weak, whole = Perturbed(gymnasium.make("Pendulum-v1"), {"motor:0": 0.25}), gymnasium.make("Pendulum-v1")
    np.testing.assert_array_equal(weak.reset(seed=0)[0], whole.reset(seed=0)[0])
    np.testing.assert_array_equal(weak.step(np.float32([2.0]))[0], whole.step(np.float32([0.5]))[0])
    late, prompt = Perturbed(gymnasium.make("CartPole-v1"), {"delay": 1}), gymnasium.make("CartPole-v1")
    late.reset(seed=0)
    prompt.reset(seed=0)
    for now, before in ((1, 0), (1, 1), (0, 1)):  # the first choice comes first
        np.testing.assert_array_equal(late.step(now)[0], prompt.step(before)[0])
    noisy = Perturbed(gymnasium.make("Pendulum-v1"), {"sensor-noise": 0.5})
    clear = gymnasium.make("Pendulum-v1").reset(seed=0)[0]
    first = noisy.reset(seed=0)[0]
    np.testing.assert_array_equal(first, noisy.reset(seed=0)[0])  # the noise is the seed's too
    assert 0.01 < np.abs(first - clear).max() < 2
    assert first.dtype == clear.dtype


@pytest.mark.parametrize(
    ("task", "perturb", "said"),
    [
        ("Ant-v5", {"motor:hip1": 0}, "Ant-v5 has no perturbation 'motor:hip1'; did you mean motor:hip_1, "),
        ("Ant-v5", {"frictoin": 0}, "Ant-v5 has no perturbation 'frictoin'; did you mean friction"),
        ("Ant-v5", {"motor:knee": 0}, "Ant-v5 has no perturbation 'motor:knee'"),
        ("Ant-v5", {"wings": 2}, "Ant-v5 has no perturbation 'wings'; `dvdrl tasks Ant-v5 --perturbations` lists"),
        ("Ant-v5", {"motor": 1.5}, "motor: expected a number from 0 to 1; got 1.5"),
        ("Ant-v5", {"friction": math.nan}, "friction: expected a number from 0 to 10; got nan"),
        ("Ant-v5", {"delay": 0.5}, "delay: expected a whole number from 0 to 100; got 0.5"),
        ("Ant-v5", {"mass": "2"}, "mass: expected a number from 0.1 to 10; got 2"),
        ("Ant-v5", {"mass": [2]}, "mass: expected a number from 0.1 to 10; got [2]"),
        ("Ant-v5", [{}, ["mass=2"]], "perturb: expected Mapping, got ['mass=2']"),
        ("Ant-v5", [{}] * 3, "perturb: expected one mapping, or 2 of them; got 3"),
        ("Landmarks-v0", {"gravity": 2}, "cannot be perturbed by gravity, which needs a MuJoCo model with gravity"),
        ("Pendulum-v1", {"mass": 2}, "Pendulum-v1 cannot be perturbed by mass, which needs a MuJoCo model"),
        ("CartPole-v1", {"motor": 0}, "cannot be perturbed by motor, which needs motors, or actions that are numbers"),
        ("CartPole-v1", [{}, {"delay": 1}], "CartPole-v1 run in worker processes, where all are perturbed alike"),
        ("gymnax:CartPole-v1", {"delay": 1}, "gymnax:CartPole-v1 runs on another engine"),
    ],
)
def test_what_cannot_be_is_named(task, perturb, said):
    with pytest.raises(DvdrlError) as error:
        dvdrl.make_vec(task, 2, perturb=perturb)
    assert said in str(error.value)


@pytest.mark.parametrize("text", ["friction", "friction=", "=2", "friction=slippery"])
def test_a_text_that_is_no_perturbation_is_named(text):
    from dvdrl.tasks.perturbations import parsed

    with pytest.raises(DvdrlError, match=r"expected NAME=VALUE, such as friction=0\.5, got"):
        parsed([text])
    assert parsed(["a=1", "b:c=0.5"]) == {"a": 1.0, "b:c": 0.5}
    with pytest.raises(DvdrlError, match="friction is given twice"):
        parsed(["friction=1", "friction=1"])


def test_every_perturbation_of_every_task_runs():
    for name in ("Humanoid-v5", "Pusher-v5", "Swimmer-v5", "EightRooms-v0"):
        task = registry.make(name)
        each = [
            {kind.name: kind.low if kind.low != kind.unchanged else kind.high} for kind in perturbations(name).values()
        ]
        envs = dvdrl.make_vec(name, len(each), perturb=each)
        envs.reset(seed=0)
        seen, *_, info = envs.step(np.zeros((len(each), task.action_size)))
        assert not info["unstable"].any()
        assert np.isfinite(seen).all()
