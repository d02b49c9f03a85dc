"""The ring of transitions, the critics' inputs and one temporal-difference step against hand arithmetic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo import envs
from cppo.maths import adam, first_order, q_critics
from cppo.maths import replay_buffer as replay
from cppo.types import Batch, UsageError


def batch(first: int, time: int = 2, worlds: int = 3) -> Batch:
    """Steps numbered from ``first``; the number is in every field."""
    number = jnp.arange(first, first + time * worlds, dtype=jnp.float32).reshape(time, worlds)
    flags = number % 2 == 0
    return Batch(
        number[..., None],
        number[..., None],
        number[..., None] + 0.5,
        number,
        number[..., None],
        flags,
        flags,
        number,
        None,
    )


def test_the_newest_steps_replace_the_oldest():
    ring = replay.empty(envs.spec("ProbeBox"), 8)
    ring = replay.add(ring, batch(0))
    assert ring.filled == 6
    ring = replay.add(ring, batch(6))
    assert ring.filled == 8 and ring.position == 4
    np.testing.assert_array_equal(ring.steps.reward, [8, 9, 10, 11, 4, 5, 6, 7])
    np.testing.assert_array_equal(ring.steps.obs[:, 0], ring.steps.reward)
    np.testing.assert_array_equal(ring.steps.next_obs[:, 0], ring.steps.reward + 0.5)
    np.testing.assert_array_equal(ring.steps.terminated, ring.steps.reward % 2 == 0)


def test_samples_are_whole_steps_that_were_added():
    ring = replay.add(replay.empty(envs.spec("ProbeBox"), 100), batch(10))
    drawn = replay.sample(ring, jax.random.PRNGKey(0), 200)
    assert set(np.asarray(drawn.reward).tolist()) == set(range(10, 16))
    np.testing.assert_array_equal(drawn.cost[:, 0], drawn.reward)


def test_a_batch_must_fit():
    with pytest.raises(UsageError, match="replay_size"):
        replay.add(replay.empty(envs.spec("ProbeBox"), 5), batch(0))


def test_critics_see_executed_actions():
    box, arms = envs.spec("ProbeBox"), envs.spec("ProbeDiscrete")
    np.testing.assert_array_equal(q_critics.pair(box, jnp.array([7.0]), jnp.array([1.5])), [7, 1])
    np.testing.assert_array_equal(q_critics.pair(arms, jnp.array([7.0]), jnp.array(2)), [7, 0, 0, 1, 0])


def test_temporal_difference_learns_the_discounted_sum():
    """One state, reward 1: Q = 1/(1 − γ) = 2 where it goes on, 1 where it ends."""
    critic = q_critics.init(jnp.zeros(2))
    inputs = jnp.eye(2)  # step 0 goes on to step 0, step 1 terminates
    following = jnp.stack([inputs[:1], inputs[:1]])
    step = jax.jit(
        lambda c: q_critics.td_step(
            jnp.dot,
            c,
            inputs,
            following,
            jnp.ones(2),
            jnp.array([False, True]),
            discount=0.5,
            rate=0.02,
            target_rate=0.2,
        )
    )
    for _ in range(600):
        critic, loss = step(critic)
    np.testing.assert_allclose(critic.params, [2.0, 1.0], atol=0.02)
    assert loss < 1e-3


def test_descent_stops_at_the_divergence_it_was_given():
    """Loss −p, divergence p²: the first step that finds p² > 0.01 is not taken."""
    done = first_order.descend(
        lambda p, index: -p,
        lambda p, index: jnp.full(index.shape, p**2),
        jnp.zeros(()),
        adam.init(jnp.zeros(())),
        jax.random.PRNGKey(0),
        first_order.Descent(kl=0.01, policy_rate=0.03, epochs=50, minibatches=2),
        samples=4,
    )
    assert done.stopped and done.epochs == 3
    np.testing.assert_allclose(done.params, 0.12, rtol=1e-4)  # one step of 0.03 beyond 0.09
