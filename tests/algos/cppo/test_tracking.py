"""The M-step: its loss, its projection, its way-points, and that it stays inside the trust region."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.algos.cppo import tracking
from cppo.maths import adam
from cppo.maths.distributions import Gaussian


def test_gradient_survives_below_the_clip_only_upwards():
    ratio = jnp.asarray([0.4, 0.4, 0.9])
    gradient = jax.grad(lambda r: tracking.clipped_tracking(jnp.asarray([0.5, -0.5, -0.5]), r, 0.6))(ratio)
    np.testing.assert_allclose(gradient, [-0.5 / 3, 0.0, 0.5 / 3], rtol=1e-6)


def test_projection_onto_one_and_two_cost_vectors():
    rng = np.random.default_rng(0)
    error, costs = rng.normal(size=50), rng.normal(size=(2, 50))
    both = tracking.project(jnp.asarray(error), jnp.asarray(costs), jnp.asarray([True, True]))
    coefficients = np.linalg.lstsq(costs.T, error, rcond=None)[0]
    np.testing.assert_allclose(both, coefficients @ costs, rtol=1e-3, atol=1e-4)
    one = tracking.project(jnp.asarray(error), jnp.asarray(costs), jnp.asarray([True, False]))
    np.testing.assert_allclose(one, error @ costs[0] / (costs[0] @ costs[0]) * costs[0], rtol=1e-3, atol=1e-4)
    none = tracking.project(jnp.asarray(error), jnp.zeros((2, 50)), jnp.asarray([True, True]))
    assert float(jnp.abs(none).max()) == 0.0


def test_the_target_in_force_is_always_ahead():
    targets = jnp.arange(1.0, 5.0)[:, None] * jnp.ones((4, 3))
    chosen = [float(tracking.waypoint(targets, jnp.asarray(covered))[0]) for covered in (0.0, 0.2, 0.3, 0.6, 0.9, 1.0)]
    assert chosen == [2.0, 2.0, 3.0, 4.0, 4.0, 4.0]
    assert float(tracking.waypoint(targets[:1], jnp.asarray(0.7))[0]) == 1.0


def run(rate, gain, kl_limit, recovering=False, seed=0, epochs=60, loss=tracking.l2_loss):
    """A linear Gaussian policy on random states, asked to follow random ratios."""
    rng = np.random.default_rng(seed)
    states = jnp.asarray(rng.normal(size=(400, 3)), jnp.float32)
    params = {"weight": jnp.zeros((3, 2)), "log_std": jnp.zeros(2)}
    policy = lambda p, s: Gaussian(s @ p["weight"], p["log_std"])  # noqa: E731
    actions = jax.vmap(lambda s, k: policy(params, s).sample(k))(
        states, jax.random.split(jax.random.PRNGKey(seed), 400)
    )
    old = jax.vmap(lambda s: policy(params, s))(states)
    direction = states[:, 0] * actions[:, 0]  # in the policy's tangent space
    direction = direction - direction.mean()
    target = 1 + direction * (0.05**0.5 / direction.std())
    return tracking.track(
        lambda p, i: jax.vmap(lambda s, a: policy(p, s).log_prob(a))(states[i], actions[i]),
        lambda p: jnp.mean(jax.vmap(lambda o, s: o.kl(policy(p, s)))(old, states)),
        params,
        adam.init(params),
        target[None],
        -target[None] + 1,
        jnp.asarray([recovering]),
        key=jax.random.PRNGKey(1),
        kl_limit=kl_limit,
        rate=rate,
        beta=0.3,
        gain=gain,
        lower_clip=0.6,
        scale=1.0,
        epochs=epochs,
        minibatches=4,
        loss=loss,
    ), target


def test_ratios_that_the_policy_can_express_are_followed():
    result, target = run(rate=1e-2, gain=1.0, kl_limit=0.1)
    before = float(jnp.linalg.norm(target - 1))
    assert float(jnp.linalg.norm(target - result.ratios)) < 0.5 * before
    assert float(result.kl) == pytest.approx(0.5 * 0.05, rel=0.4)  # KL ≈ Var/2


@pytest.mark.parametrize("rate", [1e-2, 1.0, 1e3, float("nan")])
@pytest.mark.parametrize("recovering", [False, True])
def test_the_trust_region_is_never_left(rate, recovering):
    result, _ = run(rate=rate, gain=5.0, kl_limit=0.02, recovering=recovering)
    assert float(result.kl) <= 0.02
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(result.params))


def test_a_rate_far_too_high_still_uses_the_trust_region():
    result, _ = run(rate=1.0, gain=5.0, kl_limit=0.02)
    assert float(result.kl) > 0.5 * 0.02
    assert float(result.scale) < 1.0


@pytest.mark.parametrize("lowest", [0.2, 0.5, 0.8])
def test_theorem_3_7_bounds_the_forward_kl(lowest):
    rng = np.random.default_rng(2)
    ratios = np.maximum(1 + 0.2 * rng.standard_t(4, size=100_000), lowest)
    ratios /= ratios.mean()
    assert -np.log(ratios).mean() <= -np.log(1 - ratios.var() / (2 * ratios.min())) + 1e-12


def test_kl_loss_by_hand():
    target, ratio = jnp.asarray([1.5, 0.5, -0.2, 1.0]), jnp.asarray([1.0, 2.0, 1.0, 0.5])
    same = lambda e: e  # noqa: E731
    # −mean(v log r) with the weight below 0 counted as 0; its derivative is −v/(n r).
    assert float(tracking.kl_loss(target, ratio, same, 0.6)) == pytest.approx(-np.log(2.0) * (0.5 - 1.0) / 4)
    gradient = jax.grad(lambda r: tracking.kl_loss(target, r, same, 0.6))(ratio)
    np.testing.assert_allclose(gradient, [-1.5 / 4, -0.25 / 4, 0.0, -2.0 / 4], rtol=1e-6)
    # In recovery the target's deviation is mixed, not the error: here it is halved.
    gradient = jax.grad(lambda r: tracking.kl_loss(target, r, lambda e: 0.5 * e, 0.6))(ratio)
    np.testing.assert_allclose(gradient, [-1.25 / 4, -0.375 / 4, -0.4 / 4, -2.0 / 4], rtol=1e-6)


def test_the_gradient_of_kl_loss_is_that_of_the_divergence():
    """Over all outcomes of a categorical π, drawn in proportion to it, −E[v log r] is KL(q‖π_θ) up to a constant."""
    counts, q = np.array([1, 2, 5]), jnp.asarray([0.3, 0.1, 0.6])
    outcome = np.repeat(np.arange(3), counts)
    old = jnp.asarray(counts / 8.0)
    logits = jnp.asarray([0.2, -0.4, 0.9])

    def by_samples(logits):
        ratio = (jax.nn.softmax(logits) / old)[outcome]
        return tracking.kl_loss((q / old)[outcome], ratio, lambda e: e, 0.6)

    divergence = lambda logits: jnp.sum(q * (jnp.log(q) - jax.nn.log_softmax(logits)))  # noqa: E731
    np.testing.assert_allclose(jax.grad(by_samples)(logits), jax.grad(divergence)(logits), rtol=1e-5)


def test_both_losses_move_the_first_step_alike():
    """At r = 1 their gradients in log r differ by the constant weight of 1 only."""
    target, start = jnp.asarray([1.4, 0.8, 0.9, 0.9]), jnp.ones(4)
    slopes = {
        name: np.asarray(jax.grad(lambda z, f=loss: f(target, jnp.exp(z), lambda e: e, 0.6))(jnp.log(start)))
        for name, loss in tracking.LOSSES.items()
    }
    np.testing.assert_allclose(slopes["kl"], slopes["l2"] - 1 / 4, rtol=1e-5)


def test_epochs_may_be_traced_and_show_the_path():
    ways = [run(rate=1e-2, gain=1.0, kl_limit=0.1, epochs=jnp.asarray(k))[0] for k in (0, 3, 60)]
    kl = [float(way.kl) for way in ways]
    assert kl[0] == 0.0 and kl[0] < kl[1] < kl[2]
    np.testing.assert_array_equal(ways[0].ratios, 1.0)
    np.testing.assert_allclose(ways[2].ratios, run(rate=1e-2, gain=1.0, kl_limit=0.1)[0].ratios, rtol=1e-5)


def test_each_loss_ends_best_by_its_own_measure():
    found = {name: run(rate=1e-2, gain=1.0, kl_limit=0.1, loss=loss) for name, loss in tracking.LOSSES.items()}
    target = found["l2"][1]
    distance = {name: float(jnp.linalg.norm(target - result.ratios)) for name, (result, _) in found.items()}
    gained = {name: float(jnp.mean(target * jnp.log(result.ratios))) for name, (result, _) in found.items()}
    assert distance["l2"] < distance["kl"] < float(jnp.linalg.norm(target - 1))
    assert gained["kl"] > gained["l2"] > 0.0
