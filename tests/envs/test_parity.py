"""One step from every recorded state of the originals (safety-gymnasium 1.0.0 and gym's Ant, MuJoCo 2.3.3)."""

from functools import cache

import numpy as np
import pytest
from worlds import recording

from cppo.envs import replay
from cppo.envs.safety_gym.recordings import navigation_state
from cppo.envs.safety_gym.scenes import SCENES, Scene
from cppo.types import UsageError

NAMES = ["PointGoal1", "PointPush1", "CarPush1"]
# Modes that touch no object. PointPush1 and CarPush1 push the box towards the goal as well.
FREE = {
    "PointGoal1": ["random", "small", "seek_goal", "hazard"],
    "PointPush1": ["random", "small", "hazard"],
    "CarPush1": ["random", "small", "hazard"],
}
# Median and 95th percentile of one step that drives at the object, measured with MuJoCo 3.17 against 2.3.3, in m.
CONTACT = {"PointGoal1": (1.1e-16, 1.1e-4), "PointPush1": (9e-16, 1.7e-4), "CarPush1": (1.1e-4, 2e-3)}
EDGE = 1e-5  # m, thresholds are not compared nearer than this


@cache
def replayed(name: str, physics: str) -> dict[str, np.ndarray]:
    return replay(name, recording(name), "threads", physics)


def row_error(name: str, key: str, rows: np.ndarray) -> np.ndarray:
    error = np.abs(replayed(name, "simulated")[key] - recording(name)[key])[rows]
    return error.reshape(len(error), -1).max(1)


def thresholds_clear(name: str) -> np.ndarray:
    """Rows whose next state is not within 1e-5 m of a hazard's rim or of the goal distance."""
    data, scene = recording(name), SCENES[name]
    robot, box = positions(data, scene)
    rim = np.linalg.norm(data["hazards"][..., :2] - robot[:, None, :2], axis=-1) - scene.hazard_size
    reach = (robot - data["goal"])[:, :2] if scene.task == "goal" else box - data["goal"]
    return (np.abs(rim) > EDGE).all(1) & (np.abs(np.linalg.norm(reach, axis=1) - 0.3) > EDGE)


def positions(data: dict[str, np.ndarray], scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """Robot and free object after the recorded step, written without the code under test."""
    qpos = data["qpos_next"]
    if scene.robot.name == "car":
        return qpos[:, :3], qpos[:, 13:16]
    yaw = 2 * np.arctan2(data["agent_rot0"][:, 3], data["agent_rot0"][:, 0])
    x, y = qpos[:, 0], qpos[:, 1]
    offset = np.stack([np.cos(yaw) * x - np.sin(yaw) * y, np.sin(yaw) * x + np.cos(yaw) * y, 0 * x], -1)
    return data["agent_xy0"] + offset, qpos[:, 3:6]


@pytest.mark.parametrize("name", NAMES)
def test_task_is_exact_given_the_recorded_next_state(name):
    data, seen, clear = recording(name), replayed(name, "recorded"), thresholds_clear(name)
    lidar = SCENES[name].robot.observed
    assert clear.mean() > 0.99
    assert data["goal_met"].any() and data["cost"].any()
    np.testing.assert_allclose(seen["reward"][clear], data["reward"][clear], atol=1e-9)
    np.testing.assert_array_equal(seen["cost"][clear], data["cost"][clear])
    np.testing.assert_array_equal(seen["goal_met"][clear], data["goal_met"][clear])
    np.testing.assert_allclose(seen["obs"][clear, lidar:], data["obs"][clear, lidar:], atol=1e-9)


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name in NAMES for mode in FREE[name]])
def test_step_without_object_contact(name, mode):
    rows = recording(name)["mode"] == mode
    assert rows.sum() > 100
    for key in ("qpos_next", "qvel_next", "obs", "reward"):
        assert np.median(row_error(name, key, rows)) <= 1e-9, key


@pytest.mark.parametrize("name", NAMES)
def test_step_that_drives_at_the_object(name):
    rows = recording(name)["mode"] == "seek_object"
    median, tail = CONTACT[name]
    error = row_error(name, "qpos_next", rows)
    assert np.median(error) <= 3 * median
    assert np.quantile(error, 0.95) <= 3 * tail
    # Rewards are differences of distances between two such positions.
    assert np.quantile(row_error(name, "reward", rows), 0.95) <= 6 * tail


@pytest.mark.parametrize("name", ["PointGoal1", "PointPush1"])
def test_closed_form_steps_most_recorded_rows_and_is_exact(name):
    data = recording(name)
    state = navigation_state(SCENES[name], data)
    assert 0.3 < np.mean(~state.simulate) < 0.9
    assert row_error(name, "qpos_next", ~state.simulate).max() <= 1e-9
    assert row_error(name, "qvel_next", ~state.simulate).max() <= 1e-9
    assert row_error(name, "obs", ~state.simulate).max() <= 1e-9


def test_ant_circle():
    data = recording("AntCircle")
    task = replay("AntCircle", data, physics="recorded")
    np.testing.assert_allclose(task["reward"], data["reward"], atol=1e-9)
    np.testing.assert_array_equal(task["cost"], data["cost"])
    np.testing.assert_array_equal(task["terminated"], data["terminated"])
    step = replay("AntCircle", data)
    for mode in np.unique(data["mode"]):
        rows = data["mode"] == mode
        for key in ("qpos_next", "qvel_next", "xpos_next", "reward"):
            assert np.median(np.abs(step[key] - data[key])[rows]) <= 1e-9, (mode, key)
    assert np.quantile(np.abs(step["xpos_next"] - data["xpos_next"]), 0.99) <= 1e-9


def test_what_a_recording_lacks_is_named():
    data = recording("PointGoal1")
    with pytest.raises(UsageError, match="no warm, goal_next"):
        replay("PointGoal1", {key: value for key, value in data.items() if key not in ("warm", "goal_next")})
    with pytest.raises(UsageError, match=r"qpos has shape \(802, 10\); PointGoal2 needs \(802, 73\)"):
        replay("PointGoal2", data)


def test_unknown_names_and_backends_are_refused():
    with pytest.raises(UsageError, match="PointGoal1"):
        replay("PointGoal9", recording("PointGoal1"))
    with pytest.raises(UsageError, match="threads"):
        replay("PointGoal1", recording("PointGoal1"), backend="abacus")
    with pytest.raises(UsageError, match="recorded"):
        replay("PointGoal1", recording("PointGoal1"), physics="guessed")
