"""PointCircle against the published test vector, and its batched form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cppo
from cppo.envs.point_circle import PointCircle, PointState, observe
from cppo.types import UsageError

# action, then x, y, heading, centre of mass x, reward; start (1, 14, heading 3)
VECTOR = [
    ((1.0, 0.25), (0.005870324, 13.891804865, 3.25, -0.036463182, 6.550450776)),
    ((1.0, 0.2), (-0.946947891, 13.588263353, 3.45, -0.987522211, 5.563599037)),
    ((0.8, -0.1), (-1.729637234, 13.422741775, 3.35, -1.771299283, 4.375877711)),
    ((-0.5, 0.25), (-1.281258025, 13.644001997, 3.6, -1.319445124, -2.788004913)),
]


def test_published_vector():
    state = PointState(jnp.asarray([1.0, 14.0]), jnp.asarray(3.0), jnp.zeros(3))
    for action, (x, y, heading, centre, reward) in VECTOR:
        state, seen = PointCircle().step(state, jnp.asarray(action), jax.random.PRNGKey(0))
        np.testing.assert_allclose(
            [*state.position, state.heading, seen.obs[6]], [x, y, heading, centre], rtol=2e-6, atol=2e-6
        )
        assert float(seen.reward) == pytest.approx(reward, rel=1e-5)
        assert float(seen.cost[0]) == 0.0


@pytest.mark.parametrize(("x", "cost"), [(2.49, 0.0), (2.51, 1.0), (-2.51, 1.0)])
def test_cost_counts_the_position_after_the_move(x, cost):
    state = PointState(jnp.asarray([x, 0.0]), jnp.asarray(0.0), jnp.zeros(3))
    _, seen = PointCircle().step(state, jnp.zeros(2), jax.random.PRNGKey(0))
    assert float(seen.cost[0]) == cost


def test_actions_are_clipped_and_the_arena_ends():
    state = PointState(jnp.asarray([39.8, 0.0]), jnp.asarray(0.0), jnp.zeros(3))
    moved, _ = PointCircle().step(state, jnp.asarray([7.0, -3.0]), jax.random.PRNGKey(0))
    assert float(moved.heading) == pytest.approx(-0.25)
    assert float(moved.position[0]) == 40.0


def test_reset_statistics():
    states, obs = jax.vmap(PointCircle().reset)(jax.random.split(jax.random.PRNGKey(0), 20_000))
    np.testing.assert_allclose(jnp.std(states.position, axis=0), 0.01, rtol=0.03)
    np.testing.assert_allclose(jnp.std(states.velocity, axis=0), 0.1, rtol=0.03)
    np.testing.assert_allclose(obs[:, 8], 0.5)
    np.testing.assert_allclose(obs[0], observe(jax.tree.map(lambda x: x[0], states)), rtol=1e-6)


def test_fifty_steps_then_a_fresh_episode_with_the_final_observation_kept():
    env = cppo.envs.make("PointCircle", num_envs=3)
    first = env.reset(seed=0)
    actions = np.tile([1.0, 0.0], (3, 1))
    for t in range(50):
        step = env.step(actions)
        assert step.truncated.all() == (t == 49)
    np.testing.assert_allclose(step.final_obs[:, 0], 40.0)
    assert (np.abs(step.obs[:, 0]) < 0.1).all()
    assert not step.terminated.any()
    np.testing.assert_array_equal(first, env.reset(seed=0))


def test_one_world_does_not_depend_on_its_neighbours():
    core = cppo.envs.build("PointCircle", 4)
    keys = jax.random.split(jax.random.PRNGKey(3), 4)
    state, _ = core.init(keys)
    single = cppo.envs.build("PointCircle", 1)
    alone, _ = single.init(keys[2:3])
    for t in range(60):
        action = jnp.full((4, 2), 0.1 * np.sin(t))
        state, step = core.advance(state, action)
        alone, lone_step = single.advance(alone, action[:1])
        np.testing.assert_allclose(step.obs[2], lone_step.obs[0], atol=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cppo.envs.make("PointCircel"), "Did you mean 'PointCircle'"),
        (lambda: cppo.envs.make("PointCircle", backend="warp"), "use one of: jax"),
        (lambda: cppo.envs.make("PointCircle", backend="gpu"), "unknown backend"),
        (lambda: cppo.envs.make("PointCircle", num_envs=0), "at least 1"),
        (lambda: cppo.envs.make("PointCircle").step(np.zeros((1, 2))), "reset"),
    ],
)
def test_bad_requests_are_explained(call, words):
    with pytest.raises(UsageError, match=words):
        call()


@pytest.mark.parametrize("actions", [np.zeros((2, 2)), np.full((1, 2), np.nan)])
def test_bad_actions_are_refused(actions):
    env = cppo.envs.make("PointCircle")
    env.reset(seed=0)
    with pytest.raises(UsageError, match="actions"):
        env.step(actions)
