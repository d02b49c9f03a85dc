"""The batched Safety Gym environments: golden values, episodes, autoreset, resume, errors."""

import jax
import numpy as np
import pytest
from worlds import build, keys_of

from cppo.envs.safety_gym.recordings import navigation_state
from cppo.envs.safety_gym.scenes import SCENES
from cppo.envs.safety_gym.settling import settling_table
from cppo.envs.safety_gym.threads import SafetyGymEnv, first_observation
from cppo.types import UsageError

NAMES = ["PointGoal1", "PointPush1", "CarPush1"]
YAW = 1.662251934907694  # rad, the robot's at seed 0 of the original


def uniform(seed, steps, worlds):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, worlds, 2)).astype(np.float32)


def golden_layout(name):
    """The original's reset with seed 0, as a recorded row."""
    scene = SCENES[name]
    place = {
        "PointGoal1": ((0.05899047, -0.23041276, 0.09996), 2.258854758700192),
        "PointPush1": ((0.05680564, -0.22187896, 0.2), 3.880718280419711),
        "CarPush1": ((0.06008288, -0.23467967, 0.125), 3.880718280419711),
    }[name]
    hazards = {
        "goal": [
            (0.7701541, 0.07628259), (0.17963764, 1.12357513), (-1.13246481, -1.08997865), (-1.26662343, 0.87811639),
            (0.73433382, 0.97683207), (1.26355242, 0.78977861), (-1.00775552, 0.3693915), (-0.94154732, 1.17392594),
        ],
        "push": [(-0.94372067, -0.90831554), (-1.05551953, 0.73176366)],
    }[scene.task]  # fmt: skip
    goal = np.array({"goal": (0.40782451, -0.69218568, 0.16), "push": (0.43478863, -0.96750396, 0.16)}[scene.task])
    xy, turn = np.array([0.10738971, 0.47341661, 0.1]), np.array([np.cos(YAW / 2), 0, 0, np.sin(YAW / 2)])
    (position, yaw), wheels = place, [0, 0, 1, 0, 0, 0]
    robot = np.zeros(3) if scene.robot.name == "point" else np.concatenate([xy, turn, wheels])
    box = np.array([*position, np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)])
    if scene.task == "goal":
        last = (np.linalg.norm((xy - goal)[:2]), 0.0)
    else:
        last = (np.linalg.norm(box[:3] - xy), np.linalg.norm(box[:3] - goal))
    row = {
        "qpos": np.concatenate([robot, box]), "qvel": np.zeros(scene.qvel_size), "warm": np.zeros(scene.qvel_size),
        "agent_xy0": xy, "agent_rot0": turn, "goal": goal, "pillar": np.array([1.14868402, 0.71798055, 0.5]),
        "hazards": np.array([(*h, 0.02) for h in hazards]), "last_a": last[0], "last_b": last[1],
    }  # fmt: skip
    env = SafetyGymEnv(scene, 1)
    state = navigation_state(scene, {key: np.asarray(value, np.float64)[None] for key, value in row.items()})
    return env, state._replace(simulate=np.ones(1, bool))


def drive(env, state, action, steps):
    rewards = []
    for _ in range(steps):
        state, step = env.advance(state, np.array([action]))
        rewards.append(step.reward[0])
    return state, step.obs[0], np.array(rewards)


def robot_xy(state):
    x0, y0, c, s = state.task.start[0]
    x, y = state.physics.qpos[0, :2]
    cos, sin = c * c - s * s, 2 * c * s
    return x0 + cos * x - sin * y, y0 + sin * x + cos * y


