"""Fisher-vector products, conjugate gradient and line search against dense algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from cppo import envs
from cppo.maths import surrogate, trust_region
from cppo.networks import Networks


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def tiny(env: str, seed: int = 0):
    """A tiny policy with samples of its own, flat parameters and the mean KL as their function."""
    networks = Networks(envs.spec(env), (3,), "tanh")
    policy_key, obs_key, act_key = jax.random.split(jax.random.PRNGKey(seed), 3)
    params = networks.init_policy(policy_key, 0.5)
    params = jax.tree.map(lambda p: jnp.asarray(p + 0.3 * jax.random.normal(act_key, p.shape), jnp.float64), params)
    obs = jax.random.normal(obs_key, (40, *networks.spec.obs_shape))
    action = jax.vmap(lambda o, k: networks.policy(params, o).sample(k))(obs, jax.random.split(act_key, 40))
    flat, as_tree = ravel_pytree(params)
    terms = surrogate.around(networks.policy, params, obs, action)
    return networks, obs, flat, as_tree, terms


def dense_fisher(networks, obs, flat, as_tree):
    """E_s E_a∼π [∇log π ∇log πᵀ], the expectation over actions in closed form: Jᵀ (Fisher of the head) J."""
    from cppo.maths.distributions import Gaussian

    def head(p, o):
        out = networks.policy(as_tree(p), o)
        return jnp.concatenate([out.mean, out.log_std]) if isinstance(out, Gaussian) else out.logits

    def at(o):
        jacobian = jax.jacfwd(head)(flat, o)
        out = networks.policy(as_tree(flat), o)
        if isinstance(out, Gaussian):
            inner = jnp.diag(jnp.concatenate([jnp.exp(-2 * out.log_std), jnp.full(out.mean.shape, 2.0)]))
        else:
            p = jax.nn.softmax(out.logits)
            inner = jnp.diag(p) - jnp.outer(p, p)
        return jacobian.T @ inner @ jacobian

    return jnp.mean(jax.jit(jax.vmap(at))(obs), axis=0)


@pytest.mark.parametrize("env", ["ProbeBox", "ProbeTwo", "ProbeDiscrete"])
def test_fisher_product_is_the_dense_fisher_matrix(env):
    networks, obs, flat, as_tree, terms = tiny(env)
    dense = dense_fisher(networks, obs, flat, as_tree)
    product = trust_region.fisher_product(lambda p: terms.mean_kl(as_tree(p)), flat, 0.1)
    columns = jax.jit(jax.vmap(product))(jnp.eye(flat.size))
    np.testing.assert_allclose(columns, dense + 0.1 * np.eye(flat.size), atol=1e-10)


def test_conjugate_gradient_is_a_direct_solve():
    networks, obs, flat, as_tree, terms = tiny("ProbeTwo")
    product = trust_region.fisher_product(lambda p: terms.mean_kl(as_tree(p)), flat, 0.1)
    b = jax.random.normal(jax.random.PRNGKey(1), flat.shape)
    matrix = dense_fisher(networks, obs, flat, as_tree) + 0.1 * jnp.eye(flat.size)
    found = trust_region.conjugate_gradient(product, b, iterations=50, tolerance=1e-10)
    np.testing.assert_allclose(found.x, jnp.linalg.solve(matrix, b), rtol=1e-7)
    assert found.residual < 1e-9
    few = trust_region.conjugate_gradient(product, b, iterations=2, tolerance=1e-10)
    assert few.iterations == 2
    np.testing.assert_allclose(few.residual, jnp.linalg.norm(b - matrix @ few.x) / jnp.linalg.norm(b), rtol=1e-6)


def test_conjugate_gradient_takes_the_steps_of_the_library_s():
    """The same iterates as ``jax.scipy``'s, which says nothing of how far it came."""
    root = np.random.default_rng(3).normal(size=(8, 8))
    matrix, b = jnp.asarray(root @ root.T + 0.1 * np.eye(8)), jnp.ones(8)
    for steps in (1, 3, 6):
        theirs, said = jax.scipy.sparse.linalg.cg(lambda x: matrix @ x, b, tol=0.0, maxiter=steps)
        found = trust_region.conjugate_gradient(lambda x: matrix @ x, b, iterations=steps, tolerance=0.0)
        assert found.x == pytest.approx(np.asarray(theirs), rel=1e-3, abs=1e-4) and said is None
        assert int(found.iterations) == steps


def test_conjugate_gradient_of_nothing_is_nothing():
    found = trust_region.conjugate_gradient(lambda x: 2.0 * x, jnp.zeros(3), iterations=10)
    assert np.all(found.x == 0) and found.iterations == 0 and found.residual == 0


@pytest.mark.parametrize(("bound", "length", "tries"), [(2.0, 1.0, 1), (0.3, 0.25, 3), (0.51, 0.5, 2)])
def test_line_search_takes_the_longest_acceptable_step(bound, length, tries):
    found = trust_region.backtrack(lambda p: p[0] <= bound, jnp.zeros(1), jnp.ones(1), shrink=0.5, tries=5)
    assert found.accepted and found.length == length and found.tries == tries and found.params[0] == length


def test_line_search_says_that_nothing_passed():
    for condition in (lambda p: p[0] < 0, lambda p: p[0] / 0.0 * 0.0 >= 0):  # the second compares a NaN
        found = trust_region.backtrack(condition, jnp.zeros(1), jnp.ones(1), shrink=0.5, tries=4)
        assert not found.accepted and found.length == 0 and found.tries == 4 and found.params[0] == 0


def test_surrogate_terms_at_the_old_policy_and_beside_it():
    networks, obs, flat, as_tree, terms = tiny("ProbeTwo")
    np.testing.assert_allclose(terms.ratio(as_tree(flat)), 1.0)
    np.testing.assert_allclose(terms.mean_kl(as_tree(flat)), 0.0, atol=1e-12)
    step = 1e-3 * jax.random.normal(jax.random.PRNGKey(2), flat.shape)
    quadratic = 0.5 * step @ dense_fisher(networks, obs, flat, as_tree) @ step
    for kl in (terms.kl, terms.reverse_kl):
        np.testing.assert_allclose(jnp.mean(kl(as_tree(flat + step))), quadratic, rtol=2e-2)
    some = jnp.array([3, 5])
    np.testing.assert_allclose(terms.ratio(as_tree(flat + step), some), terms.ratio(as_tree(flat + step))[some])
