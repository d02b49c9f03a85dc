"""What updates are asked to do about their costs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.algos.cppo import budgets, estep
from cppo.types import Episodes

VARIANCE = 0.02
LIMIT = 25.0


def noise(n=4000, m=1, seed=0):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=n)), jnp.asarray(rng.normal(size=(m, n)))


def situation(cost_adv, cost, recovering, length=1000.0):
    cost = jnp.full(len(cost_adv), cost) if np.ndim(cost) == 0 else jnp.asarray(cost)
    number = jnp.asarray(1)
    episodes = Episodes(jnp.asarray(0.0), cost, cost, jnp.asarray(length), number, number)
    limit, flags = jnp.full(len(cost_adv), LIMIT), jnp.broadcast_to(jnp.asarray(recovering), (len(cost_adv),))
    return budgets.Situation(episodes, limit, cost, flags, cost_adv, VARIANCE)


def solved(rule, adv, cost_adv, cost, recovering, tilt=0.95):
    knobs = budgets.Knobs(tilt=tilt, slope=5.0, discount=0.99, unit="episode", exact=True)
    asked = budgets.RULES[rule](situation(cost_adv, cost, recovering), knobs)
    return estep.solve(adv, cost_adv, asked.budget, VARIANCE, asked.recovery)


@pytest.mark.parametrize("tilt", [0.5, 0.8, 0.95])
def test_recovery_ends_at_the_angle_whose_cosine_is_the_tilt(tilt):
    adv, cost_adv = noise()
    found = solved("shares", adv, cost_adv, 30.0, True, tilt)
    assert float(found.theta) == pytest.approx(np.arccos(-tilt), abs=1e-3)
    across = adv - cost_adv[0] * (adv @ cost_adv[0]) / (cost_adv[0] @ cost_adv[0])
    earned = float((found.ratios - 1) @ across) / float(jnp.linalg.norm(across) * np.sqrt(VARIANCE * adv.size))
    assert earned == pytest.approx(np.sqrt(1 - tilt**2), abs=5e-3)


@pytest.mark.parametrize("cost,share", [(15.0, None), (22.5, 0.5), (25.0, 0.0), (27.5, -0.5), (60.0, -0.95)])
def test_a_normal_update_asks_the_more_the_higher_the_cost(cost, share):
    rng = np.random.default_rng(1)
    adv, other = rng.normal(size=(2, 4000))
    cost_adv = jnp.asarray(2 * adv + other)[None]  # reward and cost go together, so that every budget binds
    found = solved("shares", jnp.asarray(adv), cost_adv, cost, False)
    most = float(budgets.reach(cost_adv, VARIANCE)[0])
    if share is None:  # free: the best for the reward, whatever it costs
        free = estep.solve(adv, cost_adv, 1e9, VARIANCE)
        np.testing.assert_allclose(found.ratios, free.ratios, atol=1e-5)
    else:
        assert float(found.cost_change[0]) == pytest.approx(share * most, abs=1e-3 * most)


def test_where_reward_and_cost_are_noise_the_printed_recovery_only_flees():
    adv, cost_adv = noise()
    fled = solved("printed", adv, cost_adv, 40.0, True)
    kept = solved("shares", adv, cost_adv, 40.0, True)
    radius = np.sqrt(VARIANCE * adv.size) * float(jnp.linalg.norm(adv))
    assert float(fled.theta) > 3.0 and abs(float((fled.ratios - 1) @ adv)) < 0.05 * radius
    assert float((kept.ratios - 1) @ adv) > 0.25 * radius
    assert float(kept.cost_change[0]) < 0.94 * float(fled.cost_change[0]) < 0


def test_a_printed_budget_is_met_by_noise_and_a_share_is_not():
    """A batch promises 40 times the room: the update with the printed budget hardly turns from the reward."""
    adv, cost_adv = noise()
    rest = 25.0 / 1000 - 1e-9
    promised = float(budgets.reach(cost_adv, VARIANCE)[0])
    assert promised > 5 * rest
    printed = solved("printed", adv, cost_adv, 27.0, False)
    asked = solved("shares", adv, cost_adv, 27.0, False)
    assert abs(float(printed.theta) - np.pi / 2) < 0.1 < float(asked.theta) - np.pi / 2


def test_the_reach_of_rare_costs_is_what_ratios_of_at_least_zero_leave():
    cost = np.zeros(2000)
    cost[:20] = 1.0
    cost_adv = jnp.asarray(cost - cost.mean())[None]
    unbounded = float(np.sqrt(VARIANCE) * cost_adv.std())
    found = float(budgets.reach(cost_adv, VARIANCE)[0])
    assert found == pytest.approx(0.01, rel=1e-3)  # all of it: no ratio of a costly sample is below 0
    assert found < 0.75 * unbounded
    flight = solved("shares", noise(2000)[0], cost_adv, 60.0, True)
    assert int(flight.status) == estep.Status.OPTIMAL  # what is asked for can be had


def test_several_falling_costs_share_one_step():
    adv, cost_adv = noise(m=3)
    found = solved("shares", adv, cost_adv, [30.0, 30.0, 10.0], [True, True, False])
    share = np.asarray(found.cost_change / budgets.reach(cost_adv, VARIANCE))
    np.testing.assert_allclose(share[:2], -0.95 / np.sqrt(2), atol=0.01)
    assert float((found.ratios - 1) @ adv) > 0
    alone = solved("shares", adv, cost_adv[:1], 30.0, True)
    assert float(alone.theta) == pytest.approx(np.arccos(-0.95), abs=1e-3)


def test_rules_run_inside_a_compiled_program():
    adv, cost_adv = noise()

    @jax.jit
    def run(cost):
        return solved("shares", adv, cost_adv, cost, False).theta

    assert float(run(25.0)) == pytest.approx(np.pi / 2, abs=0.03)
