"""What an update is asked to do about its costs: the budget d' of the E-step, by a rule passed in.

``printed`` is the paper's. The budget is the room under the limit, d − J_c, and recovery goes by the angle of A and A_c
on the batch (``estep.solve`` has its three cases).

``shares`` counts in the *reach*, the deepest fall that an update can promise on its batch (‖v̄‖ ≤ R, v ≥ 0). A batch of
30,000 steps knows in which direction cost falls, not by how much: on Safety Gym's tasks it promises a fall of 34 where
other batches of the same policy see half a unit, so any budget in units of cost is met by noise. The rule keeps the
paper's switch and recovery, and has no memory:

    normal      d' = m · reach,        m = slope · (d − J_c)/d,  kept between −tilt and 1
    recovery    d' = −tilt · reach

At the limit a normal update asks for no change of cost; with a slope of 5 a fifth below it nothing is asked; above it,
until the switch takes over, more and more. A lower slope lets the cost rise less quickly, and keeps it further below.
Without a bound on v, θ = arccos(d'/reach): a tilt of 0.95 ends at 162°, where a third of the step's length still
belongs to the reward. Where A and A_c are two noise vectors at right angles, the printed recovery is flight from cost
alone (θ near π), and a policy that only flees learns to stand still.

Several falling costs share one step: their shares keep to ``tilt`` as a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from cppo.algos.cppo import estep
from cppo.maths import costs
from cppo.maths.shares import normal_share, together
from cppo.types import Episodes

Costs = Float[Array, " constraint"]


class Situation(NamedTuple):
    """All that a rule may look at."""

    episodes: Episodes
    limit: Costs
    watched: Costs  # the J_c that the switch looks at
    recovering: Bool[Array, " constraint"]
    cost_adv: Float[Array, "constraint n"]
    variance: Array | float  # δ' of the E-step


class Asked(NamedTuple):
    """What the E-step is to keep to."""

    budget: Costs  # d', in units of E[(v − 1) A_c]
    recovery: Bool[Array, " constraint"]  # solve the paper's recovery problem
    reach: Costs | None = None  # where the rule counts in it


class Knobs(NamedTuple):
    """The settings that rules read."""

    tilt: Array | float
    slope: Array | float
    discount: Array | float
    unit: str
    exact: bool


Rule = Callable[[Situation, Knobs], Asked]


def room(limit: Costs, episodes: Episodes, discount: Array | float, unit: str) -> Costs:
    """How far each cost may rise within its limit, in units of E[(v − 1) A_c]."""
    return costs.budget(limit, episodes, discount, unit)


def printed(now: Situation, knobs: Knobs) -> Asked:
    """The room there is, and recovery by the geometry of the batch."""
    return Asked(room(now.limit, now.episodes, knobs.discount, knobs.unit), now.recovering)


def shares(now: Situation, knobs: Knobs) -> Asked:
    """By the distance from the limit; in recovery all of ``tilt``."""
    share = jnp.where(now.recovering, -knobs.tilt, normal_share(now.watched, now.limit, knobs.tilt, knobs.slope))
    most = reach(now.cost_adv, now.variance, knobs.exact)
    return Asked(together(share, knobs.tilt) * most, jnp.zeros_like(now.recovering), most)


RULES: dict[str, Rule] = {"printed": printed, "shares": shares}


def reach(cost_adv: Float[Array, "constraint n"], variance: Array | float, exact: bool = True) -> Costs:
    """The deepest fall of each cost that ratios of this variance can promise: R‖A_c‖/N, less what v ≥ 0 takes.

    >>> reach(jnp.array([[1.0, -1.0, 1.0, -1.0]]), 0.25).tolist()
    [0.5]
    """
    flee = lambda adv: estep.solve(-adv, jnp.zeros_like(adv), 0.0, variance, exact=exact)  # noqa: E731
    return jax.vmap(lambda adv: flee(adv).reward_change)(cost_adv)
