"""The cost contract in numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

from cppo.maths import costs
from cppo.types import Episodes


def episodes(cost, discounted, length):
    return Episodes(
        jnp.zeros(()),
        jnp.asarray([cost]),
        jnp.asarray([discounted]),
        jnp.asarray(length),
        jnp.asarray(1),
        jnp.asarray(1),
    )


def test_episode_unit_is_room_per_step():
    assert float(costs.budget(jnp.asarray([25.0]), episodes(20.0, 3.0, 1000.0), 0.99, "episode")[0]) == pytest.approx(
        0.005
    )
    assert float(costs.budget(jnp.asarray([25.0]), episodes(35.0, 3.0, 1000.0), 0.99, "episode")[0]) == pytest.approx(
        -0.01
    )


def test_discounted_unit_agrees_where_cost_is_spread_evenly():
    # Cost c at every step: both units must ask for the same change of c.
    discount, length, per_step = 0.99, 50, 0.2
    annuity = (1 - discount**length) / (1 - discount)
    seen = episodes(per_step * length, per_step * annuity, float(length))
    got = costs.budget(jnp.asarray([5.0]), seen, discount, "discounted")
    np.testing.assert_allclose(got, costs.budget(jnp.asarray([5.0]), seen, discount, "episode"), rtol=1e-5)


@pytest.mark.parametrize("unit", costs.UNITS)
def test_no_cost_yet_gives_the_whole_limit(unit):
    got = float(costs.budget(jnp.asarray([5.0]), episodes(0.0, 0.0, 50.0), 0.99, unit)[0])
    assert got == pytest.approx(0.1, rel=1e-5)
