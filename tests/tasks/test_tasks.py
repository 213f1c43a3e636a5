"""The definitions: the same numbers under NumPy and JAX, Point's and the multi-modal tasks' rewards, the registry."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dvdrl
from dvdrl.errors import DvdrlError
from dvdrl.tasks import registry
from dvdrl.tasks.key_draws import KeyDraws
from dvdrl.tasks.landmarks import Landmarks
from dvdrl.tasks.multimodal import HalfCheetahFwdBwd
from dvdrl.tasks.point import Point
from dvdrl.tasks.task import LAST

VARIANTS = [
    *((task_id, {}) for task_id in registry.TASKS),
    ("HalfCheetah-FwdBwd-v0", {"noisy": True}),
    ("Ant-FwdBwd-v0", {"noisy": True}),
    ("HalfCheetah-FwdBwd-v0", {"markov": True}),
    ("Ant-FwdBwd-v0", {"markov": True}),
    ("Landmarks-v0", {"landmarks": 3}),
]


def some_data(task, num_envs=5, num_steps=12):
    """A task's fields and what it carried, a few random steps into an episode."""
    envs = dvdrl.make_vec(task, num_envs, autoreset_mode="Disabled").unwrapped
    envs.reset(seed=0)
    envs.action_space.seed(0)
    for _ in range(num_steps):
        action = envs.action_space.sample()
        carry = envs._carry.copy()
        envs.step(action)
    return carry, action, {name: np.array(field) for name, field in envs._fields.items()}


@pytest.mark.parametrize(("task_id", "options"), VARIANTS)
def test_jax_gives_the_numbers_that_numpy_gives(task_id, options):
    task = registry.make(task_id, **options)
    carry, action, data = some_data(task)
    action = action.astype(np.float64)

    def all_of_it(carry, action, data):
        return task.observe(data), task.terminated(data), task.reward(carry, action, data)

    want = all_of_it(carry, action, data)
    with jax.enable_x64(True):
        got = jax.jit(all_of_it)(*jax.tree.map(jnp.asarray, (carry, action, data)))
    # XLA contracts a * b + c into one rounding and reorders sums: a few units in the last place, and more where
    # the difference of two positions is divided by the time step.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11), got, want)


@pytest.mark.parametrize(("task_id", "options"), VARIANTS)
def test_single_precision_stays_single_precision_on_a_device(task_id, options):
    task = registry.make(task_id, **options)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.float32), some_data(task, num_steps=1))
    observation = jax.eval_shape(task.observe, shapes[2])
    reward = jax.eval_shape(task.reward, *shapes)
    assert {leaf.dtype for leaf in jax.tree.leaves((observation, reward))} == {jnp.dtype("float32")}
    assert (observation.shape, reward.carry.shape) == ((5, task.observation_size), shapes[0].shape)
    assert jax.eval_shape(task.terminated, shapes[2]).dtype == bool


# One of each kind of reset: uniform, normal velocities, with rejection, and Point's own.
@pytest.mark.parametrize("task_id", ["Swimmer-v5", "HalfCheetah-v5", "Reacher-v5", "Pusher-v5", "Point-v0"])
def test_a_device_draws_initial_states_from_a_key(task_id):
    task = registry.make(task_id)

    @jax.jit
    def draw(key):
        draws = KeyDraws(key, 500)
        qpos, qvel = task.reset(draws)
        return qpos, qvel, draws.uniform(0.0, 1.0, 1)

    qpos, qvel, later = draw(jax.random.key(0))
    assert (qpos.shape, qvel.shape) == ((500, task.model.nq), (500, task.model.nv))
    # The host's own draws, of the same distribution, are the reference: means agree within 6 standard errors.
    envs = dvdrl.make_vec(task, 500).unwrapped
    envs.reset(seed=0)
    for ours, theirs in ((qpos, envs._qpos), (qvel, envs._qvel)):
        error = np.sqrt((np.var(ours, axis=0) + np.var(theirs, axis=0)) / 500)
        np.testing.assert_array_less(np.abs(np.mean(ours, axis=0) - np.mean(theirs, axis=0)), 6 * error + 1e-6)
        np.testing.assert_allclose(np.std(ours, axis=0), np.std(theirs, axis=0), rtol=0.2, atol=1e-6)
    if task_id == "Reacher-v5":
        assert np.linalg.norm(qpos[:, -2:], axis=1).max() < 0.2  # in the disc, not only in the square around it
    if task_id == "Pusher-v5":
        assert np.linalg.norm(qpos[:, -4:-2], axis=1).min() > 0.17
    assert jnp.unique(later).size > 400  # episodes differ from each other


