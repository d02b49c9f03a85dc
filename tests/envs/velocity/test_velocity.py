"""Safety Velocity: models, parity with the originals' recordings, resets, ends, resume, what is seen of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import build, keys_of, recording

from cppo import envs
from cppo.envs import replay
from cppo.envs.mujoco.precision import double_on_cpu
from cppo.envs.velocity import task
from cppo.envs.velocity.models import velocity_model
from cppo.envs.velocity.robots import VELOCITY
from cppo.envs.velocity.threads import draw, moved_of, stepper
from cppo.types import UsageError

# Recorded with scripts/record_velocity.py (safety-gymnasium 1.0.0, Gymnasium 0.28.1, MuJoCo 2.3.3).
NAMES = list(VELOCITY)
THRESHOLDS = dict(zip(NAMES, (3.2096, 0.7402, 0.2282, 2.3415, 2.6222, 1.4149), strict=True))
# Median, and greatest error of a step's positions (m, rad) and speeds: ten times what MuJoCo 3.17 gives on 1,000 rows.
# The Humanoid's solver (PGS, 50 iterations) stops before it has converged, elsewhere in either version.
ERRORS = dict.fromkeys(NAMES, (1e-12, 1e-11)) | {"AntVelocity": (1e-12, 1e-6), "HumanoidVelocity": (1e-6, 1e-3)}
UNUSED = {"Hopper": "jnt_pos", "Walker2d": "jnt_pos", "Swimmer": "geom_condim"}  # of slides; of a floor nobody touches
# Mean and standard error over 200 free episodes of the original (``--means``): return, cost, length.
UNIFORM = {
    "HopperVelocity": ((19.3230, 1.1575), (0.5000, 0.1646), (22.4200, 0.8736)),
    "Walker2dVelocity": ((2.7426, 0.4789), (0.0, 0.0), (20.7000, 0.6297)),
    "AntVelocity": ((-58.5494, 6.5830), (1.0200, 0.2005), (171.9600, 19.2519)),
    "HumanoidVelocity": ((123.9037, 2.5076), (0.0, 0.0), (24.6500, 0.4894)),
    "HalfCheetahVelocity": ((-283.9216, 5.3959), (0.0050, 0.0050), (1000.0, 0.0)),
    "SwimmerVelocity": ((0.3235, 0.7548), (247.5150, 2.4819), (1000.0, 0.0)),
}


@pytest.mark.parametrize("name", NAMES)
def test_compiled_models_are_the_originals(name):
    robot, data = VELOCITY[name], recording(name)
    model = velocity_model(robot)
    assert (model.nq, model.nv, model.nu) == (robot.positions, robot.velocities, robot.actuators)
    assert (model.opt.timestep, robot.substeps) == (data["model_timestep"], data["model_frames"])
    assert robot.timestep == model.opt.timestep
    for key in (key for key in data if key.startswith("model_")):
        part = key.removeprefix("model_")
        if part in ("timestep", "frames", UNUSED.get(robot.name)):
            continue
        np.testing.assert_allclose(getattr(model, part), data[key], rtol=1e-9, atol=1e-12, err_msg=part)
    np.testing.assert_array_equal(model.actuator_ctrlrange[:, 1], robot.spec.action.high)
    np.testing.assert_array_equal(model.actuator_ctrlrange[:, 0], robot.spec.action.low)
    assert robot.threshold == THRESHOLDS[name]


@pytest.mark.parametrize("name", NAMES)
def test_parity_with_the_original(name):
    data, (middle, greatest) = recording(name), ERRORS[name]
    given = replay(name, data, physics="recorded")
    assert data["cost"].sum() > 10 and (data["terminated"].sum() > 10 or VELOCITY[name].height is None)
    np.testing.assert_allclose(given["reward"], data["reward"], atol=1e-9)
    np.testing.assert_array_equal(given["obs"], data["obs"])
    step = replay(name, data)
    for seen in (given, step):
        np.testing.assert_array_equal(seen["cost"], data["cost"])
        np.testing.assert_array_equal(seen["terminated"], data["terminated"])
    for key in ("qpos_next", "qvel_next", "place_next", "reward"):
        error = np.abs(step[key] - data[key])
        assert np.median(error) <= middle and error.max() <= greatest, (key, np.median(error), error.max())
    error = np.abs(step["obs"] - data["obs"])
    assert np.median(error) <= middle and error.max() <= (0.5 if VELOCITY[name].rich else greatest)


@pytest.mark.parametrize("name", NAMES)
def test_first_observations_are_the_original_s(name):
    robot, data = VELOCITY[name], recording(name)
    with double_on_cpu():
        looked = stepper(robot, 1).look(data["first_qpos"], data["first_qvel"])
        seen = np.asarray(task.observe(robot, moved_of(robot, looked)))
    np.testing.assert_allclose(seen, data["first_obs"], atol=1e-9)
    np.testing.assert_allclose(looked.warm, data["first_warm"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_resets_have_the_original_s_noise(name):
    robot = VELOCITY[name]
    with double_on_cpu():
        _, qpos, qvel = map(np.asarray, draw(robot, keys_of(0, 400)))
    noise = qpos - velocity_model(robot).qpos0
    joints = noise[:, 7:] if robot.free else noise
    assert np.abs(joints).max() <= robot.noise
    np.testing.assert_allclose(joints.std(), robot.noise / np.sqrt(3), rtol=0.05)
    np.testing.assert_allclose(qvel.std(), robot.noise / (1 if robot.normal_speeds else np.sqrt(3)), rtol=0.05)
    assert (np.abs(qvel).max() > robot.noise) == robot.normal_speeds
    first = recording(name)["first_qpos"] - velocity_model(robot).qpos0
    assert np.abs(first[:, 7:] if robot.free else first).max() <= robot.noise
    if robot.free:
        np.testing.assert_allclose(np.linalg.norm(qpos[:, 3:7], axis=1), 1, rtol=1e-12)


def test_what_is_charged_and_what_ends_by_hand():
    hopper, ant = VELOCITY["HopperVelocity"], VELOCITY["AntVelocity"]
    qpos = np.zeros((5, 6))
    qpos[:, 1] = [1.2, 0.69, 1.2, 1.2, 1.2]
    qpos[2, 2], qpos[3, 4] = 0.21, 101.0
    after = hopper.duration * np.array([[0.7401, 9], [0.7403, 0], [-3.0, 0], [0, 0], [0, 0]])
    moved = task.Moved(*map(jnp.asarray, (qpos, np.full((5, 6), 20.0), after, qpos[:, :0])))
    advance = jax.jit(task.advance, static_argnums=0)
    seen = advance(hopper, jnp.zeros((5, 2)), moved, 2.0 * jnp.ones((5, 3)))
    np.testing.assert_array_equal(seen.cost[:, 0], [0, 1, 0, 0, 0])  # z and backwards do not count
    np.testing.assert_array_equal(seen.terminated, [False, True, True, True, False])
    np.testing.assert_allclose(seen.reward[0], 1 + 0.7401 - 0.001 * 12, rtol=1e-5)
    np.testing.assert_array_equal(seen.obs[:, 5:], 10.0)  # speeds are seen clipped
    pose = jnp.asarray(np.tile(velocity_model(ant).qpos0, (2, 1)))
    away = jnp.asarray(ant.duration * np.array([[-2.0, 2.0], [1.8, 1.8]]))
    seen = advance(ant, jnp.zeros((2, 2)), task.Moved(pose, pose[:, 1:], away, pose[:, :0]), jnp.zeros((2, 8)))
    np.testing.assert_array_equal(seen.cost[:, 0], [1, 0])  # any way counts


def test_episodes_end_and_begin_anew():
    env = build("HopperVelocity", 3)
    state, _ = env.init(keys_of(2, 3), np.array([999, 0, 0]))
    qpos = np.array(state.qpos)
    qpos[1, 1] = 0.5
    state, step = env.advance(state._replace(qpos=qpos), np.zeros((3, 3)))
    np.testing.assert_array_equal(step.terminated, [False, True, False])
    np.testing.assert_array_equal(step.truncated, [True, False, False])
    np.testing.assert_array_equal(state.age, [0, 0, 1])
    assert step.final_obs[1, 0] < 0.6 < 1.2 < step.obs[1, 0]
    np.testing.assert_array_equal(step.obs[2], step.final_obs[2])
    np.testing.assert_array_equal(state.place[:2], state.qpos[:2, :2])  # or the first speed would be one of the past


@pytest.mark.parametrize("name", ["AntVelocity", pytest.param("HumanoidVelocity", marks=pytest.mark.slow)])
def test_saved_state_goes_on_bit_for_bit(name):
    env = build(name, 3)
    actions = np.random.default_rng(0).uniform(-1, 1, (12, 3, env.spec.action.size))
    state, _ = env.init(keys_of(3, 3), np.array([0, 993, 0]))
    seen = []
    for t, action in enumerate(actions):
        if t == 6:
            saved = jax.tree.map(np.copy, state)
        state, step = env.advance(state, action)
        seen.append(step)
    assert any(step.truncated.any() for step in seen[6:])
    state, other = saved, build(name, 3)
    for action, before in zip(actions[6:], seen[6:], strict=True):
        state, step = other.advance(state, action)
        jax.tree.map(np.testing.assert_array_equal, step, before)


@pytest.mark.parametrize("name", NAMES)
def test_the_robot_is_in_the_picture_wherever_it_ran(name):
    env = build(name, 1)
    state, obs = env.init(keys_of(0, 1))
    view, (near, far) = envs.view(name), np.repeat(np.array(state.qpos)[None], 2, 0)
    near[0, 0], far[0, 0] = 0.1, 100.35
    near, away = (view.look(state._replace(qpos=qpos)) for qpos in (near, far))
    here = [shape["at"] for shape in near.values() if shape["kind"] == "limb" and shape["size"] > 0.03]
    assert len(here) == velocity_model(VELOCITY[name]).ngeom - 1
    assert np.abs(np.concatenate(here)).max() < view.reach
    for label, shape in near.items():
        moved = np.abs(shape["at"] - away[label]["at"])[0]
        mark = shape["kind"] == "limb" and shape["size"] < 0.03
        assert moved.max() == (pytest.approx(0.25) if mark else pytest.approx(0, abs=1e-9)), label
    drawn = view.above(120).draw(state, obs)
    assert drawn.shape == (120, 120, 3) and (drawn.std((0, 1)) > 5).all()


def test_the_field_s_names_are_known_and_what_is_missing_is_said():
    for name in NAMES:
        assert envs.named(f"Safety{name}-v1") == name
        assert envs.spec(f"Safety{name}-v1").cost_limits == (25.0,)
    assert "limit of 25." in str(envs.remark("SafetyAntVelocity-v1"))
    with pytest.raises(UsageError, match="no warm; HopperVelocity"):
        replay("HopperVelocity", {key: value for key, value in recording("HopperVelocity").items() if key != "warm"})


@pytest.mark.slow
@pytest.mark.parametrize("name", list(UNIFORM))
def test_a_random_policy_scores_as_on_the_original(name):
    """Two means agree within four standard errors of their difference."""
    env, rng = build(name, 200), np.random.default_rng(1)
    state, _ = env.init(keys_of(5, 200))
    total, alive = np.zeros((200, 3)), np.ones(200, bool)
    while alive.any():
        state, step = env.advance(state, rng.uniform(-1, 1, (200, env.spec.action.size)) * env.spec.action.high)
        total += alive[:, None] * np.stack([step.reward, step.cost[:, 0], np.ones(200)], 1)
        alive &= ~(step.terminated | step.truncated)
    for found, (mean, error) in zip(total.T, UNIFORM[name], strict=True):
        spread = np.hypot(error, found.std(ddof=1) / np.sqrt(200))
        assert abs(found.mean() - mean) <= 4 * spread + 1e-12, (found.mean(), mean, spread)
