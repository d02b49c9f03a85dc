"""Feedback on a plant that answers like training does: slowly, with noise, and at a share that nobody told it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.maths import steering


def drive(holding: float, noise: float, start: float, seed: int = 0, updates: int = 500) -> tuple[np.ndarray, ...]:
    """J_c falls by 0.4 an update for each unit of the share asked for above ``holding``, and rises below it."""
    wanted, rate, tilt = jnp.array([24.0]), 0.04, 0.95

    def one(carry, key):
        cost, pressure = carry
        missed = steering.miss(jnp.maximum(cost + noise * jax.random.normal(key, (1,)), 0.0), wanted)
        pressure = steering.pressure(pressure, missed, rate, tilt)
        asked = steering.asked(pressure, missed, tilt)
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


def test_the_proportional_part_is_what_damps(monkeypatch):
    damped, _, _ = drive(0.6, noise=0.0, start=50.0)
    monkeypatch.setattr(steering, "DAMPING", 0.0)
    swinging, _, _ = drive(0.6, noise=0.0, start=50.0)
    assert np.abs(damped[350:] - 24.0).max() < 1.0 and np.abs(swinging[350:] - 24.0).max() > 4.0


def test_pressure_does_not_wind_up_while_a_limit_is_out_of_reach():
    """A plant that rises whatever is asked, then yields: the share is below its bound again a few updates later."""
    up, down = (steering.miss(jnp.array([x]), jnp.array([24.0])) for x in (90.0, 12.0))
    pressure = jnp.zeros(1)
    for _ in range(1000):
        pressure = steering.pressure(pressure, up, 0.04, 0.95)
    assert float(pressure[0]) == pytest.approx(0.95)
    for _ in range(10):
        pressure = steering.pressure(pressure, down, 0.04, 0.95)
    assert float(pressure[0]) == pytest.approx(0.95 - 10 * 0.04 * 0.5)
