"""What a whole update of CPPO asks of its E-step: radius, budget, batches of the past."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algos.one_update import HORIZON, advantages, draw, log_density, ratio, start
from algos.one_update import distributions as at

KEY = jax.random.PRNGKey(0)
KL = 0.002


@pytest.fixture(scope="module")
def case():
    """A limit of 5; steps so small that no ratio reaches its bound."""
    return start("cppo", kl=KL, budgets="printed", epochs=8, policy_rate=3e-3)


def test_the_radius_is_that_of_the_variance_that_the_kl_allows(case):
    """Far below the limit, v̄ is parallel to A with variance δ/(2 ln 2 − 1)."""
    batch = draw(case, 0.0)
    _, metrics = case.update(case.agent, batch, KEY)
    most = HORIZON * np.sqrt(KL / (2 * np.log(2) - 1)) * advantages(case, batch)[0].std()
    assert float(metrics["target_reward_change"]) == pytest.approx(most, rel=1e-4)


def test_the_printed_budget_is_the_room_under_the_limit(case):
    _, metrics = case.update(case.agent, draw(case, 4.9), KEY)
    assert float(metrics["target_cost_change"][0]) == pytest.approx(5.0 - 4.9, rel=1e-3)


def test_over_the_limit_an_update_asks_for_the_tilt_of_its_reach():
    case = start("cppo", kl=KL, tilt=0.8, epochs=8, policy_rate=3e-3)
    batch = draw(case, 5.25)
    _, metrics = case.update(case.agent, batch, KEY)
    most = HORIZON * np.sqrt(KL / (2 * np.log(2) - 1)) * advantages(case, batch)[1][0].std()
    assert bool(metrics["recovering"][0])
    assert float(metrics["target_cost_change"][0]) == pytest.approx(-0.8 * most, rel=1e-3)
    assert float(metrics["tilt"][0]) == pytest.approx(0.8, abs=1e-3)


def test_batches_of_the_past_enter_with_their_weights_and_centred():
    """The second update draws on both batches: A = w (A − mean A), less its mean, w = π/π_then within [½, 2]."""
    case = start(
        "cppo", reuse=2, kl=0.1, gain=2.0, epochs=8, policy_rate=0.05, cost_limit=(100.0,), normalise_obs=False
    )
    first = draw(case, 1.0, seed=1)
    agent, _ = case.update(case.agent, first, KEY)
    now = case._replace(agent=agent._replace(normaliser=case.agent.normaliser))  # critics see plain observations
    second = draw(now, 1.0, seed=2)
    after, metrics = case.update(now.agent, second, KEY)
    both = jax.tree.map(
        lambda a, b: jnp.concatenate([a, b], 1), second._replace(episodes=None), first._replace(episodes=None)
    )
    seen = log_density(at(now, agent.policy, both.obs), both.action)
    then = log_density(at(now, case.agent.policy, first.obs), first.action)
    then = jnp.concatenate([log_density(at(now, agent.policy, second.obs), second.action), then], 1)
    weight = np.clip(np.exp(seen - then), 0.5, 2.0)
    assert weight.max() > 1.3
    change = HORIZON * (np.asarray(ratio(now, after.policy, agent.policy, both)) - 1.0)
    assert abs(change.mean()) > 0.01
    adv, cost_adv = advantages(now, both)
    for told, plain in (("predicted_reward_change", adv), ("predicted_cost_change", cost_adv[0])):
        weighted = weight * plain
        expected = ((weighted - weighted.mean()) * change).mean()
        assert abs(((weighted * change).mean() - expected) / expected) > 0.01
        assert float(np.squeeze(metrics[told])) == pytest.approx(expected, rel=2e-3)