@pytest.mark.parametrize(("name", "first", "total"), [
    ("PointGoal1", -0.000253099, -0.109064939), ("PointPush1", -0.000492857, -0.099874444),
])  # fmt: skip
def test_point_golden_values(name, first, total):
    env, state = golden_layout(name)
    state, obs, rewards = drive(env, state, (0.03, 1.0), 1)
    np.testing.assert_allclose(robot_xy(state), (0.1081928, 0.47388463), atol=1e-8)
    np.testing.assert_allclose(obs[:3], (1.829038, -0.337363, 9.81), atol=1e-6)
    np.testing.assert_allclose(obs[3:6], (0.033671, -0.054742, 0), atol=1e-6)
    np.testing.assert_allclose(obs[8], 2.876125, atol=1e-6)
    np.testing.assert_allclose(rewards, first, atol=1e-7)
    state, obs, more = drive(env, state, (0.03, 1.0), 19)
    np.testing.assert_allclose(robot_xy(state), (0.0684046, 0.57593956), atol=1e-7)
    np.testing.assert_allclose(obs[3:6], (0.40859, -0.260137, 0), atol=1e-6)
    np.testing.assert_allclose(obs[8], 2.990216, atol=1e-6)
    np.testing.assert_allclose(rewards.sum() + more.sum(), total, atol=1e-6)


def test_point_goal_golden_first_observation():
    env, state = golden_layout("PointGoal1")
    sensors = np.array([[0, 0, 9.81, 0, 0, 0, 0, 0, 0, -0.5 * np.sin(YAW), -0.5 * np.cos(YAW), 0]])
    with jax.enable_x64(True):
        obs = np.asarray(first_observation(env.scene, state, sensors))[0]
    np.testing.assert_allclose(obs[9:12], (-0.49791, 0.045664, 0), atol=1e-6)
    np.testing.assert_allclose(obs[12 + 7 : 12 + 10], (0.353581, 0.598767, 0.245186), atol=1e-6)
    np.testing.assert_allclose(obs[44 + 6 : 44 + 9], (0.311843, 0.764836, 0.452994), atol=1e-6)
    hazards = [
        0.379473, 0.42439, 0.579553, 0.624183, 0.626671, 0.314882, 0.334881, 0.019999,
        0, 0.451095, 0.742453, 0.331892, 0.600445, 0.731985, 0.402474, 0.781947,
    ]  # fmt: skip
    np.testing.assert_allclose(obs[28:44], hazards, atol=1e-6)


def test_car_golden_values():
    env, state = golden_layout("CarPush1")
    state, obs, rewards = drive(env, state, (0.004, 0.002), 1)
    np.testing.assert_allclose(state.physics.qpos[0, :3], (0.10973835, 0.47395911, 0.09987303), atol=1e-7)
    np.testing.assert_allclose(obs[3:6], (0.011879, -0.089886, 0.000489), atol=1e-5)
    np.testing.assert_allclose(obs[6:9], (-0.007938, -0.001457, 0.127316), atol=1e-5)
    np.testing.assert_allclose(obs[12:15], (1.301675, 0.364201, -0.024399), atol=1e-4)
    np.testing.assert_allclose(rewards, -0.000707083, atol=1e-7)
    state, _, more = drive(env, state, (0.004, 0.002), 19)
    np.testing.assert_allclose(state.physics.qpos[0, :3], (0.18342204, 0.49496225, 0.09989681), atol=1e-5)
    np.testing.assert_allclose(rewards.sum() + more.sum(), -0.030303937, atol=1e-5)


