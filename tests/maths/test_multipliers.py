"""Multiplier rules against hand arithmetic."""

import jax.numpy as jnp
import numpy as np
import pytest

from cppo.algos.ppo import PPOLagSettings
from cppo.maths import multipliers
from cppo.maths.multipliers import LAGRANGIAN, NONE, PID, Ascent, Control
from cppo.types import UsageError

LIMIT = jnp.array([25.0, 5.0])


def follow(rule, settings, costs):
    """λ after each batch."""
    state, values = rule.init(settings, 2), []
    for cost in costs:
        state = rule.update(settings, state, jnp.array(cost), LIMIT)
        values.append(np.asarray(state.value))
    return np.array(values)


def test_ascent_follows_the_violation_of_each_constraint():
    values = follow(LAGRANGIAN, Ascent(multiplier_rate=0.05, multiplier_start=0.5), [(45, 5), (15, 7), (0, 0), (0, 0)])
    expected = [
        [0.5 + 0.05 * 20, 0.5],  # 1.5
        [1.5 - 0.05 * 10, 0.5 + 0.05 * 2],  # 1.0, 0.6
        [0.0, 0.6 - 0.05 * 5],  # 1.0 − 1.25 is projected
        [0.0, 0.1],
    ]
    np.testing.assert_allclose(values, expected, atol=1e-6)


def test_no_rule_has_a_cap():
    for rule, settings in ((LAGRANGIAN, Ascent()), (PID, Control())):
        assert follow(rule, settings, [(1025.0, 5.0)] * 40)[-1, 0] > 1000


def test_pid_is_the_three_terms():
    """K_P 0.1, K_I 0.05, K_D 0.2, no smoothing, start 0; constraint 1 by hand."""
    settings = Control(
        multiplier_proportional=0.1, multiplier_rate=0.05, multiplier_derivative=0.2, multiplier_smoothing=0.0
    )
    values = follow(PID, settings, [(35, 5), (30, 5), (45, 5), (5, 5)])[:, 0]
    expected = [
        0.1 * 10 + 0.5,  # the first batch has no derivative
        0.1 * 5 + 0.75,  # a fall is not rewarded
        0.1 * 20 + 1.75 + 0.2 * 15,
        0.0,  # −2 + 0.75 < 0
    ]
    np.testing.assert_allclose(values, expected, atol=1e-5)


def test_pid_smooths_what_noise_would_pass():
    settings = Control(
        multiplier_proportional=0.1, multiplier_rate=0.0, multiplier_derivative=0.2, multiplier_smoothing=0.75
    )
    values = follow(PID, settings, [(25, 5), (45, 5)])[:, 0]
    np.testing.assert_allclose(values, [0.0, 0.1 * 5 + 0.2 * 5], atol=1e-6)  # a quarter of the jump by 20


def test_pid_with_integral_alone_is_ascent():
    costs = [(35, 1), (30, 9), (0, 12), (50, 5), (20, 0)]
    alone = Control(multiplier_proportional=0.0, multiplier_derivative=0.0, multiplier_start=0.3)
    np.testing.assert_allclose(
        follow(PID, alone, costs), follow(LAGRANGIAN, Ascent(multiplier_start=0.3), costs), atol=1e-6
    )


def test_the_integral_does_not_wind_up_below_zero():
    settings = Control(multiplier_proportional=0.0, multiplier_derivative=0.0)
    values = follow(PID, settings, [(0, 0)] * 50 + [(45, 5)])
    np.testing.assert_allclose(values[-1, 0], 0.05 * 20, atol=1e-6)


def test_none_stays_at_zero_and_logs_nothing():
    state = NONE.update(None, NONE.init(None, 2), jnp.array([100.0, 100.0]), LIMIT)
    assert np.all(state.value == 0) and NONE.metrics(state) == {}
    assert LAGRANGIAN.metrics(LAGRANGIAN.init(Ascent(), 2))["multiplier"].shape == (2,)


def test_penalised_advantage():
    adv, cost_adv = jnp.array([1.0, -1.0]), jnp.array([[2.0, 0.0], [0.0, 4.0]])
    np.testing.assert_allclose(multipliers.penalised(adv, cost_adv, jnp.array([0.5, 1.5])), [0.0, -7 / 3], atol=1e-6)
    np.testing.assert_allclose(multipliers.penalised(adv, cost_adv, jnp.zeros(2)), adv)


def test_settings_refuse_nonsense():
    with pytest.raises(UsageError, match="multiplier_rate"):
        PPOLagSettings(multiplier_rate=-1.0)
