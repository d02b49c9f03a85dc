"""Button: parity with recordings, presses, the timer, wrong buttons, gremlins that run and can be touched, resume."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import build, keys_of, recording

from cppo import envs
from cppo.envs import replay
from cppo.envs.safety_gym import button, navigation
from cppo.envs.safety_gym.scenes import SCENES

RECORDED = ["PointButton1", "CarButton2"]


@pytest.mark.parametrize("name", RECORDED)
def test_parity_with_the_original(name):
    data, lidar = recording(name), SCENES[name].robot.observed
    given = replay(name, data, physics="recorded")
    np.testing.assert_allclose(given["reward"], data["reward"], atol=1e-9)
    np.testing.assert_array_equal(given["cost"], data["cost"])
    np.testing.assert_array_equal(given["goal_met"], data["goal_met"])
    np.testing.assert_allclose(given["obs"][:, lidar:], data["obs"][:, lidar:], atol=1e-9)
    step = replay(name, data)
    np.testing.assert_array_equal(step["cost"], data["cost"])
    np.testing.assert_array_equal(step["goal_met"], data["goal_met"])
    robot = SCENES[name].robot.positions
    error = np.abs(step["qpos_next"] - data["qpos_next"])
    assert np.median(error[:, :robot].max(1)) <= 1e-9 and np.median(error[:, robot:].max(1)) <= 1e-9
    touched = data["mode"] == "button"
    assert np.quantile(error[touched][:, :robot].max(1), 0.9) <= 6e-3


def test_recordings_touch_everything():
    for name in RECORDED:
        data = recording(name)
        assert data["goal_met"].sum() >= 2 and (data["timer"] > 0).any()
        for what in ("hazards", "gremlins", "buttons"):
            assert data[f"cost_{what}"].sum() >= 5, (name, what)


def begun(name="PointButton1", worlds=3):
    env = build(name, worlds)
    state, obs = env.init(keys_of(0, worlds))
    return env, jax.tree.map(np.array, state), obs


def test_gremlins_run_in_step_along_their_circles():
    env, state, _ = begun()
    start = state.task.pressing.gremlins[:, :, :2]
    objects = lambda state: state.physics.qpos[:, 3:].reshape(3, 4, 7)  # noqa: E731
    np.testing.assert_allclose(objects(state)[..., :2], start)
    for _ in range(40):
        state, _ = env.advance(state, np.zeros((3, 2)))
    late = state.task.pressing.clock[:, None, None] - 0.05  # the weld lags behind
    np.testing.assert_allclose(state.task.pressing.clock, 0.8)
    circle = 0.35 * np.concatenate([np.sin(late), np.cos(late)], -1)
    np.testing.assert_allclose(objects(state)[..., :2], start + circle, atol=0.02)
    np.testing.assert_allclose(objects(state)[..., 2], 0.2, atol=0.01)


def test_presses_timer_and_wrong_buttons_by_hand():
    scene = SCENES["PointButton1"]
    sensors = np.zeros((4, scene.sensors), np.float32)
    sensors[0, 12 + 1] = sensors[1, 12 + 2] = sensors[2, 12 + 2] = 1  # buttons 1, 2, 2
    sensors[3, 12 + 4 + 3] = 1  # the last gremlin
    places = np.tile(np.array([[1.0, 0], [0, 1], [-1, 0], [0, -1]], np.float32), (4, 1, 1))
    wanted, timer = np.full(4, 1, np.int32), np.array([0, 0, 3, 3], np.int32)
    pressing = button.Pressing(places, wanted, timer, np.zeros((4, 4, 3), np.float32), np.zeros(4, np.float32))
    seen = navigation.Seen(np.zeros((4, 3)), np.tile(np.eye(3), (4, 1, 1)), np.full((4, 4, 3), 9.0), sensors)
    far, origin = np.full((4, 4, 2), 9.0, np.float32), np.tile(np.array([0, 1.0], np.float32), (4, 1))
    task = navigation.Task(origin, far, far[:, :0], np.tile([1.25, 0], (4, 1)), np.zeros((4, 4)), pressing)
    arguments = jax.tree.map(jnp.asarray, (task, seen, keys_of(0, 4), np.full(4, 7)))
    after, outcome = jax.jit(navigation.advance, static_argnums=0)(scene, *arguments)
    np.testing.assert_array_equal(outcome.goal_met, [True, False, False, False])
    np.testing.assert_array_equal(outcome.cost[:, 0], [0, 1, 0, 1])
    np.testing.assert_allclose(outcome.reward, [1.25, 0.25, 0.25, 0.25], rtol=1e-6)
    np.testing.assert_array_equal(after.pressing.timer, [10, 0, 2, 2])
    np.testing.assert_array_equal(after.pressing.wanted[1:], 1)
    np.testing.assert_allclose(after.goal, places[np.arange(4), after.pressing.wanted])
    lidar = np.asarray(outcome.obs)[:, 12:28]
    np.testing.assert_array_equal(lidar.any(1), [False, True, False, False])  # unseen while the timer runs


def test_every_button_is_drawn_alike():
    drawn = np.asarray(button.draw(jnp.asarray(keys_of(0, 2000)), jnp.arange(2000), 4))
    np.testing.assert_allclose(np.bincount(drawn) / 2000, 0.25, atol=4 * np.sqrt(0.25 * 0.75 / 2000))


def test_saved_state_goes_on_bit_for_bit():
    env, state, _ = begun("CarButton1", 2)
    actions = np.random.default_rng(0).uniform(-1, 1, (8, 2, 2))
    seen = []
    for t, action in enumerate(actions):
        if t == 4:
            saved = jax.tree.map(np.copy, state)
        state, step = env.advance(state, action)
        seen.append(step)
    state, other = saved, build("CarButton1", 2)
    for action, before in zip(actions[4:], seen[4:], strict=True):
        state, step = other.advance(state, action)
        jax.tree.map(np.testing.assert_array_equal, step, before)


def test_names_limits_and_what_is_seen():
    assert envs.named("SafetyCarButton1-v0") == "CarButton1"
    spec = envs.spec("SafetyCarButton1-v0")
    assert spec.cost_names == ("cost",) and spec.cost_limits == (25.0,)
    assert envs.backends("CarButton1") == ["threads"]
    _, state, obs = begun(worlds=1)
    view = envs.view("PointButton1")
    kinds = [shape["kind"] for shape in view.look(state).values()]
    counts = {"button": 4, "gremlin": 4, "hazard": 4, "goal": 1, "agent": 1}
    assert {kind: kinds.count(kind) for kind in set(kinds)} == counts
    picture = view.above(200).draw(state, np.asarray(obs[0]))
    for colour in ((240, 130, 20), (130, 40, 200)):
        assert (np.abs(picture.astype(int) - colour).sum(-1) < 20).sum() > 20
