"""The host engine against Gymnasium itself, and where it goes beyond: resting, parameters, instability, errors."""

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import dvdrl
from dvdrl.engines.host import HostVectorEnv
from dvdrl.errors import DvdrlError
from dvdrl.tasks import registry
from dvdrl.tasks.point import Point

GYMNASIUM_TASKS = [
    "Ant-v5",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Humanoid-v5",
    "HumanoidStandup-v5",
    "InvertedDoublePendulum-v5",
    "InvertedPendulum-v5",
    "Pusher-v5",
    "Reacher-v5",
    "Swimmer-v5",
    "Walker2d-v5",
]


def gymnasium_vec(task_id, num_envs, autoreset_mode=AutoresetMode.NEXT_STEP, **options):
    vector_kwargs = {"autoreset_mode": autoreset_mode}
    return gymnasium.make_vec(task_id, num_envs, vectorization_mode="sync", vector_kwargs=vector_kwargs, **options)


def assert_same_info(ours, theirs):
    """What we report, Gymnasium reports: same values for the same simulations."""
    shared = [name for name in ours if name in theirs and not name.startswith("_")]
    for name in shared:
        if isinstance(ours[name], dict):
            assert_same_info(ours[name], theirs[name])
        elif name == "x_position":  # Gymnasium also reports it of resets, which have no reward and no parts here
            told = ours["_" + name]
            np.testing.assert_array_equal(ours[name][told], theirs[name][told], err_msg=name)
            assert theirs["_" + name][told].all()
            continue
        elif name != "final_obs":
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
        np.testing.assert_array_equal(ours.get("_" + name), theirs.get("_" + name), err_msg="_" + name)
    # What measures a robot that moves along x is Gymnasium's own number.
    assert {name for name in ("x_position", "x_velocity") if name in ours} <= set(shared)
    return shared


def assert_same_steps(ours, theirs, num_steps, *, seed=0, reward_atol=0.0):
    """Same seeds and actions give the same everything; returns how many episodes ended."""
    np.testing.assert_array_equal(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0])
    theirs.action_space.seed(seed)
    num_ended = 0
    for step in range(num_steps):
        action = theirs.action_space.sample()
        obs, reward, terminated, truncated, info = ours.step(action)
        want_obs, want_reward, want_terminated, want_truncated, want_info = theirs.step(action)
        np.testing.assert_array_equal(obs, want_obs, err_msg=f"observation, step {step}")
        np.testing.assert_allclose(reward, want_reward, rtol=0, atol=reward_atol, err_msg=f"reward, step {step}")
        np.testing.assert_array_equal(terminated, want_terminated, err_msg=f"terminated, step {step}")
        np.testing.assert_array_equal(truncated, want_truncated, err_msg=f"truncated, step {step}")
        if not reward_atol:
            names = assert_same_info(info, want_info)
            assert names or (reward == 0).all()  # nothing is told of a step that was all resets
        num_ended += np.count_nonzero(terminated | truncated)
    return num_ended


def rounding_of_rewards(task_id):
    # Gymnasium squares single numbers with libm's pow(), we square arrays with NumPy's, which on some processors is
    # another implementation: the last bits may then differ, in this task only. Its reward is a difference of terms of
    # up to 10, whose last bit is 1.8e-15.
    return 4e-15 if task_id == "InvertedDoublePendulum-v5" else 0.0


@pytest.mark.parametrize("task_id", GYMNASIUM_TASKS)
def test_a_thousand_steps_are_gymnasiums_to_the_last_bit(task_id):
    ours, theirs = dvdrl.make_vec(task_id, 2), gymnasium_vec(task_id, 2)
    num_ended = assert_same_steps(ours, theirs, 1000, seed=7, reward_atol=rounding_of_rewards(task_id))
    assert num_ended >= 2  # so resets were compared as well: each of the two was truncated at the latest at 1000
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space


