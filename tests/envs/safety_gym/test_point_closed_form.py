"""The Point robot's closed form against MuJoCo, and the robot's known surprises."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cppo.envs.mujoco.threads import Threads
from cppo.envs.safety_gym import point
from cppo.envs.safety_gym.models import navigation_model
from cppo.envs.safety_gym.scenes import SCENES
from cppo.envs.safety_gym.settling import settling_table

FAR = 50.0  # m, where the object is out of reach
SCENE = SCENES["PointGoal1"]
POOL = Threads(navigation_model(SCENE), 1)


def roll(qpos, qvel, action, steps, start=(0.0, 0.0, 1.0, 0.0)):
    """MuJoCo with the vase at rest, far away: (step, joint) positions, speeds, and sensors before each step."""
    height = settling_table(SCENE)[-1, 0, 0]
    q = np.concatenate([qpos, [FAR, FAR, height, 1, 0, 0, 0]])[None]
    v = np.concatenate([qvel, np.zeros(6)])[None]
    mocap = [start[0], start[1], 0.1, start[2], 0, 0, start[3]]
    path = POOL.roll((q, v, np.zeros((1, 9))), np.concatenate([action, mocap])[None], steps)
    return path.qpos[0, :, :3], path.qvel[0, :, :3], path.sensors[0]


speeds = st.floats(-2, 2)
controls = st.one_of(st.floats(-1, 1), st.sampled_from([-1.0, -0.05, 0.0, 0.05, 1.0]))


@settings(max_examples=60, deadline=None)
@given(st.floats(-7, 7), speeds, speeds, st.floats(-4, 4), controls, controls, st.floats(-3, 3))
def test_one_step_and_its_sensors_equal_mujoco(theta, vx, vy, w, thrust, turn, yaw):
    joints, start_speeds = np.array([0.3, -0.2, theta]), np.array([vx, vy, w])
    action, start = np.array([thrust, turn]), np.array([0.1, 0.2, np.cos(yaw / 2), np.sin(yaw / 2)])
    qpos, qvel, sensors = roll(joints, start_speeds, action, 11, start)
    with jax.enable_x64(True):
        q, v = point.advance_point(joints[None], start_speeds[None], action[None])
        seen = point.point_sensors(q, v, action[None], start[None])
    np.testing.assert_allclose(q[0], qpos[9], atol=1e-9)
    np.testing.assert_allclose(v[0], qvel[9], atol=1e-9)
    # Accelerations amplify MuJoCo's own solver tolerance: seen up to 3e-9 of several m/s² (theta 0, vx 2, yaw 2.25).
    np.testing.assert_allclose(seen[0], sensors[10], atol=1e-8)
    # What must_simulate relies on: no point of the path lies further away than speed and margin allow.
    travelled = np.linalg.norm(qpos[:10, :2] - joints[:2], axis=1).max()
    assert travelled <= 0.02 * np.hypot(vx, vy) + point.TRAVEL_MARGIN


@pytest.mark.parametrize(
    ("turn", "mean", "low", "high"),
    [
        (0.0, 0, 0, 0),
        (0.01, 0.0, -0.476, 0.476),
        (0.3, 0.776, 0.025, 1.419),
        (0.6, 1.685, 0.811, 2.152),
        (0.85, 2.627, 2.376, 2.757),
        (1.0, 2.998, 2.998, 2.998),
    ],
)
def test_yaw_chatters_as_the_original(turn, mean, low, high):
    w = roll(np.zeros(3), np.zeros(3), np.array([0.0, turn]), 3000)[1][-1000:, 2]
    scale = 0.02 * max(high, 0.1)
    np.testing.assert_allclose([w.mean(), w.min(), w.max()], [mean, low, high], atol=scale)


def test_forward_speeds():
    joints = np.zeros((3, 3))
    action = np.array([[1.0, 0], [0.05, 0], [0.01, 0]])
    seen, v = [], np.zeros((3, 3))
    advance = jax.jit(point.advance_point)
    with jax.enable_x64(True):
        for _ in range(500):
            joints, v = advance(joints, v, action)
            seen.append(np.asarray(v[:, 0]))
    seen = np.array(seen)
    np.testing.assert_allclose(seen[[0, 9], 0], [0.05661, 0.47902], atol=1e-5)
    np.testing.assert_array_equal(seen[:, 0], seen[:, 1])
    np.testing.assert_allclose(seen[-1], [1.5, 1.5, 0.3], rtol=1e-3)


@pytest.mark.parametrize(("name", "height"), [("PointGoal1", 0.0999564), ("PointPush1", 0.1999913)])
def test_objects_settle_where_the_original_does(name, height):
    table = settling_table(SCENES[name])
    np.testing.assert_allclose(table[-1, 0], [height, 0, 0], atol=1e-7)
    assert np.abs(table[-1, 0, 1:]).max() < 1e-11
