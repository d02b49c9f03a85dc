"""Racecar, Ant and Doggo: parity with recordings, what these touch, resets, falls, looking once after Runge-Kutta."""

import jax
import mujoco
import numpy as np
import pytest
from worlds import build, keys_of, recorded_costs, recording

from cppo import envs
from cppo.envs import replay
from cppo.envs.mujoco.threads import Threads
from cppo.envs.safety_gym.models import navigation_model
from cppo.envs.safety_gym.navigation import Seen, fallen
from cppo.envs.safety_gym.recordings import navigation_state
from cppo.envs.safety_gym.robots import ROBOTS
from cppo.envs.safety_gym.scenes import SCENES, WALL

NEW = ("Racecar", "Ant", "Doggo")
TASKS = ("Goal2", "Push2", "Button2", "Circle2")
RECORDED = [f"{robot}{task}" for robot in NEW for task in TASKS]


@pytest.mark.parametrize("name", [*RECORDED, "CarGoal2Thrown", "CarPush2Thrown", "CarButton2Thrown"])
def test_parity_with_the_original(name):
    data, name = recording(name), name.removesuffix("Thrown")
    robot = SCENES[name].robot
    given = replay(name, data, physics="recorded")
    np.testing.assert_allclose(given["reward"], data["reward"], atol=1e-9)
    np.testing.assert_allclose(given["obs"][:, robot.observed :], data["obs"][:, robot.observed :], atol=1e-9)
    assert np.median(np.abs(given["obs"] - data["obs"]).max(1)) <= 1e-7  # sensors: accelerations come from the solver
    for key, expected in (("cost", recorded_costs(data)), *((key, data[key]) for key in ("goal_met", "terminated"))):
        np.testing.assert_array_equal(given[key], expected)
    step = replay(name, data)
    error = np.abs(step["qpos_next"] - data["qpos_next"])
    assert np.median(error[:, : robot.positions].max(1)) <= 1e-7
    assert error.shape[1] == robot.positions or np.median(error[:, robot.positions :].max(1)) <= 1e-7
    thrown, off = data["mode"] == "thrown", step["cost"] != recorded_costs(data)
    assert np.quantile(error[~thrown].max(1), 0.8) <= 5e-3 and not off[~thrown].any()
    # A light box that is hit at 2 m / s flies where a rounding error sends it.
    assert np.quantile(error[thrown].max(1), 0.6) <= 1e-3 and off[thrown].mean() <= 0.1


def touching(name, scene=None):
    """What the robot touches in the recorded states of a scene, and which of its own bodies do."""
    scene, data = scene or SCENES[name], recording(name)
    model, state = navigation_model(scene), navigation_state(scene, data)
    world, found = mujoco.MjData(model), set()
    root = model.body_rootid[model.body("robot").id]
    for row in range(len(data["qpos"])):
        world.qpos[:] = data["qpos_next"][row]
        places, turns = np.split(np.asarray(state.physics.mocap[row]).reshape(-1), [3 * model.nmocap])
        world.mocap_pos[:], world.mocap_quat[:] = places.reshape(-1, 3), turns.reshape(-1, 4)
        mujoco.mj_kinematics(model, world)
        mujoco.mj_collision(model, world)
        for geoms in world.contact.geom:
            bodies = model.geom_bodyid[geoms]
            ours = model.body_rootid[bodies] == root
            if ours.sum() == 1 and 0 not in bodies:
                found |= {model.body(body).name for body in bodies}
        place = world.body("robot").xpos[:2]
        inside = np.linalg.norm(data["hazards"][row].reshape(-1, 3)[:, :2] - place, axis=1) < scene.hazard_size
        found |= {f"hazard{number}" for number in np.flatnonzero(inside)}
        sides = [("x", place[0]), ("-x", -place[0]), ("y", place[1]), ("-y", -place[1])]
        found |= {f"wall {side}" for side, far in sides[: scene.walls] if far > WALL}
    return found


def everything(scene):
    kinds = {"hazard": scene.hazards, "vase": scene.vases, "pillar": scene.pillars, "button": scene.buttons}
    kinds["gremlin"] = scene.gremlins
    walls = {f"wall {side}" for side in ("x", "-x", "y", "-y")[: scene.walls]}
    return {f"{kind}{number}" for kind, count in kinds.items() for number in range(count)} | walls


@pytest.mark.parametrize("task", TASKS)
def test_recordings_touch_everything(task):
    """Each thing by one of the robots at least, most by all."""
    wanted, found = everything(SCENES[f"Ant{task}"]), {robot: touching(f"{robot}{task}") for robot in NEW}
    assert wanted <= set.union(*found.values()), wanted - set.union(*found.values())
    for robot in NEW:
        assert len(wanted & found[robot]) >= 0.8 * len(wanted)
        assert task == "Circle2" or recording(f"{robot}{task}")["goal_met"].sum() >= 1
        assert task != "Push2" or "box" in found[robot]
    assert recording(f"Ant{task}")["terminated"].sum() >= 4
    assert task != "Button2" or {"left_wheel", "right_wheel", "left_rear", "right_rear"} <= found["Racecar"]