@pytest.mark.parametrize(
    ("task_id", "options"),
    [
        ("HalfCheetah-v5", {"exclude_current_positions_from_observation": False, "forward_reward_weight": 2.0}),
        ("Hopper-v5", {"terminate_when_unhealthy": False, "healthy_state_range": (-0.1, 0.1)}),
        ("Walker2d-v5", {"healthy_angle_range": (-0.1, 0.1), "frame_skip": 2, "ctrl_cost_weight": 0.1}),
        ("Ant-v5", {"include_cfrc_ext_in_observation": False, "healthy_z_range": (0.5, 0.9)}),
        ("Ant-v5", {"contact_force_range": (-5.0, 5.0), "exclude_current_positions_from_observation": False}),
        ("Humanoid-v5", {"include_cinert_in_observation": False, "include_cvel_in_observation": False}),
        ("HumanoidStandup-v5", {"include_qfrc_actuator_in_observation": False, "impact_cost_weight": 1e-3}),
        ("Swimmer-v5", {"reset_noise_scale": 0.5, "exclude_current_positions_from_observation": False}),
        ("Reacher-v5", {"reward_dist_weight": 3.0, "reward_control_weight": 0.5}),
        ("Pusher-v5", {"reward_near_weight": 2.0}),
        ("InvertedDoublePendulum-v5", {"healthy_reward": 1.0, "reset_noise_scale": 0.3}),
    ],
)
def test_options_are_gymnasiums(task_id, options):
    ours, theirs = dvdrl.make_vec(task_id, 2, **options), gymnasium_vec(task_id, 2, **options)
    assert_same_steps(ours, theirs, 60, reward_atol=rounding_of_rewards(task_id))


def test_horizon_truncates_as_max_episode_steps_does():
    ours = dvdrl.make_vec("HalfCheetah-v5", 2, horizon=9)
    assert assert_same_steps(ours, gymnasium_vec("HalfCheetah-v5", 2, max_episode_steps=9), 30) == 6


def test_same_step_autoreset_keeps_the_final_observation():
    ours = dvdrl.make_vec("Hopper-v5", 3, autoreset_mode="SameStep")
    theirs = gymnasium_vec("Hopper-v5", 3, AutoresetMode.SAME_STEP)
    assert ours.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert assert_same_steps(ours, theirs, 80) > 0
    ended = False
    while not ended:
        action = theirs.action_space.sample()
        info, want = ours.step(action)[4], theirs.step(action)[4]
        ended = "final_obs" in want
        assert ("final_obs" in info) == ended
    for ours_final, theirs_final in zip(info["final_obs"], want["final_obs"], strict=True):
        np.testing.assert_array_equal(ours_final, theirs_final)
    assert set(info["final_info"]) <= set(want["final_info"])


def test_with_autoreset_off_masked_resets_are_gymnasiums():
    ours = dvdrl.make_vec("Hopper-v5", 3, autoreset_mode="Disabled")
    theirs = gymnasium_vec("Hopper-v5", 3, AutoresetMode.DISABLED)
    np.testing.assert_array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    theirs.action_space.seed(0)
    num_resets = 0
    for step in range(120):
        action = theirs.action_space.sample()
        results = ours.step(action)[:4], theirs.step(action)[:4]
        for result, want in zip(*results, strict=True):
            np.testing.assert_array_equal(result, want)
        ended = results[1][2] | results[1][3]
        if ended.any():
            seed = None if step % 2 else 50 + step
            obs, _ = ours.reset(seed=seed, options={"reset_mask": ended})
            np.testing.assert_array_equal(obs, theirs.reset(seed=seed, options={"reset_mask": ended})[0])
            num_resets += 1
    assert num_resets > 3


