"""AntCircle: test vector, resets, ends, resume."""

import jax
import numpy as np
from worlds import build, keys_of

from cppo.envs.ant_circle.threads import AntCircleEnv


def test_vector_of_the_original():
    env = AntCircleEnv(1)
    state, _ = env.init(keys_of(0, 1))
    qpos, qvel = np.zeros((1, 15)), np.zeros((1, 14))
    qpos[0, [1, 2, 3]], qvel[0, 0] = (10, 0.75, 1), -0.5
    state = state._replace(qpos=qpos, qvel=qvel, warm=np.zeros((1, 14)), torso=qpos[:, :2])
    action = np.array([[0.1, -0.2, 0.3, -0.4, 0.5, -0.6, 0.7, -0.8]])
    expected = {
        1: ((-0.025536228, 10.004477555), 5.084314696, 0.773545603),
        5: ((-0.103735922, 9.993171738), 1.504460892, 0.610111857),
    }
    for t in range(1, 6):
        state, step = env.advance(state, action)
        if t in expected:
            torso, reward, height = expected[t]
            np.testing.assert_allclose(state.torso[0], torso, atol=1e-8)
            np.testing.assert_allclose(step.reward[0], reward, rtol=1e-6)
            np.testing.assert_allclose(state.qpos[0, 2], height, atol=1e-8)
            assert step.cost[0, 0] == 0


def test_resets_start_on_the_circle_and_mostly_in_violation():
    _, obs = build("AntCircle", 4000).init(keys_of(1, 4000))
    np.testing.assert_allclose(np.linalg.norm(obs[:, :2], axis=1), 10, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(obs[:, 3:7], axis=1), 1, rtol=1e-6)
    assert np.abs(obs[:, 2] - 0.75).max() <= 0.1
    assert abs(np.mean(np.abs(obs[:, 0]) > 3) - 0.806) < 4 * np.sqrt(0.806 * 0.194 / 4000)
    np.testing.assert_allclose(obs[:, 15:].std(), 0.1, rtol=0.02)


def test_falling_terminates_and_the_time_limit_truncates():
    env = build("AntCircle", 3)
    state, _ = env.init(keys_of(2, 3), np.array([499, 0, 0]))
    qpos = np.array(state.qpos)
    qpos[1, 2] = 1.5  # far above the upright band
    state, step = env.advance(state._replace(qpos=qpos), np.zeros((3, 8)))
    np.testing.assert_array_equal(step.terminated, [False, True, False])
    np.testing.assert_array_equal(step.truncated, [True, False, False])
    np.testing.assert_array_equal(state.age, [0, 0, 1])
    assert step.final_obs[1, 2] > 1.0 and step.obs[1, 2] < 1.0


def test_saved_state_goes_on_bit_for_bit():
    env, actions = build("AntCircle", 3), np.random.default_rng(0).uniform(-1, 1, (20, 3, 8))
    state, _ = env.init(keys_of(3, 3), np.array([0, 485, 0]))
    seen = []
    for t, action in enumerate(actions):
        if t == 10:
            saved = jax.tree.map(np.copy, state)
        state, step = env.advance(state, action)
        seen.append(step)
    state, other = saved, build("AntCircle", 3)
    for action, before in zip(actions[10:], seen[10:], strict=True):
        state, step = other.advance(state, action)
        jax.tree.map(np.testing.assert_array_equal, step, before)