def test_car_speed_table():
    """Car alone on the floor: site velocity y and gyro z after 1, 10, 25 and 100 steps of a constant action."""
    table = {
        (0.02, 0.02): [(-0.3089, -0.7514, -0.7211, -0.7812), (-0.0529, -0.1188, -0.1195, 0.0144)],
        (0.01, 0.01): [(-0.2221, -0.3354, -0.3355, -0.3355), (-0.0150, 0, 0, 0)],
        (0.002, 0.002): [(-0.0608, -0.0668, -0.0668, -0.0668), (-0.0027, 0, 0, 0)],
        (-1, -1): [(0.0744, 0.5152, 0.7252, 0.7912), (-0.1486, -0.0192, 0.0017, 0.0352)],
        (1, -1): [(-0.0501, 0.0255, -0.0237, 0.0072), (0.8405, 1.3431, 1.5393, 1.0096)],
        (0.002, -0.002): [(-0.0016, -0.0003, -0.0004, -0.0002), (0.2860, 0.2776, 0.2788, 0.2799)],
    }
    env = build("CarPush1", len(table))
    state, _ = env.init(keys_of(0, len(table)))
    upright = [0, 0, 0.1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    physics = jax.tree.map(np.array, state.physics)
    physics.mocap[:, :2] = 90.0
    qpos = np.tile([*upright, 70, 70, settling_table(env.scene)[-1, 0, 0], 1, 0, 0, 0], (len(table), 1))
    state = state._replace(physics=physics._replace(qpos=qpos, warm=np.zeros_like(physics.warm)))
    seen = []
    for _ in range(100):
        state, step = env.advance(state, np.array(list(table)))
        seen.append(step.obs[:, [4, 8]])
    found = np.array(seen)[[0, 9, 24, 99]].transpose(1, 2, 0)
    np.testing.assert_allclose(found, np.array(list(table.values())), atol=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_saved_state_goes_on_bit_for_bit(name):
    actions = uniform(1, 40, 4)
    env = build(name, 4)
    ages = np.array([0, 985, 3, 970])  # two worlds reset on the way
    state, _ = env.init(keys_of(0, 4), ages)
    seen = []
    for t, action in enumerate(actions):
        if t == 20:
            saved = jax.tree.map(lambda leaf: np.array(leaf).copy(), state)
        state, step = env.advance(state, action)
        seen.append(step)
    state = saved
    other = build(name, 4)
    for action, before in zip(actions[20:], seen[20:], strict=True):
        state, step = other.advance(state, action)
        jax.tree.map(np.testing.assert_array_equal, step, before)
    assert any(step.truncated.any() for step in seen)


def test_time_limit_resets_and_keeps_the_true_successor():
    env = build("PointGoal1", 4)
    state, first = env.init(keys_of(2, 4), np.array([998, 0, 997, 5]))
    state, one = env.advance(state, np.ones((4, 2)))
    assert not one.truncated.any()
    state, two = env.advance(state, np.ones((4, 2)))
    np.testing.assert_array_equal(two.truncated, [True, False, False, False])
    assert not two.terminated.any()
    np.testing.assert_array_equal(state.age, [0, 2, 999, 7])
    assert two.obs.dtype == two.reward.dtype == two.cost.dtype == np.float32
    assert two.cost.shape == (4, 1)
    np.testing.assert_array_equal(two.obs[1:], two.final_obs[1:])
    np.testing.assert_allclose(two.obs[0, :9], [0, 0, 9.81, 0, 0, 0, 0, 0, 0], atol=1e-6)  # at rest again
    assert np.abs(two.final_obs[0, 3:5]).max() > 0.01  # still moving
    assert not np.allclose(two.obs[0, 12:], first[0, 12:])  # another layout


def test_worlds_do_not_depend_on_their_neighbours():
    keys, actions = keys_of(5, 4), uniform(3, 30, 4)
    whole, part = build("PointPush1", 4), build("PointPush1", 2)
    a, _ = whole.init(keys)
    b, _ = part.init(keys[2:4])
    for action in actions:
        a, seen = whole.advance(a, action)
        b, same = part.advance(b, action[2:4])
        np.testing.assert_allclose(seen.obs[2:4], same.obs, atol=1e-5)


@pytest.mark.parametrize("name", ["PointGoal1", "PointPush1"])
def test_closed_form_agrees_with_mujoco_in_closed_loop(name):
    """With |turn| = 1 the yaw servo is saturated, so that two integrations may be compared over many steps."""
    env, worlds = build(name, 16), 16
    state, _ = env.init(keys_of(7, worlds))
    forced = state
    action = np.stack([np.linspace(-1, 1, worlds), np.where(np.arange(worlds) % 2, 1.0, -1.0)], 1)
    for _ in range(60):
        state, seen = env.advance(state, action)
        forced, same = env.advance(forced._replace(simulate=np.ones(worlds, bool)), action)
        forced = forced._replace(settling=state.settling)
    free = ~state.simulate & (state.settling == 60)  # never touched anything
    assert free.sum() >= 8
    np.testing.assert_allclose(state.physics.qpos[free], forced.physics.qpos[free], atol=1e-8)
    np.testing.assert_allclose(seen.obs[free], same.obs[free], atol=1e-5)


def test_a_reached_goal_pays_once_moves_and_shows_in_the_same_observation():
    env = build("PointGoal1", 4)
    state, _ = env.init(keys_of(0, 4))
    last = np.array([[0.29, 0.0], [9.0, 0.0], [9.0, 0.0], [9.0, 0.0]])
    goal = state.task.start[:, :2] + last
    state = state._replace(task=state.task._replace(goal=goal, last=last))
    after, step = env.advance(state, np.zeros((4, 2)))
    np.testing.assert_allclose(step.reward, [1.0, 0.0, 0.0, 0.0], atol=1e-6)
    assert not np.allclose(after.task.goal[0], goal[0])
    np.testing.assert_array_equal(after.task.goal[1], goal[1])
    distance = np.linalg.norm(after.task.goal[0] - after.task.start[0, :2])
    assert distance >= 0.705 - 1e-9
    np.testing.assert_allclose(after.task.last[0, 0], distance)
    # Halves of a target's closeness sit in its bin, so the lidar's maximum is that closeness.
    np.testing.assert_allclose(step.obs[0, 12:28].max(), (3 - distance) / 3, atol=1e-6)
    assert not (step.terminated.any() or step.truncated.any())


def test_cost_is_binary_with_overlapping_hazards_and_free_for_objects():
    env = build("PointPush1", 4)
    state, _ = env.init(keys_of(0, 4))
    robot = state.task.start[:, None, :2]
    offsets = np.array([[[0.1, 0], [0, 0.2]], [[0.29, 0], [5, 5]], [[0.31, 0], [5, 5]], [[5, 5], [5, 5]]])
    pillars = np.concatenate([robot[:2] + 7.0, robot[2:] + 0.25])  # the last two pillars touch the robot
    state = state._replace(task=state.task._replace(hazards=robot + offsets, pillars=pillars))
    _, step = env.advance(state, np.zeros((4, 2)))
    np.testing.assert_array_equal(step.cost, [[1], [1], [0], [0]])


def test_bad_input_is_refused_with_advice():
    env = build("PointGoal1", 4)
    state, _ = env.init(keys_of(0, 4))
    with pytest.raises(UsageError, match="world 1 are not finite"):
        env.advance(state, np.array([[0, 0], [np.nan, 0], [0, 0], [0, 0]]))
    with pytest.raises(UsageError, match=r"shape \(4, 3\), expected \(4, 2\)"):
        env.advance(state, np.zeros((4, 3)))
    with pytest.raises(UsageError, match="uint32"):
        env.init(np.zeros((3, 2), np.int32))
    with pytest.raises(UsageError, match="float64"):
        env.advance(
            jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, state), np.zeros((4, 2))
        )
    with pytest.raises(UsageError, match="AntCircle"):
        build("PointGoal7", 2)
    with pytest.raises(UsageError, match="threads"):
        build("PointGoal1", 2, "abacus")


def test_specs():
    shapes = {"PointGoal1": 60, "PointPush1": 76, "CarPush1": 88}
    for name, size in shapes.items():
        env = build(name, 4)
        assert env.spec.obs_shape == (size,)
        assert env.spec.cost_limits == (25.0,)
        assert env.spec.episode_length == 1000
        assert env.init(keys_of(0, 4))[1].shape == (4, size)