def test_with_autoreset_off_ended_episodes_rest_while_the_others_go_on():
    envs = dvdrl.make_vec("Hopper-v5", 4, autoreset_mode="Disabled")
    going_on = dvdrl.make_vec("Hopper-v5", 4, autoreset_mode="NextStep")
    envs.reset(seed=0)
    going_on.reset(seed=0)
    envs.action_space.seed(1)
    time = envs.unwrapped.batch.bind("time")
    ended, last = np.zeros(4, bool), None
    while not ended.all():
        action = envs.action_space.sample()
        before = time.copy()
        obs, reward, terminated, truncated, info = envs.step(action)
        want_obs, want_reward, *_ = going_on.step(action)
        running = ~ended
        # A simulation that rests has not moved, pays nothing, keeps its observation and stays ended.
        np.testing.assert_array_equal(time > before, running)
        np.testing.assert_array_equal(reward[ended], 0)
        np.testing.assert_array_equal(info["_reward_forward"], running)
        if last is not None:
            np.testing.assert_array_equal(obs[ended], last[ended])
        # Those that run are not touched by the rest.
        np.testing.assert_array_equal(obs[running], want_obs[running])
        np.testing.assert_array_equal(reward[running], want_reward[running])
        assert (terminated | truncated)[ended].all()
        ended, last = terminated | truncated, obs
    obs, reward, terminated, truncated, _ = envs.step(action)  # nobody runs
    np.testing.assert_array_equal(obs, last)
    assert not reward.any()
    assert (terminated | truncated).all()


def test_results_do_not_depend_on_the_number_of_threads():
    one, three = (HostVectorEnv(registry.make("Ant-v5"), 6, num_threads=n) for n in (1, 3))
    one.reset(seed=0)
    three.reset(seed=0)
    one.action_space.seed(0)
    for _ in range(30):
        action = one.action_space.sample()
        for a, b in zip(one.step(action)[:4], three.step(action)[:4], strict=True):
            np.testing.assert_array_equal(a, b)


def test_returned_arrays_are_the_callers():
    envs = dvdrl.make_vec("Hopper-v5", 2)
    first, _ = envs.reset(seed=0)
    kept = first.copy()
    obs, reward, *_ = envs.step(np.zeros((2, 3)))
    obs[:], reward[:] = 99, 99
    again, *_ = envs.step(np.zeros((2, 3)))
    np.testing.assert_array_equal(first, kept)
    assert not (again == 99).any()


def test_what_info_reports_stays_while_the_simulations_go_on():
    envs = dvdrl.make_vec("Point-v0", 2)
    envs.reset(seed=0)
    push = np.ones((2, 2))
    first = envs.step(push)[4]["x"]  # a coordinate of the simulation
    kept = first.copy()
    assert (envs.step(push)[4]["x"] > kept).all()
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("task_id", ["Ant-v5", "Humanoid-v5"])
def test_each_simulation_can_have_its_own_masses_friction_and_gear(task_id):
    envs = dvdrl.make_vec(task_id, 3)
    model = envs.unwrapped.batch.model
    masses = np.stack([model.body_mass, 1.5 * model.body_mass, model.body_mass])
    friction = np.stack([model.geom_friction, 0.3 * model.geom_friction, model.geom_friction])
    gear = np.stack([model.actuator_gear] * 3)
    gear[2, :2] = 0  # two actuators that do nothing: for Ant, one leg
    envs.set_parameters(body_mass=masses, geom_friction=friction, actuator_gear=gear)
    obs, _ = envs.reset(seed=0)
    references = [gymnasium.make(task_id) for _ in range(3)]
    for i, reference in enumerate(references):
        own = reference.unwrapped.model
        own.body_mass[:], own.geom_friction[:], own.actuator_gear[:] = masses[i], friction[i], gear[i]
        mujoco.mj_setConst(own, reference.unwrapped.data)
        np.testing.assert_array_equal(reference.reset(seed=i)[0], obs[i])
    envs.action_space.seed(0)
    for _ in range(15):
        action = envs.action_space.sample()
        obs, reward, terminated, *_ = envs.step(action)
        for i, reference in enumerate(references):
            want_obs, want_reward, want_terminated, *_ = reference.step(action[i])
            np.testing.assert_array_equal(obs[i], want_obs)
            assert (reward[i], terminated[i]) == (want_reward, want_terminated)
    assert not (obs[0] == obs[1]).all()


