"""Multiplier rules against hand arithmetic."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cppo.algos.focops import FOCOPSSettings
from cppo.algos.ppo import PPOLagSettings
from cppo.algos.trpo import TRPOLagSettings
from cppo.maths import multipliers
from cppo.maths.multipliers import ASCENT, LAGRANGIAN, NONE, PID, Ascent, Control, Lagrangian
from cppo.runs import checkpoint
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
    values = follow(ASCENT, Ascent(multiplier_rate=0.05, multiplier_start=0.5), [(45, 5), (15, 7), (0, 0), (0, 0)])
    expected = [
        [0.5 + 0.05 * 20, 0.5],  # 1.5
        [1.5 - 0.05 * 10, 0.5 + 0.05 * 2],  # 1.0, 0.6
        [0.0, 0.6 - 0.05 * 5],  # 1.0 − 1.25 is projected
        [0.0, 0.1],
    ]
    np.testing.assert_allclose(values, expected, atol=1e-6)


def adam_by_hand(violations, rate, start):
    """λ of one constraint after each batch, in double precision: Kingma & Ba's algorithm 1 on −x Δ, λ = log(1 + eˣ)."""
    x, first, second, values = math.log(math.exp(start) - 1), 0.0, 0.0, []
    for t, violation in enumerate(violations, start=1):
        gradient = -violation
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        x -= rate * (first / (1 - 0.9**t)) / (math.sqrt(second / (1 - 0.999**t)) + 1e-8)
        values.append(math.log(1 + math.exp(x)))
    return values


def test_lagrangian_is_softplus_of_a_number_that_adam_moves():
    costs = [(90, 5), (80, 7), (30, 0), (20, 0), (0, 12), (26, 5.5), (25, 5)]
    for rate, start in ((0.05, 1.0), (0.3, 0.02), (1.0, 6.0)):
        values = follow(LAGRANGIAN, Lagrangian(multiplier_rate=rate, multiplier_start=start), costs)
        for i, limit in enumerate((25, 5)):
            expected = adam_by_hand([cost[i] - limit for cost in costs], rate, start)
            np.testing.assert_allclose(values[:, i], expected, rtol=2e-5)


def test_lagrangian_by_hand():
    """Adam's first step is the rate, whatever the violation's size: x from log(e − 1) = 0.541325 by ± 0.05."""
    expected = [math.log(1 + (math.e - 1) * math.exp(0.05)), math.log(1 + (math.e - 1) * math.exp(-0.05))]
    np.testing.assert_allclose(expected, [1.0319, 0.9687], atol=1e-4)
    for scale in (1.0, 1000.0):
        cost = (25 + 2 * scale, 5 - 0.001 * scale)
        np.testing.assert_allclose(follow(LAGRANGIAN, Lagrangian(), [cost])[0], expected, rtol=1e-5)
    # At the limit nothing moves, and under a constant violation x moves by the rate in every batch.
    values = follow(LAGRANGIAN, Lagrangian(), [(90, 5)] * 100)
    np.testing.assert_allclose(values[:, 1], 1.0, rtol=1e-6)
    np.testing.assert_allclose(values[-1, 0], math.log(1 + (math.e - 1) * math.exp(5.0)), rtol=1e-4)


def test_lagrangian_starts_at_the_start():
    for start in (1e-6, 0.3, 1.0, 50.0, 1000.0):  # log(e^λ − 1) overflows above 88
        prices = LAGRANGIAN.init(Lagrangian(multiplier_start=start), 2)
        np.testing.assert_allclose(prices.value, start, rtol=1e-6)
        still = LAGRANGIAN.update(Lagrangian(multiplier_rate=0.0), prices, LIMIT + 1.0, LIMIT)
        np.testing.assert_allclose(still.value, start, rtol=1e-5)


def test_lagrangian_runs_seeds_and_settings_side_by_side():
    settings = Lagrangian(multiplier_rate=jnp.array([0.05, 0.3]), multiplier_start=jnp.array([1.0, 0.02]))
    prices = jax.vmap(lambda s: LAGRANGIAN.init(s, 2))(settings)
    for cost in [(90.0, 5.0), (20.0, 7.0)]:
        prices = jax.vmap(lambda s, p: LAGRANGIAN.update(s, p, jnp.array(cost), LIMIT))(settings, prices)  # noqa: B023
    for i, (rate, start) in enumerate(((0.05, 1.0), (0.3, 0.02))):
        alone = follow(LAGRANGIAN, Lagrangian(multiplier_rate=rate, multiplier_start=start), [(90, 5), (20, 7)])
        np.testing.assert_allclose(prices.value[i], alone[-1], rtol=1e-5)