@pytest.mark.parametrize(("task_id", "options"), VARIANTS)
def test_measures_are_parts_of_the_reward(task_id, options):
    task = registry.make(task_id, **options)
    _, parts, _ = task.reward(*some_data(task, num_steps=1))
    assert {measure.removeprefix(LAST) for measure in task.measures} <= set(parts)
    assert len(task.measure_ranges) in (0, len(task.measures))
    assert all(low < high for low, high in task.measure_ranges)
    assert task.measure_ranges or not task.modes  # an archive of a task with modes needs to know its ends


def test_measures_by_hand():
    data = {"qpos": np.array([[3.0, -2.0]]), "qvel": np.zeros((1, 2))}
    _, parts, _ = Landmarks().reward(np.zeros((1, 0)), np.zeros((1, 2)), data)
    assert [parts[measure.removeprefix(LAST)].item() for measure in Landmarks().measures] == [3, -2]
    # Landmarks are up to 7 away, and every one is inside the ranges.
    assert Landmarks().measure_ranges == ((-8, 8), (-8, 8))
    # From 1 to 0.5 in one control step of 0.05 s; the weight of the reward is not in it.
    task = HalfCheetahFwdBwd(forward_reward_weight=3.0)
    data = {"qpos": np.full((1, 9), 0.5), "qvel": np.zeros((1, 9))}
    _, parts, _ = task.reward(np.array([[1.0, 0.0, 0.0]]), np.zeros((1, 6)), data)
    assert (parts["x_position"].item(), parts["x_velocity"].item()) == (0.5, pytest.approx(-10))


def roll(envs, policy):
    """Return of one episode each, with autoreset off."""
    obs, _ = envs.reset(seed=0)
    returns, ended = np.zeros(envs.num_envs), np.zeros(envs.num_envs, bool)
    while not ended.all():
        obs, reward, terminated, truncated, _ = envs.step(policy(obs))
        returns += reward
        ended = terminated | truncated
    return returns


def test_point_has_the_authors_body():
    model = Point().model
    # Sphere of radius 0.5 and box of 1 x 0.2 x 0.2, density 100: 100 * (4/3 pi 0.125 + 0.04) = 52.36 + 4.
    assert model.body_mass.sum() == pytest.approx(56.36, abs=0.005)
    assert Point().dt == pytest.approx(0.04)
    np.testing.assert_array_equal(model.actuator_gear[:, 0], 2000)


def test_point_straight_ahead_ends_in_the_wall():
    envs = dvdrl.make_vec("Point-v0", 1, autoreset_mode="Disabled").unwrapped
    envs.reset(seed=0)
    envs.batch.bind("qpos")[:] = 0
    envs.batch.bind("qvel")[:] = 0
    rewards = [envs.step(np.array([[1.0, 0.0]])) for _ in range(50)]
    # Measured on the authors' model: full thrust from rest, arrow first, into the back of the wall.
    assert sum(step[1][0] for step in rewards) == pytest.approx(-798, abs=0.5)
    assert rewards[-1][3].all()