# Not a number is found by MuJoCo before its first physics step; the huge velocity only breaks Swimmer's state.
@pytest.mark.parametrize(
    ("task_id", "velocity"), [("HalfCheetah-v5", np.nan), ("Swimmer-v5", np.nan), ("Swimmer-v5", 9e9)]
)
def test_an_unstable_simulation_ends_and_is_counted_without_touching_the_others(
    task_id, velocity, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log there
    envs, untouched = (dvdrl.make_vec(task_id, 4) for _ in range(2))
    envs.reset(seed=0)
    untouched.reset(seed=0)
    action = np.full(envs.action_space.shape, 0.5)
    before, *_ = envs.step(action)
    untouched.step(action)
    envs.unwrapped.batch.bind("qvel")[2, 3] = velocity
    others = [0, 1, 3]
    for step in range(3):
        obs, reward, terminated, truncated, info = envs.step(action)
        want = untouched.step(action)
        assert info["unstable"].tolist() == [False, False, step == 0, False]
        assert terminated.tolist() == [False, False, step == 0, False]
        assert not truncated.any()
        assert np.isfinite(obs).all()
        np.testing.assert_array_equal(obs[others], want[0][others])
        np.testing.assert_array_equal(reward[others], want[1][others])
        if step == 0:
            np.testing.assert_array_equal(obs[2], before[2])  # the last observation that meant something
            assert reward[2] == 0
        if step == 2:
            assert reward[2] != 0  # a new episode, after the reset of step 1


def test_gymnasiums_episode_statistics_wrap_it():
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(dvdrl.make_vec("Point-v0", 3))
    envs.reset(seed=0)
    total = np.zeros(3)
    for _ in range(50):
        _, reward, _, truncated, info = envs.step(np.zeros((3, 2)))
        total += reward
    assert truncated.all()
    np.testing.assert_allclose(info["episode"]["r"], total, rtol=1e-6)  # the wrapper sums in single precision
    np.testing.assert_array_equal(info["episode"]["l"], 50)


class One(gymnasium.Env):
    """Simulation 0 of a batch of one, so that Gymnasium's checker of single environments can look at it."""

    def __init__(self, task_id):
        self.envs = dvdrl.make_vec(task_id, 1, autoreset_mode="Disabled")
        self.observation_space = self.envs.single_observation_space
        self.action_space = self.envs.single_action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        obs, info = self.envs.reset(seed=seed, options=options)
        return obs[0], info

    def step(self, action):
        obs, reward, terminated, truncated, info = self.envs.step(action[None])
        return obs[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), info


@pytest.mark.parametrize("task_id", ["Point-v0", "HalfCheetah-FwdBwd-v0", "Ant-FwdBwd-v0", "Humanoid-v5"])
@pytest.mark.filterwarnings("ignore:.*(Box observation space|render_modes|spec).*:UserWarning")
def test_gymnasiums_checker_passes(task_id):
    check_env(One(task_id), skip_render_check=True)


def test_wrong_actions_are_named():
    envs = dvdrl.make_vec("Swimmer-v5", 3)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"expected actions of shape \(3, 2\).*got \(3, 4\)"):
        envs.step(np.zeros((3, 4)))
    for bad in (np.nan, np.inf):
        action = np.zeros((3, 2))
        action[1, 0] = bad
        with pytest.raises(ValueError, match=r"must be finite; 1 of 3 simulations.*the first is 1 with"):
            envs.step(action)
    envs.step(np.zeros((3, 2)))  # and nothing was broken


def test_a_step_before_the_first_reset_is_an_error():
    envs = dvdrl.make_vec("Swimmer-v5", 2)
    with pytest.raises(ResetNeeded, match="call reset first"):
        envs.step(np.zeros((2, 2)))
    with pytest.raises(ResetNeeded, match="must include all"):
        envs.reset(options={"reset_mask": np.array([True, False])})


