"""Adam against Optax; critics fit what can be fitted."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cppo.maths import adam, critics, minibatch


def test_adam_equals_optax():
    params = {"w": jnp.asarray([1.0, -2.0])}
    gradients = [{"w": jnp.asarray(g)} for g in ([0.1, 3.0], [-0.2, 0.5], [0.4, -1.0])]
    memory, ours = adam.init(params), params
    optimiser = optax.adam(0.01)
    state, theirs = optimiser.init(params), params
    for gradient in gradients:
        ours, memory = adam.step(memory, ours, gradient, 0.01)
        change, state = optimiser.update(gradient, state)
        theirs = optax.apply_updates(theirs, change)
    np.testing.assert_allclose(ours["w"], theirs["w"], rtol=1e-5)


def test_forgetting_keeps_the_scale_alone():
    params = {"w": jnp.asarray([1.0])}
    _, memory = adam.step(adam.init(params), params, {"w": jnp.asarray([2.0])}, 0.1)
    forgot = adam.forget_direction(memory)
    assert forgot.mean["w"].tolist() == [0.0]
    assert float(forgot.mean_steps) == 0.0
    assert forgot.square["w"].tolist() == memory.square["w"].tolist()


def test_minibatches_are_disjoint():
    index = minibatch.shuffled(jax.random.PRNGKey(0), 103, 10)
    assert index.shape == (10, 10)
    assert len(set(index.ravel().tolist())) == 100


def test_minibatches_are_shuffled_anew_by_every_key():
    one, other = (minibatch.shuffled(jax.random.PRNGKey(seed), 1000, 10) for seed in (0, 1))
    for index in (one, other):
        assert 0.3 < np.mean(np.diff(index.ravel()) > 0) < 0.7
        assert abs(np.asarray(index).mean(axis=1) - 499.5).max() < 150
    assert np.mean(one == other) < 0.05


def test_critic_fits_a_line():
    obs = jax.random.normal(jax.random.PRNGKey(0), (512, 1))
    critic = critics.init({"a": jnp.zeros(()), "b": jnp.zeros(())})
    value = lambda p, o: p["a"] * o[0] + p["b"]  # noqa: E731
    critic, loss = critics.fit(
        value, critic, obs, 3 * obs[:, 0] - 1, jax.random.PRNGKey(1), rate=0.05, epochs=60, minibatches=4
    )
    assert float(loss) < 1e-3
    np.testing.assert_allclose([critic.params["a"], critic.params["b"]], [3.0, -1.0], atol=0.05)
