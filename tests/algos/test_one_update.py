"""What one update of each method does with a batch, against formulas written down a second time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from algos import one_update
from algos.one_update import HORIZON, advantages, distributions, draw, gaussian_kl, ratio, start
from jax.flatten_util import ravel_pytree

from cppo.algos import cpo, ctrpo, on_policy, p3o
from cppo.settings import replace

KEY = jax.random.PRNGKey(0)
STRONG = {"policy_rate": 0.03, "epochs": 10}


@pytest.mark.parametrize("name", ["ppo", "trpo", "cpo", "pcpo", "focops", "cppo", "p3o", "cup", "ctrpo"])
def test_an_update_reports_what_its_policy_does_and_keeps_its_limits(name):
    """KL(π‖π_θ) and promised changes, from the parameters before and after; the limits are those of a line search. The
    normaliser takes in what the update saw."""
    changes = STRONG if name in ("ppo", "focops", "cppo", "p3o", "cup") else {"damping": 1e-3}
    quick = {"exact": False} if name == "cppo" else {}  # to compile
    decays = {"discount": 0.9, "gae_decay": 0.8, "cost_discount": 0.7, "cost_gae_decay": 0.5}
    case, skew = start(name, costs=2, kl=0.3, **changes, **quick, **decays), []
    for cost in (4.0, -100.0):
        batch = draw(case, (cost, cost), ends=0.1)
        agent, metrics = case.update(case.agent, batch, KEY)
        assert_taken_in(agent, batch)
        before, after = (distributions(case, p, batch.obs) for p in (case.agent.policy, agent.policy))
        kl, reverse = (float(gaussian_kl(*pair).mean()) for pair in ((before, after), (after, before)))
        skew.append(abs(reverse / kl - 1.0))
        assert float(metrics["kl"]) == pytest.approx(kl, rel=1e-3)
        adv, cost_adv = advantages(case, batch)
        change = HORIZON * (np.asarray(ratio(case, agent.policy, case.agent.policy, batch)) - 1.0)
        promised = np.array([(adv * change).mean(), *(cost_adv * change).mean((1, 2))])
        told = [metrics["predicted_reward_change"], *metrics["predicted_cost_change"]]
        np.testing.assert_allclose(told, promised, rtol=2e-3, atol=2e-3)
        if name in ("trpo", "cpo", "pcpo", "cppo", "ctrpo"):
            assert kl <= 0.3 * (1 + 1e-4)
        if name in ("cpo", "pcpo", "ctrpo"):
            assert np.all(promised[1:] <= 5.0 - cost + 1e-3)
    assert max(skew) > 0.003  # or KL(π_θ‖π) would pass, too


def assert_taken_in(agent, batch):
    assert float(agent.normaliser.count) == batch.reward.size
    np.testing.assert_allclose(agent.normaliser.mean, batch.obs.mean((0, 1)), rtol=1e-4)


def descend(loss, params, steps, rate):
    """Adam on the whole batch."""
    optimiser, slope = optax.adam(rate), jax.jit(jax.grad(loss))
    state = optimiser.init(params)
    for _ in range(steps):
        change, state = optimiser.update(slope(params), state)
        params = optax.apply_updates(params, change)
    return params


def assert_same(ours, theirs):
    np.testing.assert_allclose(ravel_pytree(ours)[0], ravel_pytree(theirs)[0], rtol=5e-3, atol=5e-3)


def test_ppo_descends_on_the_clipped_surrogate():
    case = start("ppo", kl=1e6, clip=0.1, epochs=6, policy_rate=0.1)
    batch = draw(case, 0.0)
    adv = advantages(case, batch)[0]

    def loss(params):
        r = ratio(case, params, case.agent.policy, batch)
        return -jnp.mean(jnp.where(adv > 0, jnp.minimum(r, 1.1), jnp.maximum(r, 0.9)) * adv)

    agent, metrics = case.update(case.agent, batch, KEY)
    assert float(metrics["clip_share"]) > 0.3
    assert_same(agent.policy, descend(loss, case.agent.policy, 6, 0.1))


def test_focops_descends_on_the_divergence_to_its_best_policy():
    """KL(π_θ‖π) − ratio · (A − ν A_c)/λ, where KL(π_θ‖π) is within δ; ν stands still at 0.5."""
    case = start("focops", kl=1e6, epochs=6, policy_rate=0.1, multiplier_rate=0.0, multiplier_start=0.5)
    batch = draw(case, 0.0)
    adv, cost_adv = advantages(case, batch)
    mixed = adv - 0.5 * cost_adv[0]
    mixed = mixed / (1.5 * mixed.std())
    old = distributions(case, case.agent.policy, batch.obs)

    def loss(params):
        away = gaussian_kl(distributions(case, params, batch.obs), old)
        return jnp.mean(away - ratio(case, params, case.agent.policy, batch) * mixed)

    agent, _ = case.update(case.agent, batch, KEY)
    assert_same(agent.policy, descend(loss, case.agent.policy, 6, 0.1))


ROOM = 0.1 / HORIZON  # where J_c is 4.9
PENALTIES = {
    "p3o": ({"penalty": 3.0}, lambda x: 3.0 * jax.nn.relu(x - ROOM)),
    # After 100 of 300 updates κ is a third of the way from 1 to 7.
    "c3po": ({"penalty": 7.0, "penalty_start": 1.0}, lambda x: 3.0 * jax.nn.relu(x - 0.05 * ROOM)),
    # T times it is −log(d − J_c − T x)/t.
    "ipo": ({"penalty": 1e3, "barrier": 2.0}, lambda x: -jnp.log(0.1 - HORIZON * x) / (2.0 * HORIZON)),
}


@pytest.mark.parametrize("name", PENALTIES)
def test_ppo_with_a_penalty_descends_on_what_it_is_charged(name):
    changes, penalty = PENALTIES[name]
    case = start(name, kl=1e6, clip=0.1, epochs=4, policy_rate=0.02, **changes)
    case = case._replace(agent=case.agent._replace(extra=case.agent.extra._replace(updates=jnp.asarray(100))))
    batch = draw(case, 4.9)
    adv, (cost_adv,) = advantages(case, batch)

    def loss(params):
        r = ratio(case, params, case.agent.policy, batch)
        gain = jnp.where(adv > 0, jnp.minimum(r, 1.1), jnp.maximum(r, 0.9)) * adv
        # What lowers a cost counts no further than the clip, what raises it counts as it is.
        promised = jnp.where(cost_adv > 0, jnp.maximum(r, 0.9) - 1.0, jnp.minimum(r, 1.1) - 1.0) * cost_adv
        return adv.std() * penalty(promised.mean()) - gain.mean()

    agent, metrics = case.update(case.agent, batch, KEY)
    assert_same(agent.policy, descend(loss, case.agent.policy, 4, 0.02))
    assert int(agent.extra.updates) == 101
    assert float(metrics["multiplier"][0]) == pytest.approx(float(jax.grad(penalty)(0.0)), rel=1e-3)


def test_penalties_lead_back_from_beyond_the_limit():
    """Of an excess all is charged, at the slope κ: C3PO's share is of a room alone, IPO's barrier goes on straight."""
    now = p3o.Situation(jnp.array([-0.2]), jnp.asarray(20.0), jnp.asarray(10**6))
    change = jnp.array([0.3])
    for rule, chosen in ((p3o.exact, p3o.P3OSettings), (p3o.central, p3o.C3POSettings), (p3o.barrier, p3o.IPOSettings)):
        told = chosen(penalty=4.0)
        none = rule(told, jnp.zeros(1), now) if rule is p3o.barrier else 4.0 * 0.2
        charged = rule(told, change, now) - none
        np.testing.assert_allclose(charged, 4.0 * 0.3, rtol=1e-5)
        np.testing.assert_allclose(jax.jacobian(lambda x, r=rule, t=told: r(t, x, now))(change), [[4.0]], rtol=1e-5)


def test_cup_improves_and_then_projects():
    """Adam goes on from the first loss to the second; ν stands still at 0.5."""
    fixed = {"multiplier_rate": 0.0, "multiplier_start": 0.5}
    case = start("cup", kl=1e6, clip=0.1, epochs=3, policy_rate=0.05, cost_discount=0.9, cost_gae_decay=0.8, **fixed)
    batch = draw(case, 0.0, ends=0.1)
    adv, (cost_adv,) = advantages(case, batch)
    optimiser, params = optax.adam(0.05), case.agent.policy
    state = optimiser.init(params)

    def improve(params):
        r = ratio(case, params, case.agent.policy, batch)
        return -jnp.mean(jnp.where(adv > 0, jnp.minimum(r, 1.1), jnp.maximum(r, 0.9)) * adv)

    def project(params, half):
        away = gaussian_kl(distributions(case, params, batch.obs), half)
        return jnp.mean(away + 0.5 * (1 - 0.9 * 0.8) / 0.1 * ratio(case, params, case.agent.policy, batch) * cost_adv)

    improving, projecting = jax.jit(jax.grad(improve)), jax.jit(jax.grad(project))
    for step in range(6):
        if step == 3:
            half = distributions(case, params, batch.obs)
        slope = improving(params) if step < 3 else projecting(params, half)
        change, state = optimiser.update(slope, state)
        params = optax.apply_updates(params, change)
    assert_same(case.update(case.agent, batch, KEY)[0].policy, params)


@pytest.mark.parametrize(("own", "value", "cost"), [((), 0.8, 0.5), ((0.3,), 0.3, 0.3), ((0.3, 0.9), 0.3, 0.9)])
def test_critics_learn_from_a_decay_of_their_own(own, value, cost):
    decays = {"gae_decay": 0.8, "cost_gae_decay": 0.5}
    case = start("cppo", costs=2, target_decay=own, **decays)
    batch = draw(case, 0.0, ends=0.1)
    data = on_policy.prepare(case.networks, case.settings, case.agent, batch)
    adv, cost_adv = advantages(case, batch)
    np.testing.assert_allclose(data.adv, adv.reshape(-1), atol=1e-4)
    np.testing.assert_allclose(data.cost_adv, cost_adv.reshape(2, -1), atol=1e-4)
    other = case._replace(settings=replace(case.settings, {"gae_decay": value, "cost_gae_decay": cost}))
    error, cost_error = advantages(other, batch)
    now = jax.vmap(case.networks.value, (None, 0))
    cost_now = jax.vmap(now, (0, None))(case.agent.cost_value.params, data.critic_obs)
    missed = np.asarray(data.value_target - now(case.agent.value.params, data.critic_obs))
    np.testing.assert_allclose(missed - missed.mean(), error.reshape(-1), atol=1e-4)
    missed = np.asarray(data.cost_value_target - cost_now)
    np.testing.assert_allclose(missed - missed.mean(1, keepdims=True), cost_error.reshape(2, -1), atol=1e-4)


@pytest.fixture
def double_precision():
    with jax.enable_x64(True):
        yield


class Dense(NamedTuple):
    """Gradients of reward and cost and the damped Fisher matrix of a batch, written out."""

    g: np.ndarray
    b: np.ndarray
    H: np.ndarray
    flat: np.ndarray

    def moved(self, agent, metrics) -> np.ndarray:
        """The step before its line search, which in so small a ball does little."""
        assert 1 <= int(metrics["search_tries"]) <= 3 and bool(metrics["search_accepted"])
        return (np.asarray(ravel_pytree(agent.policy)[0]) - self.flat) / 0.8 ** (int(metrics["search_tries"]) - 1)


SMALL_BALL = {"dtype": jnp.float64, "kl": 1e-8, "damping": 0.1, "solver_iterations": 60}


def dense(case, batch) -> Dense:
    flat, as_tree = ravel_pytree(case.agent.policy)
    adv, cost_adv = advantages(case, batch)
    old = distributions(case, case.agent.policy, batch.obs)
    promised = lambda p: jnp.mean(ratio(case, as_tree(p), as_tree(flat), batch) * jnp.stack([adv, cost_adv[0]]), (1, 2))  # noqa: E731
    g, b = np.asarray(jax.jit(jax.jacrev(promised))(flat))
    away = lambda p: jnp.mean(gaussian_kl(old, distributions(case, as_tree(p), batch.obs)))  # noqa: E731
    H = np.asarray(jax.jit(jax.hessian(away))(flat)) + SMALL_BALL["damping"] * np.eye(flat.size)
    return Dense(g, b, H, np.asarray(flat))


def edge(gradient, metric) -> np.ndarray:
    """The step up ``gradient`` to the edge of the small ball."""
    natural = np.linalg.solve(metric, gradient)
    return natural * np.sqrt(2 * SMALL_BALL["kl"] / (gradient @ natural))


@pytest.mark.parametrize("projection", ["kl", "l2"])
def test_pcpo_s_step_is_that_of_dense_algebra(projection, double_precision):
    """x₀ − (bᵀx₀ − d')₊/(bᵀL⁻¹b) L⁻¹b, brought back to the ball where it lies outside; in so small a ball that all is
    linear."""
    case = start("pcpo", projection=projection, **SMALL_BALL)
    batch = draw(case, 0.0, dtype=jnp.float64)
    near = dense(case, batch)
    first, b = edge(near.g, near.H), near.b
    turned = np.linalg.solve(near.H, b) if projection == "kl" else b
    assert b @ first > 0
    far = -(b @ edge(-b, near.H))
    for budget in (2.0 * (b @ first), 0.5 * (b @ first), -10.0 * far):
        x = first - max(0.0, b @ first - budget) / (b @ turned) * turned
        x = x * min(1.0, np.sqrt(2 * SMALL_BALL["kl"] / (x @ near.H @ x)))
        told = batch._replace(episodes=one_update.episodes(5.0 - HORIZON * budget))
        moved = near.moved(*case.update(case.agent, told, KEY))
        np.testing.assert_allclose(moved, x, atol=2e-3 * np.abs(x).max())


@pytest.mark.parametrize("name", ["crpo", "ctrpo"])
def test_natural_steps_go_up_the_reward_or_down_the_cost(name, double_precision):
    """The nearer the limit, the more C-TRPO's metric minds the cost: H + β/(1 − γ_c) b bᵀ/d'."""
    case = start(name, **SMALL_BALL)
    batch = draw(case, 0.0, dtype=jnp.float64)
    near, up = dense(case, batch), jnp.array([True])
    for cost, flag, recovers in ((1.0, ~up, False), (4.9, ~up, False), (5.1, ~up, True), (4.9, up, name == "ctrpo")):
        told = batch._replace(episodes=one_update.episodes(cost))
        agent, metrics = case.update(case.agent._replace(extra=flag), told, KEY)
        weight = 100.0 * HORIZON / (5.0 - cost) if name == "ctrpo" and not recovers else 0.0
        x = edge(-near.b if recovers else near.g, near.H + weight * np.outer(near.b, near.b))
        np.testing.assert_allclose(near.moved(agent, metrics), x, atol=2e-3 * np.abs(x).max())
        assert bool(metrics["recovering"]) == bool(agent.extra[0]) == recovers


def test_no_policy_of_c_trpo_s_region_uses_up_the_room():
    room, told = jnp.array([0.5, 2.0]), ctrpo.CTRPOSettings(cost_discount=0.9)
    divergence = lambda *change: float(ctrpo.barrier(told, jnp.array(change), room))  # noqa: E731
    assert divergence(0.0, 0.0) == 0.0 and divergence(0.5, 0.0) == divergence(-1.0, 3.0) == np.inf
    bregman = lambda y, start: y * np.log(y / start) - y + start  # noqa: E731  (of y log y, at the room that is left)
    assert divergence(0.2, -1.0) == pytest.approx((bregman(0.3, 0.5) + bregman(3.0, 2.0)) / 0.1, rel=1e-4)


def test_crpo_descends_on_the_cost_that_is_furthest_over_its_limit():
    case = start("crpo", costs=2, tolerance=0.5)
    batch, falls = draw(case, (0.0, 0.0)), []
    for cost, recovers in (((5.4, 5.4), False), ((7.0, 5.6), True), ((5.6, 7.0), True)):
        told = batch._replace(episodes=one_update.episodes(cost))
        _, metrics = case.update(case.agent, told, KEY)
        assert bool(metrics["recovering"]) == recovers
        falls.append(np.asarray(metrics["predicted_cost_change"]))
    _, first, second = falls
    assert first[0] < min(second[0], 0.0) and second[1] < min(first[1], 0.0)


def test_cpo_s_budgets(double_precision):
    """With hysteresis all that the ball allows, from above the limit until h d; in shares m of that."""
    for name, cases in {
        "cpo_hyst": ((5.1, False, -1.0), (4.2, True, -1.0), (3.9, True, None), (4.2, False, None)),
        "cpo_shares": ((5.1, None, -0.1), (5.5, None, -0.5), (9.0, None, -0.95), (5.0, None, 0.0), (2.0, None, None)),
    }.items():
        case = start(name, **SMALL_BALL)
        batch = draw(case, 0.0, dtype=jnp.float64)
        near = dense(case, batch)
        reach = -(near.b @ edge(-near.b, near.H))
        for cost, flag, share in cases:
            memory = case.agent.extra if flag is None else jnp.array([flag])
            told = batch._replace(episodes=one_update.episodes(cost))
            agent, metrics = case.update(case.agent._replace(extra=memory), told, KEY)
            x = near.moved(agent, metrics)
            if share is None:
                np.testing.assert_allclose(x, edge(near.g, near.H), atol=2e-3 * np.abs(x).max())
            else:
                assert near.b @ x / reach == pytest.approx(share, abs=2e-3)
            if flag is not None:
                assert bool(agent.extra[0]) == (share is not None)


def test_cpo_s_shares_of_two_costs_are_each_capped_and_then_as_a_vector():
    settings = cpo.CPOSharesSettings(cost_limit=(5.0, 5.0), tilt=0.95)
    asked, _ = cpo.SHARES.asked(settings, (), one_update.episodes((9.0, 5.3)), jnp.array([2.0, 1.0]))
    each = np.array([-0.95, -0.3])  # 5 (d − J_c)/d, the first one capped
    np.testing.assert_allclose(asked, 0.95 * each / np.linalg.norm(each) * [2.0, 1.0], rtol=1e-5)


FIT = {"value_epochs": 150, "value_rate": 0.03, "hidden": (8,)}


def test_each_critic_learns_its_own_signal():
    case = start("ppo", costs=2, epochs=1, **FIT)
    batch = draw(case, (0.0, 0.0))
    same = jnp.ones_like(batch.reward)
    batch = batch._replace(reward=-3.0 * same, cost=jnp.stack([same, 2.0 * same], -1))
    agent, _ = case.update(case.agent, batch, KEY)
    obs = batch.obs.reshape(-1, 3)
    value = lambda params: np.mean(jax.vmap(case.networks.value, (None, 0))(params, obs))  # noqa: E731
    assert value(agent.value.params) == pytest.approx(-3.0, abs=0.2)
    found = [value(jax.tree.map(lambda x, i=i: x[i], agent.cost_value.params)) for i in range(2)]
    np.testing.assert_allclose(found, [1.0, 2.0], atol=0.2)


@pytest.mark.parametrize("clock", [True, False])
def test_critics_with_a_clock_tell_ages_apart(clock):
    """A reward that depends on the episode's age alone."""
    case = start("ppo", epochs=1, critic_clock=clock, **FIT)
    batch = draw(case, 0.0)
    batch = batch._replace(obs=jnp.ones_like(batch.obs), reward=3.0 * batch.age / HORIZON)
    _, metrics = case.update(case.agent, batch, KEY)
    left = float(metrics["value_loss"]) / float(batch.reward.var())
    assert left < 0.1 if clock else left > 0.9


def test_a_horizon_that_is_the_end_has_no_future():
    """Truncated batches are then what terminated ones are, to both kinds of critic."""
    case = start("ppo", epochs=1, horizon_is_end=True, cost_horizon_is_end=True, value_epochs=3)
    ended = draw(case, 0.0)
    cut = ended._replace(terminated=ended.truncated, truncated=ended.terminated)
    one, other = (case.update(case.agent, batch, KEY)[0] for batch in (ended, cut))
    jax.tree.map(np.testing.assert_array_equal, (one.value, one.cost_value), (other.value, other.cost_value))


def test_an_off_policy_update_takes_its_observations_into_the_normaliser():
    case = start("mpo")
    batch = draw(case, 0.0)
    assert_taken_in(case.update(case.agent, batch, KEY)[0], batch)
