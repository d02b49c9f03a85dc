"""The factor between predicted and realised cost changes."""

import jax.numpy as jnp
import numpy as np
import pytest

from cppo.algos.cppo import calibrate


def after(pairs):
    seen = calibrate.start(1)
    for predicted, realised in pairs:
        seen = calibrate.observe(seen, jnp.asarray([predicted]), jnp.asarray([realised]))
    return float(calibrate.factor(seen)[0])


def test_the_factor_is_the_slope():
    assert after([(1.0, 2.0), (-0.5, -1.0), (0.3, 0.6)]) == pytest.approx(2.0)


def test_it_never_widens_a_budget_and_stays_bounded():
    assert after([(1.0, 0.2)]) == 1.0
    assert after([(1.0, -3.0)]) == 1.0
    assert after([(0.1, 5.0)]) == calibrate.LARGEST


def test_nothing_predicted_yet_changes_nothing():
    assert after([]) == 1.0
    assert after([(np.nan, np.nan), (1.0, 2.0), (np.nan, 1.0)]) == pytest.approx(2.0)


def test_the_past_fades():
    assert after([(1.0, 3.0)] + [(1.0, 1.5)] * 200) == pytest.approx(1.5, rel=1e-3)