def test_wrong_seeds_and_masks_are_named():
    envs = dvdrl.make_vec("Swimmer-v5", 2)
    with pytest.raises(ValueError, match="one seed, or 2 of them; got 3"):
        envs.reset(seed=[1, 2, 3])
    envs.reset(seed=[1, 2])
    with pytest.raises(TypeError, match="array of bool, got float64"):
        envs.reset(options={"reset_mask": np.zeros(2)})
    with pytest.raises(ValueError, match=r"shape \(2,\), got \(3,\)"):
        envs.reset(options={"reset_mask": np.ones(3, bool)})
    with pytest.raises(ValueError, match="at least one"):
        envs.reset(options={"reset_mask": np.zeros(2, bool)})


def test_what_cannot_be_made_is_named():
    with pytest.raises(DvdrlError, match="num_envs must be at least 1, got 0"):
        dvdrl.make_vec("Swimmer-v5", 0)
    with pytest.raises(DvdrlError, match=r"has its options already"):
        dvdrl.make_vec(registry.make("Point-v0"), 2, wall_half_width=3.0)
    with pytest.raises(DvdrlError, match=r"wrap all of them, with gymnasium\.wrappers\.vector"):
        dvdrl.make_vec("Point-v0", 2, wrappers=[gymnasium.wrappers.TimeAwareObservation])


def test_an_unknown_parameter_gets_mujocos_hint():
    envs = dvdrl.make_vec("Swimmer-v5", 2)
    with pytest.raises(ValueError, match="did you mean 'body_mass'"):
        envs.set_parameters(body_mas=np.ones(4))


@pytest.mark.parametrize("task", ["Hopper-v5", "Humanoid-v5", "Ant-FwdBwd-v0"])
def test_simulations_go_on_from_a_snapshot_to_the_bit(task):
    # Forty steps in, over the ends of episodes and the draws of new ones; here, and in an engine that is new.
    actions = np.random.default_rng(0).uniform(-0.4, 0.4, (80, 3, registry.make(task).action_size))

    def go_on(envs, actions):
        seen = []
        for action in actions:
            obs, reward, terminated, truncated, _ = envs.step(action)
            if (ended := terminated | truncated).any():
                obs, _ = envs.reset(options={"reset_mask": ended})
            seen.append((obs.copy(), reward, terminated))
        return seen

    envs, new = (dvdrl.make_vec(task, 3, autoreset_mode="Disabled", horizon=50) for _ in range(2))
    envs.reset(seed=3)
    go_on(envs, actions[:40])
    snapshot = envs.snapshot()
    first = go_on(envs, actions[40:])
    assert any(terminated.any() for _, _, terminated in first) or task.startswith("Ant")
    for engine in (envs, new):
        np.testing.assert_array_equal(engine.restore(snapshot), snapshot["observation"])
        for left, right in zip(go_on(engine, actions[40:]), first, strict=True):
            for a, b in zip(left, right, strict=True):
                np.testing.assert_array_equal(a, b)


def test_nothing_is_saved_before_there_is_something():
    with pytest.raises(ResetNeeded):
        dvdrl.make_vec("Point-v0", 2).snapshot()


class Unsound(Point):
    """Somebody's own task, which pays, or shows, what is not a number where the point has come to x > 0.5."""

    id = "Unsound-v0"
    pays = shows = 0.0

    def observe(self, data):
        return super().observe(data) + np.where(data["qpos"][:, :1] > 0.5, self.shows, 0.0)

    def reward(self, carry, action, data):
        reward = super().reward(carry, action, data)
        return reward._replace(total=reward.total + np.where(data["qpos"][:, 0] > 0.5, self.pays, 0.0))


@pytest.mark.parametrize("fault", [{"pays": np.nan}, {"shows": -np.inf}])
def test_what_is_not_finite_is_named_with_its_step(fault):
    task = type("Faulty", (Unsound,), fault)()
    envs = dvdrl.make_vec(task, 3)
    envs.reset(seed=0)
    actions = np.array([[0, 0], [1, 0], [0, 1]], np.float32)  # the second goes there
    steps = (envs.step(actions) for _ in range(50))
    with pytest.raises(DvdrlError, match=r"Unsound-v0: .* not finite in simulation 1, step \d+$"):
        list(steps)