def around_the_wall(obs):
    """Fly to a point beside the wall, then to the goal, braking."""
    target = np.where(obs[:, :1] < 10, [[14.0, 3.2]], [[25.0, 0.0]])
    return np.clip(0.5 * (target - obs[:, :2]) - 0.16 * obs[:, 3:5], -1, 1)


def test_point_can_be_solved_and_a_wider_wall_is_in_the_way():
    narrow = dvdrl.make_vec("Point-v0", 8, autoreset_mode="Disabled")
    wide = dvdrl.make_vec("Point-v0", 8, autoreset_mode="Disabled", wall_half_width=6.0)
    assert roll(narrow, around_the_wall).min() > -600  # past the wall and to the goal
    assert roll(wide, around_the_wall).max() < -700


def test_points_floor_does_not_brake():
    envs = dvdrl.make_vec("Point-v0", 2, autoreset_mode="Disabled").unwrapped
    ncon = envs.batch.bind("ncon")
    envs.reset(seed=0)
    for _ in range(50):
        envs.step(np.zeros((2, 2)))
        assert not ncon.any()


@pytest.mark.parametrize("robot", ["HalfCheetah", "Ant"])
def test_the_forward_mode_is_the_robots_own_task(robot):
    options = {"terminate_when_unhealthy": False} if robot == "Ant" else {}
    both = dvdrl.make_vec(f"{robot}-FwdBwd-v0", 12, horizon=60, **options)
    own = dvdrl.make_vec(f"{robot}-v5", 12, horizon=60, **options)
    np.testing.assert_array_equal(both.reset(seed=0)[0], own.reset(seed=0)[0])
    both.action_space.seed(0)
    returns = dict.fromkeys(("total", "forward", "backward"), 0.0)
    for _ in range(60):
        action = both.action_space.sample()
        obs, reward, *_, info = both.step(action)
        want_obs, want_reward, *_, want_info = own.step(action)
        np.testing.assert_array_equal(obs, want_obs)
        np.testing.assert_array_equal(info["reward_mode_forward"], want_reward)
        # Backward pays the same, but for the sign of the velocity.
        backward = want_reward - 2 * want_info["reward_forward"]
        np.testing.assert_allclose(info["reward_mode_backward"], backward, atol=1e-12)
        returns["total"] += reward
        returns["forward"] += info["reward_mode_forward"]
        returns["backward"] += info["reward_mode_backward"]
    # The better of the two, episode by episode; these random episodes are not all of one kind.
    np.testing.assert_allclose(returns["total"], np.maximum(returns["forward"], returns["backward"]), atol=1e-9)
    assert len(set(returns["forward"] > returns["backward"])) == 2


def test_either_direction_pays_by_hand():
    task = HalfCheetahFwdBwd(ctrl_cost_weight=0.0)
    dt = task.dt  # 0.05 s
    carry = np.array([[0.0, 0.0, 0.0]])
    paid = []
    for x in (1.0, 3.0, 2.0, -4.0):
        data = {"qpos": np.full((1, 9), x), "qvel": np.zeros((1, 9))}
        total, parts, carry = task.reward(carry, np.zeros((1, 6)), data)
        paid.append(total[0] * dt)
    # Without control costs the better return is the distance from the start: 1, 3, 2, 4; what is paid is its growth.
    np.testing.assert_allclose(paid, [1, 2, -1, 2])
    assert parts["reward_mode_backward"] * dt == pytest.approx(6)  # from 2 to -4


def test_the_noisy_reading_pays_one_direction_an_episode():
    envs = dvdrl.make_vec("HalfCheetah-FwdBwd-v0", 64, horizon=5, noisy=True)
    plain = dvdrl.make_vec("HalfCheetah-FwdBwd-v0", 64)
    # The direction is drawn after the state, so states are those of the plain task; and it is not observed.
    np.testing.assert_array_equal(envs.reset(seed=0)[0], plain.reset(seed=0)[0])
    envs.action_space.seed(0)
    directions = []
    for episode in range(3):
        if episode:
            envs.step(envs.action_space.sample())  # the step that resets
        forward = np.ones(64, bool)
        backward = np.ones(64, bool)
        for _ in range(5):
            _, reward, *_, info = envs.step(envs.action_space.sample())
            forward &= reward == info["reward_mode_forward"]
            backward &= reward == info["reward_mode_backward"]
        assert (forward ^ backward).all()
        directions.append(forward)
    # 64 fair coins: fewer than 16 or more than 48 heads has probability below 1e-4. Each episode flips anew.
    assert all(16 <= drawn.sum() <= 48 for drawn in directions)
    assert (directions[0] != directions[1]).any()


