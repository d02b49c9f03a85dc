"""Bookkeeping of episodes: what J_c is averaged over (docs/cost-contract.md).

J_c is the mean over the episodes that ended in the batch. Where fewer than ``min_episodes`` did (few worlds, short
rollouts), the most recent earlier ones fill up; where none has ended yet, ``count`` is 0 and nobody may update.
An episode that a world joined midway (staggered start) is not counted: its cost is incomplete.

Rollouts of L steps with episodes of T > L would see J_c late: an episode that ends now was begun T/L policies ago.
Where the worlds, staggered, cover all ages of an episode in every batch, ``by_age`` takes J_c from the batch itself, as
a life table does a life's expectation from one year's deaths: with S_a the probability that an episode is still running
at age a, and c_a the mean cost of a step at that age, J_c = Σ_a S_a c_a. Both come from the newest policy alone, and
worlds whose ages have drifted together (after many early ends) count each age as it deserves.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from cppo.types import Episodes

WINDOW = 100  # finished episodes remembered between batches
UNSEEN = 0.1  # largest share of an episode's steps whose ages may be missing in a batch


class Totals(NamedTuple):
    """Sums of an episode: running ones with axis world, finished ones with axis episode."""

    reward: Float[Array, " n"]
    cost: Float[Array, "n constraint"]
    discounted_cost: Float[Array, "n constraint"]
    length: Float[Array, " n"]
    whole: Bool[Array, " n"]  # running: seen from its first step; finished: slot holds an episode


def _zeros(number: int, constraints: int, whole: bool) -> Totals:
    scalar, vector = jnp.zeros(number), jnp.zeros((number, constraints))
    return Totals(scalar, vector, vector, scalar, jnp.full(number, whole))


def start(worlds: int, constraints: int, ages: Array | None = None) -> tuple[Totals, Totals]:
    """Running totals of fresh worlds and an empty window of finished episodes."""
    running = _zeros(worlds, constraints, True)
    if ages is not None:
        running = running._replace(whole=ages == 0, length=ages.astype(running.length.dtype))
    return running, _zeros(WINDOW, constraints, False)


def account(
    running: Totals,
    window: Totals,
    reward: Float[Array, "time world"],
    cost: Float[Array, "time world constraint"],
    ended: Bool[Array, "time world"],
    cost_discount: Float[Array, ""] | float,
    min_episodes: int,
    dropped: Bool[Array, "time world"] | None = None,
) -> tuple[Totals, Totals, Episodes]:
    """Carry the totals through a batch; return them, the window, and the means that an update sees.

    Episodes that end as ``dropped`` are not counted."""

    def one_step(totals: Totals, step: tuple[Array, Array, Array, Array]) -> tuple[Totals, Totals]:
        r, c, end, counted = step
        weight = cost_discount ** totals.length[:, None]
        grown = Totals(
            totals.reward + r,
            totals.cost + c,
            totals.discounted_cost + weight * c,
            totals.length + 1,
            totals.whole,
        )
        fresh = _zeros(r.shape[0], c.shape[-1], True)
        kept = jax.tree.map(lambda new, old: jnp.where(_like(end, old), new, old), fresh, grown)
        return kept, grown._replace(whole=grown.whole & counted)

    counted = ended if dropped is None else ended & ~dropped
    running, seen = jax.lax.scan(one_step, running, (reward, cost, ended, counted))
    seen = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), seen)
    everything = jax.tree.map(lambda old, new: jnp.concatenate([old, new]), window, seen)
    recent_rank = jnp.cumsum(everything.whole[::-1])[::-1]  # 1 for the newest finished episode
    number_ended = jnp.sum(seen.whole)
    chosen = everything.whole & (recent_rank <= jnp.maximum(number_ended, min_episodes))
    newest = jnp.nonzero(everything.whole & (recent_rank <= WINDOW), size=WINDOW, fill_value=-1)[0]
    window = jax.tree.map(lambda x: x[newest], everything)
    window = window._replace(whole=newest >= 0)
    return running, window, _means(everything, chosen, number_ended)


def covered(worlds: int, length: int, horizon: int, min_episodes: int) -> bool:
    """Whether rollouts of staggered worlds are shorter than an episode but together as long as ``min_episodes``.

    >>> covered(300, 100, 1000, 10), covered(30, 1000, 1000, 10), covered(10, 200, 1000, 10)
    (True, False, False)
    """
    return length < horizon and min_episodes * horizon <= worlds * length


def by_age(
    means: Episodes,
    reward: Float[Array, "time world"],
    cost: Float[Array, "time world constraint"],
    age: Float[Array, "time world"],
    ended: Bool[Array, "time world"],
    cost_discount: Float[Array, ""] | float,
    horizon: int,
) -> Episodes:
    """The same means from the batch's steps by age; ``means`` as they are where too much of an episode was not seen.

    Ages are taken in bins of w steps with a chance h of an early end at each step, so that an episode that enters a bin
    makes (1 − (1 − h)^w)/h steps in it. A bin that nobody was in, as happens at great ages, is taken to be like the one
    before.
    """
    width = max(1, reward.shape[0] // 10)
    number = -(-horizon // width)
    bins = jnp.clip(age // width, 0, number - 1).astype(jnp.int32).reshape(-1)
    total = lambda x: jax.ops.segment_sum(x.reshape(bins.size, -1), bins, number)  # noqa: E731
    steps = total(jnp.ones(bins.shape))
    seen = steps[:, 0] > 0
    last_seen = jax.lax.cummax(jnp.where(seen, jnp.arange(number), 0))
    mean = lambda x: (total(x) / jnp.maximum(steps, 1.0))[last_seen]  # noqa: E731
    hazard = mean((ended & (age + 1 < horizon)).astype(float))[:, 0]
    widths = jnp.minimum(width, horizon - width * jnp.arange(number)).astype(float)
    staying = (1.0 - hazard) ** widths
    reached = jnp.concatenate([jnp.ones(1), jnp.cumprod(staying)[:-1]])
    spent = reached * jnp.where(hazard > 0, (1.0 - staying) / jnp.where(hazard > 0, hazard, 1.0), widths)
    length = jnp.sum(spent)
    found = means._replace(
        reward=spent @ mean(reward)[:, 0],
        cost=spent @ mean(cost),
        discounted_cost=spent @ mean(cost_discount ** age[..., None] * cost),
        length=length,
        count=jnp.maximum(1, reward.size / length).astype(jnp.int32),
    )
    known = jnp.sum(jnp.where(seen, 0.0, spent)) <= UNSEEN * length
    return jax.tree.map(lambda new, old: jnp.where(known, new, old), found, means)


def ages(first: Float[Array, " world"], ended: Bool[Array, "time world"]) -> Float[Array, "time world"]:
    """Age of each world's episode at every step of a batch, from the ages at its start."""

    def one_step(age: Array, end: Array) -> tuple[Array, Array]:
        return jnp.where(end, 0.0, age + 1.0), age

    return jax.lax.scan(one_step, first, ended)[1]


def _means(totals: Totals, chosen: Bool[Array, " n"], ended: Array) -> Episodes:
    count = jnp.sum(chosen)

    def mean(x: Array) -> Array:
        return jnp.sum(jnp.where(_like(chosen, x), x, 0.0), axis=0) / jnp.maximum(count, 1)

    return Episodes(
        mean(totals.reward),
        mean(totals.cost),
        mean(totals.discounted_cost),
        mean(totals.length),
        count.astype(jnp.int32),
        ended.astype(jnp.int32),
    )


def _like(mask: Array, x: Array) -> Array:
    return mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
