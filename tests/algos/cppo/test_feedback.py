"""Feedback on a plant that answers like training does: slowly, with noise, and at a share that nobody told it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.algos import cppo
from cppo.algos.cppo import budgets, estep, feedback


def drive(holding: float, noise: float, start: float, seed: int = 0, updates: int = 500) -> tuple[np.ndarray, ...]:
    """J_c falls by 0.4 an update for each unit of the share asked for above ``holding``, and rises below it."""
    wanted, rate, tilt = jnp.array([24.0]), 0.04, 0.95

    def one(carry, key):
        cost, pressure = carry
        missed = feedback.miss(jnp.maximum(cost + noise * jax.random.normal(key, (1,)), 0.0), wanted)
        pressure = feedback.pressure(pressure, missed, rate, tilt)
        asked = feedback.asked(pressure, missed, tilt)
        cost = jnp.maximum(cost + 0.4 * (holding - jnp.maximum(asked, 0.0)), 0.0)
        return (cost, pressure), (cost[0], pressure[0], asked[0])

    first = (jnp.array([start]), jnp.zeros(1))
    _, seen = jax.lax.scan(one, first, jax.random.split(jax.random.PRNGKey(seed), updates))
    return tuple(np.asarray(x) for x in seen)


@pytest.mark.parametrize("holding", [0.3, 0.5, 0.7])
def test_feedback_finds_the_share_that_holds_the_limit(holding):
    cost, pressure, asked = drive(holding, noise=6.0, start=50.0)
    late = slice(250, None)
    assert abs(cost[late].mean() - 24.0) < 1.0
    assert abs(asked[late].mean() - holding) < 0.05
    assert pressure.max() <= 0.95 and pressure.min() >= 0.0


def test_noise_does_not_lift_the_mean_cost():
    """σ = 0.37, as on CarPush1: added up relative to max(J_c, d), the mean settles 1.4 above the limit. (The cut at 0.5
    itself is worth 0.4 here.)"""
    late = [drive(0.5, noise=9.0, start=30.0, seed=seed, updates=1500)[0][300:].mean() for seed in range(4)]
    assert abs(np.mean(late) - 24.0) < 0.6


def test_the_proportional_part_is_what_damps(monkeypatch):
    damped, _, _ = drive(0.6, noise=0.0, start=50.0)
    monkeypatch.setattr(feedback, "DAMPING", 0.0)
    swinging, _, _ = drive(0.6, noise=0.0, start=50.0)
    assert np.abs(damped[350:] - 24.0).max() < 1.0 and np.abs(swinging[350:] - 24.0).max() > 4.0


def test_pressure_does_not_wind_up_while_a_limit_is_out_of_reach():
    """A plant that rises whatever is asked, then yields: the share is below its bound again a few updates later."""
    up, down = (feedback.miss(jnp.array([x]), jnp.array([24.0])) for x in (90.0, 12.0))
    pressure = jnp.zeros(1)
    for _ in range(1000):
        pressure = feedback.pressure(pressure, up, 0.04, 0.95)
    assert float(pressure[0]) == pytest.approx(0.95)
    for _ in range(10):
        pressure = feedback.pressure(pressure, down, 0.04, 0.95)
    assert float(pressure[0]) == pytest.approx(0.95 - 10 * 0.04 * 0.5)


@pytest.mark.parametrize("share", [0.0005, 0.01, 0.2, 1.0])
def test_whatever_feedback_asks_for_can_be_met_and_leaves_room_to_earn(share):
    """Rare costs reach ratios of 0 long before the trust region's edge."""
    rng = np.random.default_rng(0)
    adv = jnp.asarray(rng.normal(size=20_000), jnp.float32)
    spread = rng.normal(size=20_000) if share == 1.0 else (rng.random(20_000) < share) * 1.0
    cost_adv = jnp.asarray(spread - spread.mean(), jnp.float32)[None]
    settings = cppo.CPPOSettings(kl=0.02)
    budget = -0.95 * budgets.reach(cost_adv, settings.kl / cppo.KL_TO_VARIANCE)
    found = estep.solve(adv, cost_adv, budget, settings.kl / cppo.KL_TO_VARIANCE)
    assert int(found.status) == estep.Status.OPTIMAL
    free = estep.solve(adv, cost_adv, jnp.array([1e9]), settings.kl / cppo.KL_TO_VARIANCE)
    assert float(found.reward_change) > 0.25 * float(free.reward_change)


def test_two_costs_at_right_angles_can_be_met_together():
    rng = np.random.default_rng(1)
    adv, *costs = (jnp.asarray(rng.normal(size=20_000), jnp.float32) for _ in range(3))
    cost_adv = jnp.stack(costs)
    settings = cppo.CPPOSettings(kl=0.02)
    asked = feedback.asked(jnp.array([0.95, 0.95]), jnp.zeros(2), 0.95)
    budget = -asked * budgets.reach(cost_adv, settings.kl / cppo.KL_TO_VARIANCE)
    found = estep.solve(adv, cost_adv, budget, settings.kl / cppo.KL_TO_VARIANCE)
    assert int(found.status) == estep.Status.OPTIMAL
    assert float(found.reward_change) > 0.0