def test_a_checkpoint_keeps_what_the_lagrangian_rule_remembers(tmp_path):
    settings = Lagrangian()
    prices = LAGRANGIAN.update(settings, LAGRANGIAN.init(settings, 2), jnp.array([90.0, 4.0]), LIMIT)
    arrays, _ = checkpoint.load(checkpoint.save(tmp_path, 1, prices, {}))
    back = checkpoint.restore(arrays, like=LAGRANGIAN.init(settings, 2))
    for one, other in zip(jax.tree.leaves(prices), jax.tree.leaves(back), strict=True):
        np.testing.assert_array_equal(one, other)


def test_no_rule_has_a_cap():
    for rule, settings in ((ASCENT, Ascent()), (PID, Control())):
        assert follow(rule, settings, [(1025.0, 5.0)] * 40)[-1, 0] > 1000
    assert follow(LAGRANGIAN, Lagrangian(multiplier_rate=50.0), [(1025.0, 5.0)] * 40)[-1, 0] > 1000


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
        follow(PID, alone, costs), follow(ASCENT, Ascent(multiplier_start=0.3), costs), atol=1e-6
    )


def test_the_integral_does_not_wind_up_below_zero():
    settings = Control(multiplier_proportional=0.0, multiplier_derivative=0.0)
    values = follow(PID, settings, [(0, 0)] * 50 + [(45, 5)])
    np.testing.assert_allclose(values[-1, 0], 0.05 * 20, atol=1e-6)


def test_none_stays_at_zero_and_logs_nothing():
    state = NONE.update(None, NONE.init(None, 2), jnp.array([100.0, 100.0]), LIMIT)
    assert np.all(state.value == 0) and NONE.metrics(state) == {}
    for rule, settings in ((LAGRANGIAN, Lagrangian()), (ASCENT, Ascent())):
        assert rule.metrics(rule.init(settings, 2))["multiplier"].shape == (2,)


def test_penalised_advantage():
    adv, cost_adv = jnp.array([1.0, -1.0]), jnp.array([[2.0, 0.0], [0.0, 4.0]])
    np.testing.assert_allclose(multipliers.penalised(adv, cost_adv, jnp.array([0.5, 1.5])), [0.0, -7 / 3], atol=1e-6)
    np.testing.assert_allclose(multipliers.penalised(adv, cost_adv, jnp.zeros(2)), adv)


def test_the_lagrangian_price_is_in_deviations_of_the_advantage():
    """Σ (A/σ − λ A_c), as a direction: by hand σ = 2, and any unit of reward gives the same."""
    adv, cost_adv, price = jnp.array([2.0, -2.0]), jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([0.5, 1.5])
    expected = np.array([2 - 2 * 0.5, -2 - 2 * 1.5]) / (1 + 2.0)
    np.testing.assert_allclose(LAGRANGIAN.penalised(adv, cost_adv, price), expected, rtol=1e-6)
    np.testing.assert_allclose(LAGRANGIAN.penalised(20 * adv, cost_adv, price), 20 * expected, rtol=1e-6)
    for rule in (NONE, ASCENT, PID):
        np.testing.assert_allclose(rule.penalised(adv, cost_adv, price), multipliers.penalised(adv, cost_adv, price))


def test_settings_refuse_nonsense():
    with pytest.raises(UsageError, match="multiplier_rate"):
        PPOLagSettings(multiplier_rate=-1.0)
    for settings in (PPOLagSettings, TRPOLagSettings):
        assert settings().multiplier_start == 1.0 and settings().multiplier_rate == 0.05
        with pytest.raises(UsageError, match=r"multiplier_start is 0.0; it must be above 0\b.*every price but zero"):
            settings(multiplier_start=0.0)
    assert FOCOPSSettings().multiplier_start == 0.0  # projected ascent may start without a price