def test_the_markov_reward_pays_the_better_direction_of_each_step_by_hand():
    task = HalfCheetahFwdBwd(ctrl_cost_weight=0.5, markov=True)
    carry = np.array([[0.0]])
    paid = []
    for x in (1.0, 3.0, 2.0, -4.0):
        data = {"qpos": np.full((1, 9), x), "qvel": np.zeros((1, 9))}
        total, parts, carry = task.reward(carry, np.ones((1, 6)), data)
        paid.append(total[0] * task.dt)
        assert total == max(parts["reward_mode_forward"], parts["reward_mode_backward"])
    # The way of each step, 1, 2, 1, 6, whatever its direction, less 0.5 times six squares of 1 per second.
    np.testing.assert_allclose(paid, np.array([1, 2, 1, 6]) - 0.5 * 6 * task.dt)


def test_the_markov_reward_depends_on_one_step_alone_and_changes_nothing_else():
    markov, plain = (dvdrl.make_vec("HalfCheetah-FwdBwd-v0", 8, markov=markov) for markov in (1, 0))
    np.testing.assert_array_equal(markov.reset(seed=0)[0], plain.reset(seed=0)[0])
    plain.action_space.seed(0)
    differs = False
    for _ in range(40):
        action = plain.action_space.sample()
        obs, reward, *_, info = markov.step(action)
        want_obs, want_reward, *_, want_info = plain.step(action)
        np.testing.assert_array_equal(obs, want_obs)
        for mode in ("reward_mode_forward", "reward_mode_backward"):
            np.testing.assert_array_equal(info[mode], want_info[mode])
        np.testing.assert_array_equal(reward, np.maximum(info["reward_mode_forward"], info["reward_mode_backward"]))
        differs |= (np.abs(reward - want_reward) > 1e-6).any()
    assert differs  # the plain reward of a step back towards the start is a loss


@pytest.mark.parametrize("task_id", ["HalfCheetah-FwdBwd-v0", "Ant-FwdBwd-v0"])
def test_two_rewards_at_once_are_refused(task_id):
    with pytest.raises(DvdrlError, match="noisy and markov: expected at most one of them, got both"):
        registry.make(task_id, noisy=1.0, markov=1.0)
    with pytest.raises(DvdrlError, match="reset_noise_scale: expected 0 or more"):  # what the robot refuses, as before
        registry.make(task_id, reset_noise_scale=-1.0)


def test_landmarks_lie_in_all_directions_at_unequal_distances():
    # Four: distances 4, 5, 6, 7, a quarter of a turn apart.
    np.testing.assert_allclose(Landmarks().positions, [[4, 0], [0, 5], [-6, 0], [0, -7]], atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(Landmarks(landmarks=8).positions, axis=1), 4 + 3 * np.arange(8) / 7)
    np.testing.assert_array_equal(Landmarks(landmarks=1).positions, [[4, 0]])


def test_landmarks_pay_by_hand():
    task = Landmarks()
    data = {"qpos": np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 2.5], [-3.0, 0.0]]), "qvel": np.zeros((4, 2))}
    total, parts, _ = task.reward(np.zeros((4, 0)), np.zeros((4, 2)), data)
    # At the start every landmark pays 0; on the first 1; half way to the second and to the third 1/2.
    np.testing.assert_allclose(total, [0, 1, 0.5, 0.5], atol=1e-12)
    each = np.stack([parts[f"reward_mode_{mode}"] for mode in task.modes], axis=1)
    np.testing.assert_allclose(each[1], [1, 1 - 41**0.5 / 5, 1 - 10 / 6, 1 - 65**0.5 / 7], atol=1e-12)
    np.testing.assert_array_equal(total, each.max(axis=1))