@pytest.mark.parametrize("name", ["CarGoal2", "CarPush2", "CarButton2"])
def test_recordings_of_the_car_touch_everything(name):
    """What it was not driven to, it was thrown at."""
    found = touching(name) | touching(f"{name}Thrown", SCENES[name])
    assert everything(SCENES[name]) <= found, everything(SCENES[name]) - found
    assert {"robot", "left", "right"} <= found


@pytest.mark.parametrize("name", ["AntGoal0", "DoggoCircle0"])
def test_sensors_are_those_of_a_forward_evaluation(name):
    """Of Runge-Kutta and of Euler alike, after ten steps and after none."""
    model, rng = navigation_model(SCENES[name]), np.random.default_rng(0)
    data, threads = mujoco.MjData(model), Threads(model, 1)
    control = np.concatenate([rng.uniform(-1, 1, (1, model.nu)), data.mocap_pos.reshape(1, -1)], 1)
    control = np.concatenate([control, data.mocap_quat.reshape(1, -1)], 1)
    start = np.concatenate([data.qpos[None], data.qvel[None], data.qvel[None]], 1)
    qpos, qvel, warm = np.split(start, [model.nq, model.nq + model.nv], 1)
    data.ctrl[:] = control[0, : model.nu]
    for steps in (0, 10):
        if steps:
            mujoco.mj_step(model, data, steps)
        mujoco.mj_forward(model, data)
        seen = threads.seen((qpos, qvel, warm), control, steps)
        np.testing.assert_allclose(seen.qpos[0], data.qpos, atol=1e-9)
        np.testing.assert_allclose(seen.sensors[0], data.sensordata, atol=1e-6)


def test_resets_stand_and_the_ant_bends_its_legs_at_random():
    for robot in ROBOTS[2:]:
        env = build(f"{robot.name.capitalize()}Circle0", 40)
        state, obs = env.init(keys_of(0, 40))
        joints = state.physics.qpos[:, 7:] - np.array(robot.rest)
        np.testing.assert_array_equal(state.physics.qpos[:, 2], robot.start)
        assert np.isfinite(obs).all() and np.abs(joints).max(initial=0) <= robot.jitter
        if robot.jitter:
            assert (joints.max(0) > 0.07).all() and (joints.min(0) < -0.07).all()
            assert len(np.unique(joints)) == joints.size


def test_an_ant_that_lies_down_ends_its_episode():
    env = build("AntCircle1", 3)
    state = jax.tree.map(np.array, env.init(keys_of(0, 3))[0])
    state.physics.qpos[0, 2:7] = 0.07, 0, 1, 0, 0  # on its back
    state, step = env.advance(state, np.zeros((3, 8)))
    np.testing.assert_array_equal(step.terminated, [True, False, False])
    np.testing.assert_array_equal(step.measures[:, 0], [1, 0, 0])
    np.testing.assert_array_equal(state.age, [0, 1, 1])
    heights = np.array([[0, 0, 0.08], [0, 0, 0.0801]])
    seen = Seen(heights, np.tile(np.eye(3), (2, 1, 1)), heights[:, None], heights)
    np.testing.assert_array_equal(fallen(SCENES["AntGoal1"], seen), [True, False])
    np.testing.assert_array_equal(fallen(SCENES["DoggoGoal1"], seen), [False, False])


def test_saved_state_goes_on_bit_for_bit():
    env, other = build("AntButton1", 2), build("AntButton1", 2)
    state, _ = env.init(keys_of(0, 2))
    actions = np.random.default_rng(0).uniform(-1, 1, (6, 2, 8))
    for action in actions[:3]:
        state, _ = env.advance(state, action)
    again = jax.tree.map(np.copy, state)
    for action in actions[3:]:
        (state, step), (again, repeated) = env.advance(state, action), other.advance(again, action)
        jax.tree.map(np.testing.assert_array_equal, step, repeated)


def test_names_actions_and_pictures():
    assert envs.named("SafetyRacecarCircle1-v0") == "RacecarCircle1"
    space = envs.spec("SafetyRacecarCircle1-v0").action
    assert (space.low, space.high) == ((-20.0, -0.785), (20.0, 0.785))
    assert envs.spec("DoggoGoal1").obs_shape == (104,) and envs.spec("AntGoal1").measures == ("goals", "fallen")
    for name in ("RacecarPush1", "AntGoal0", "DoggoButton0"):
        env = build(name, 1)
        state, obs = env.init(keys_of(0, 1))
        picture = envs.view(name).above(200).draw(state, np.asarray(obs[0]))
        middle = np.round(100 + 100 * np.array([1, -1]) * state.physics.qpos[0, :2] / (1.5 + 0.9)).astype(int)
        part = picture[middle[1] - 6 : middle[1] + 7, middle[0] - 6 : middle[0] + 7].astype(int)
        assert (part.max(-1) - part.min(-1) > 60).sum() > 10, name  # the robot, on a grey floor
