"""The layout sampler: statistics of the original, hard constraints, reproducibility."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.envs.safety_gym import navigation
from cppo.envs.safety_gym.layouts import Asked, keepouts, sample_goals, sample_goals_at_once
from cppo.envs.safety_gym.scenes import SCENES
from cppo.envs.safety_gym.threads import SafetyGymEnv
from cppo.types import TrainingError

COUNT = 20_000
# Means and standard deviations over 20,000 resets of the original: robot-goal, nearest hazard to robot, nearest
# hazard to goal, robot-object, object-goal (m).
STATISTICS = {
    "PointGoal1": [(1.4105, 0.4627), (0.7514, 0.1542), (0.6909, 0.1900), (1.4156, 0.5436)],
    "PointPush1": [(1.4123, 0.4325), (1.1582, 0.2958), (1.2020, 0.3325), (1.4060, 0.5555), (1.4949, 0.5802)],
    "CarPush1": [(1.4125, 0.4334), (1.1541, 0.2902), (1.2044, 0.3308), (1.4151, 0.5853), (1.5016, 0.6070)],
}


@cache
def resets(name: str) -> dict[str, np.ndarray]:
    scene = SCENES[name]
    reset = jax.jit(lambda keys: navigation.reset(scene, keys, jnp.dtype(jnp.float64)))
    parts = []
    for keys in jax.random.split(jax.random.PRNGKey(1), COUNT).reshape(10, COUNT // 10, 2):
        with jax.enable_x64(True):
            _, start, task = jax.tree.map(np.asarray, reset(np.asarray(keys)))
        objects = start.qpos[:, scene.robot.positions :].reshape(len(keys), -1, 7)[..., :2]
        parts.append((task.start[:, None, :2], task.goal[:, None], task.hazards, task.pillars, objects))
    robot, goal, hazards, pillars, objects = (np.concatenate(part) for part in zip(*parts, strict=True))
    return {"robot": robot, "goal": goal, "hazards": hazards, "pillars": pillars, "objects": objects}


def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.norm(a - b, axis=-1).min(1)


@pytest.mark.parametrize("name", list(STATISTICS))
def test_statistics_of_the_original(name):
    world = resets(name)
    robot, goal, hazards, objects = (world[key] for key in ("robot", "goal", "hazards", "objects"))
    found = [
        apart(robot, goal),
        apart(robot, hazards),
        apart(goal, hazards),
        apart(robot, objects),
        apart(objects, goal),
    ]
    for values, (mean, deviation) in zip(found, STATISTICS[name], strict=False):
        standard_error = deviation * np.sqrt(2 / COUNT)  # both sides are samples of 20,000
        assert abs(values.mean() - mean) < 4 * standard_error
        assert abs(values.std() - deviation) < 4 * standard_error


@pytest.mark.parametrize("name", list(STATISTICS))
def test_every_reset_keeps_its_distances(name):
    scene, world = SCENES[name], resets(name)
    order = ("robot", "goal", "hazards", "pillars", "objects")
    everything = np.concatenate([world[key] for key in order], axis=1)
    radii = keepouts(scene)
    offset = everything[:, :, None] - everything[:, None]
    distance = np.linalg.norm(offset, axis=-1) + 1e3 * np.eye(len(radii))
    assert (distance >= radii[:, None] + radii[None] - 1e-12).all()
    assert (np.abs(everything) <= scene.half_extent - radii[None, :, None]).all()
    assert apart(world["robot"], world["goal"]).min() >= (0.705 if scene.task == "goal" else 0.8) - 1e-12


def test_a_key_gives_one_layout_whatever_its_neighbours():
    scene, keys = SCENES["PointGoal1"], np.asarray(jax.random.split(jax.random.PRNGKey(3), 8))
    reset = jax.jit(lambda keys: navigation.reset(scene, keys, jnp.dtype(jnp.float32)))
    whole, part = reset(keys), reset(keys[3:5])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[3:5], b, atol=1e-6), whole, part)
    assert not np.allclose(whole[2].goal[0], whole[2].goal[1])


def test_goal_without_a_place_is_reported():
    scene = replace(SCENES["PointGoal1"], half_extent=0.6)  # the robot in the middle leaves no room for a goal
    others = np.full((2, 10, 2), 9.0, np.float32)
    others[0, 0] = 0.0
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(0), 2))
    _, found = jax.jit(lambda k, o: sample_goals(scene, Asked(k, jnp.arange(2), o, jnp.ones(2, bool))))(keys, others)
    np.testing.assert_array_equal(found, [False, True])


@pytest.mark.parametrize("name", ["PointGoal1", "PointPush0"])
def test_goals_drawn_at_once_are_those_of_the_loop(name):
    """1 in 70 layouts of PointPush0 needs more than the draws that every world makes."""
    scene, keys = SCENES[name], jnp.asarray(keys_of(400))
    wanted, numbers = jnp.arange(400) % 5 > 0, jnp.arange(400)

    @jax.jit
    def both(keys):
        _, start, task = navigation.reset(scene, keys, jnp.dtype(jnp.float32))
        seen = navigation.look(scene, task.start, start.qpos, jnp.zeros((400, scene.sensors)))
        others = navigation._others(task, seen)
        early = sample_goals_at_once(scene, Asked(keys, numbers, others, jnp.zeros(400, bool)))[0]
        return [
            sample(scene, Asked(keys, numbers, others, wanted)) for sample in (sample_goals, sample_goals_at_once)
        ], early

    ((goals, found), (at_once, found_at_once)), early = both(keys)
    np.testing.assert_array_equal(found, found_at_once)
    np.testing.assert_allclose(goals[wanted], at_once[wanted], atol=1e-6)
    assert found.all() and (name == "PointGoal1" or not np.allclose(early[wanted], at_once[wanted]))


def test_goals_drawn_at_once_without_a_place():
    scene = replace(SCENES["PointGoal1"], half_extent=0.6)
    others = np.full((2, 10, 2), 9.0, np.float32)
    others[0, 0] = 0.0
    keys, numbers = jnp.asarray(keys_of(2)), jnp.arange(2)
    for wanted, expected in ([True, True], [False, True]), ([False, True], [True, True]):
        _, found = sample_goals_at_once(scene, Asked(keys, numbers, others, jnp.asarray(wanted)))
        np.testing.assert_array_equal(found, expected)


def test_scene_without_room_is_refused():
    scene = replace(SCENES["PointGoal1"], name="Crowded", half_extent=0.6)
    with pytest.raises(TrainingError, match="no layout found"):
        SafetyGymEnv(scene, 1).init(keys_of(1))


def keys_of(worlds):
    return np.asarray(jax.random.split(jax.random.PRNGKey(0), worlds))