def test_each_landmark_can_be_reached_and_pays_nearly_the_same():
    task = Landmarks()
    envs = dvdrl.make_vec(task, 4, autoreset_mode="Disabled")
    returns = roll(envs, lambda obs: np.clip(2 * (task.positions - obs[:, :2]) - 0.5 * obs[:, 2:], -1, 1))
    np.testing.assert_allclose(envs.unwrapped._qpos, task.positions, atol=0.05)
    # At top speed, 0.4 a step, the way of 4 to 7 takes 10 to 18 steps and pays half of what as many steps there pay;
    # getting up to speed and braking cost a few steps more.
    assert ((returns > 50 - 18 / 2 - 4) & (returns < 50 - 10 / 2)).all()
    assert (np.diff(returns) < 0).all()  # nearer ones pay more


def test_a_straight_way_passes_at_the_speed_that_thrust_and_damping_give():
    envs = dvdrl.make_vec("Landmarks-v0", 1, autoreset_mode="Disabled").unwrapped
    envs.reset(seed=0)
    obs = [envs.step(np.array([[1.0, -1.0]]))[0] for _ in range(30)][-1]
    # 16 of thrust against a damping of 4: terminal speed 4 along each axis.
    np.testing.assert_allclose(obs[0, 2:], [4, -4], rtol=1e-3)


def test_an_unknown_id_gets_the_nearest_names():
    with pytest.raises(DvdrlError, match=r"no task 'HalfCheeta-v5'; did you mean HalfCheetah-v5"):
        registry.make("HalfCheeta-v5")
    with pytest.raises(DvdrlError, match="`dvdrl tasks` lists"):
        registry.make("xyzzy")


def test_an_unknown_option_gets_the_known_ones():
    with pytest.raises(DvdrlError, match=r"Point-v0 has no option 'wall'; it has frame_skip, horizon, wall_half_width"):
        registry.make("Point-v0", wall=3)


@pytest.mark.parametrize(("task", "option"), [("Walker2d-v5", "healthy_z_range"), ("HalfCheetah-v5", "xml_file")])
def test_a_number_for_an_option_that_is_none_is_refused(task, option):
    with pytest.raises(DvdrlError, match=f"{option}: expected (tuple|str).*, got the number 3"):
        registry.make(task, **{option: 3.0})


def test_an_actuator_without_bounds_is_refused():
    @dataclass(frozen=True, kw_only=True)
    class Unbounded(Point):
        id: ClassVar[str] = "Unbounded-v0"

        def spec(self):
            spec = super().spec()
            spec.actuators[1].ctrllimited = False
            return spec

    with pytest.raises(DvdrlError, match=r"Unbounded-v0: actuator .* has no ctrlrange"):
        dvdrl.make_vec(Unbounded(), 2)


def test_a_missing_model_file_is_named():
    with pytest.raises(DvdrlError, match=r"HalfCheetah-v5: no model file .*nope\.xml"):
        dvdrl.make_vec("HalfCheetah-v5", xml_file="./nope.xml")


def test_a_registered_task_is_known_by_its_id(monkeypatch):
    monkeypatch.setattr(registry, "TASKS", dict(registry.TASKS))

    @registry.register
    @dataclass(frozen=True, kw_only=True)
    class Hover(Point):
        id: ClassVar[str] = "Hover-v0"
        horizon: int = 3

    assert isinstance(registry.make("Hover-v0", wall_half_width=3.0), Hover)
    assert dvdrl.make_vec("Hover-v0", 2).unwrapped.task == Hover()
