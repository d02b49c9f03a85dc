"""Levels 0 to 2 of Goal, Push and Circle: parity with recordings, layouts, observations, costs as constraints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import build, recorded_costs, recording

import cppo
from cppo.envs import replay
from cppo.envs.safety_gym import navigation
from cppo.envs.safety_gym.layouts import keepouts
from cppo.envs.safety_gym.models import navigation_model
from cppo.envs.safety_gym.scenes import SCENES

# Recorded with scripts/record_safety_gymnasium.py (safety-gymnasium 1.0.0, MuJoCo 2.3.3).
RECORDED = ["PointGoal2", "PointPush2", "PointCircle2", "CarGoal1", "CarPush2", "CarCircle1"]
ALSO_RECORDED = ["PointGoal0", "PointPush0", "PointCircle1", "CarGoal2"]  # nothing that the others do not have
TOUCHING = {"vase", "push_box", "pillar"}  # modes that steer at something solid
SIZES = {
    "Goal0": 16, "Goal1": 48, "Goal2": 48, "Push0": 32, "Push1": 64, "Push2": 64, "Circle0": 16, "Circle1": 16,
    "Circle2": 16, "Button0": 32, "Button1": 64, "Button2": 64,
}  # fmt: skip


@pytest.mark.parametrize("name", [*RECORDED, *(pytest.param(name, marks=pytest.mark.slow) for name in ALSO_RECORDED)])
def test_parity_with_the_original(name):
    data, lidar = recording(name), SCENES[name].robot.observed
    task = replay(name, data, physics="recorded")
    np.testing.assert_allclose(task["reward"], data["reward"], atol=1e-9)
    np.testing.assert_array_equal(task["cost"], recorded_costs(data))
    np.testing.assert_array_equal(task["goal_met"], data["goal_met"])
    np.testing.assert_allclose(task["obs"][:, lidar:], data["obs"][:, lidar:], atol=1e-9)
    step = replay(name, data)
    error = np.abs(step["qpos_next"] - data["qpos_next"]).max(1)
    for mode in set(data["mode"]):
        rows = data["mode"] == mode
        if mode in TOUCHING:  # medians and tails of a step with contact, three times what MuJoCo 3.17 gives on level 1
            assert np.median(error[rows]) <= 3.3e-4 and np.quantile(error[rows], 0.95) <= 6e-3, mode
        else:
            assert np.median(error[rows]) <= 1e-9, mode
            assert np.median(np.abs(step["obs"] - data["obs"])[rows].max(1)) <= 1e-9, mode
    np.testing.assert_array_equal(step["cost"], recorded_costs(data))


def test_recordings_charge_every_constraint():
    for name in ("PointGoal2", "CarGoal2", "PointPush2", "CarPush2"):
        costs = recorded_costs(recording(name))
        assert (costs.sum(0) >= 5).all() and (costs.mean(0) < 0.9).all()


@pytest.mark.parametrize("name", list(SCENES))
def test_spec_and_model(name):
    scene = SCENES[name]
    env = build(name, 1)
    robot = scene.robot.name.capitalize()
    sensors = {"Point": 12, "Car": 24, "Racecar": 12, "Ant": 40, "Doggo": 56}[robot]
    assert env.spec.obs_shape == (sensors + SIZES[name.removeprefix(robot)],)
    wanted = {"Goal2": ("hazards", "vases"), "Push2": ("hazards", "pillars")}.get(name[-5:], ("cost",))
    assert env.spec.cost_names == wanted
    assert env.spec.cost_limits == (25.0,) * len(wanted)
    assert env.spec.episode_length == (500 if "Circle" in name else 1000)
    model = navigation_model(scene)
    assert (model.nq, model.nv, model.nsensordata) == (scene.qpos_size, scene.qvel_size, scene.sensors)


@pytest.mark.parametrize("name", ["PointGoal2", pytest.param("CarPush2", marks=pytest.mark.slow)])
def test_layouts_keep_their_distances(name):
    scene, count = SCENES[name], 300
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(0), count))
    with jax.enable_x64(True):
        _, start, task = jax.jit(lambda k: navigation.reset(scene, k, jnp.dtype(jnp.float64)))(keys)
    objects = np.asarray(start.qpos)[:, scene.robot.positions :].reshape(count, -1, 7)[..., :2]
    parts = (task.start[:, None, :2], task.goal[:, None], task.hazards, task.pillars, objects)
    everything = np.concatenate([np.asarray(part) for part in parts], 1)
    radii = keepouts(scene)
    distance = np.linalg.norm(everything[:, :, None] - everything[:, None], axis=-1) + 9 * np.eye(len(radii))
    assert (distance >= radii[:, None] + radii[None] - 1e-12).all()
    assert (np.abs(everything) <= scene.half_extent - radii[None, :, None]).all()
    assert np.abs(everything).max() > scene.half_extent - 0.35  # the whole square is used


def still(name, worlds):
    """An environment at rest, all objects settled far away from the robot."""
    env = build(name, worlds)
    state, _ = env.init(np.asarray(jax.random.split(jax.random.PRNGKey(0), worlds)))
    return env, jax.tree.map(np.array, state)


def test_vases_are_charged_when_touched_and_while_they_move():
    env, state = still("PointGoal2", 4)
    qpos, qvel = state.physics.qpos, state.physics.qvel
    for world in range(4):
        qpos[world, 3:].reshape(10, 7)[:, :2] = np.stack([np.arange(10) * 0.5 - 2, np.full(10, 6.0)], 1)
    x, y = state.task.start[:, 0], state.task.start[:, 1]
    qpos[0, 3:6] = x[0] + 0.19, y[0], 0.0999564  # within reach of the robot's sphere
    qvel[1, 3:6] = 0.5, 0, 0  # slides, alone
    qvel[2, 3:6] = 0, 0, 2e-9  # no faster than the solver's noise
    hazards = np.full_like(state.task.hazards, 9.0)
    hazards[3, 0] = x[3], y[3]
    turned = np.tile([1.0, 0.0], (4, 1))
    state = state._replace(
        task=state.task._replace(hazards=hazards, start=np.concatenate([state.task.start[:, :2], turned], 1)),
        simulate=np.ones(4, bool),
        settling=np.full(4, -1, np.int32),
    )
    state.physics.mocap[:, 3:] = [1, 0, 0, 0]
    _, step = env.advance(state, np.zeros((4, 2)))
    np.testing.assert_array_equal(step.cost[:, 0], [0, 0, 0, 1])  # hazards
    np.testing.assert_array_equal(step.cost[:2, 1], [1, 1])  # vases: touched, moving
    # While settling into the floor no vase is ever faster than the threshold, touched or not.
    env, state = still("PointGoal2", 4)
    for _ in range(5):
        state, step = env.advance(state, np.zeros((4, 2)))
        assert not step.cost.any()


def test_pillars_are_charged_when_touched():
    env, state = still("PointPush2", 2)
    x, y = state.task.start[:, 0], state.task.start[:, 1]
    pillars = np.full_like(state.task.pillars, 8.0)
    pillars[0, 2] = x[0] - 0.299, y[0]  # 1 mm inside the sphere of radius 0.1 around the robot
    pillars[1, 2] = x[1] - 0.31, y[1]
    turned = np.tile([1.0, 0.0], (2, 1))
    task = state.task._replace(pillars=pillars, start=np.concatenate([state.task.start[:, :2], turned], 1))
    with jax.enable_x64(True):
        mocap = np.concatenate([np.reshape(part, (2, -1)) for part in navigation.mocap(env.scene, task)], 1)
    state = state._replace(task=task, physics=state.physics._replace(mocap=mocap), simulate=np.ones(2, bool))
    _, step = env.advance(state, np.zeros((2, 2)))
    np.testing.assert_array_equal(step.cost, [[0, 1], [0, 0]])


@pytest.mark.parametrize(("name", "charged"), [("PointCircle0", [0, 0, 0]), ("PointCircle1", [0, 1, 0]),
                                               ("CarCircle2", [0, 1, 1])])  # fmt: skip
def test_circle_by_hand(name, charged):
    """At (1, 0), (1.2, 0) and (0, -1.2), moving at 1 m/s along +y, the robot's x axis along +y."""
    scene, sensors = SCENES[name], np.zeros((3, SCENES[name].sensors))
    place = np.array([[1.0, 0, 0], [1.2, 0, 0], [0, -1.2, 0]])
    turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    sensors[:, 3], sensors[:, 15:16] = 1.0, 1.0  # velocimeter; the Car's ball upright
    nothing = np.zeros((3, 0, 3))
    seen = navigation.Seen(place, np.tile(turn, (3, 1, 1)), nothing, sensors)
    task = navigation.Task(np.zeros((3, 2)), nothing[..., :2], nothing[..., :2], np.zeros((3, 2)), np.zeros((3, 4)))
    seen, task = jax.tree.map(jnp.asarray, (seen, task))
    np.testing.assert_array_equal(navigation.costs(scene, task, seen)[:, 0], charged)
    np.testing.assert_allclose(navigation.circle_reward(scene, seen), [0.1 / 1.5, 0.1 / 1.3, 0], atol=1e-7)
    # One lidar sees the origin, out to 6 m (to the robot's left twice, then straight ahead).
    lidar = np.asarray(navigation.observe(scene, task, seen))[:, scene.robot.observed :]
    assert lidar.shape == (3, 16)
    np.testing.assert_allclose(lidar.max(1), [5 / 6, 4.8 / 6, 4.8 / 6], atol=1e-6)
    np.testing.assert_allclose(lidar[np.arange(3), [4, 4, 0]], lidar.max(1), atol=1e-6)


@pytest.mark.parametrize("algo", ["ppo_lag", pytest.param("cppo", marks=pytest.mark.slow)])
def test_two_constraints_train(algo, tmp_path):
    """Every constraint has its limit, its column and its place in the summary."""
    settings = {"batch_size": 400, "num_envs": 40, "epochs": 2, "value_epochs": 2, "min_episodes": 1}
    done = cppo.train(
        algo, "PointPush2", steps=800, out=tmp_path / "run", cost_limit=(25.0, 10.0), settings=settings, show=False,
        tensorboard=False,
    )  # fmt: skip
    assert done.plan.cost_limits == {"hazards": 25.0, "pillars": 10.0}
    assert {"cost.hazards", "cost.pillars"} <= set(done.metrics())
    assert set(done.summary["cost_limit"]) == {"hazards", "pillars"}
