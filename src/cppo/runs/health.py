"""What must not pass unnoticed in a batch: bad numbers, which stop a seed, and episodes lost with their process.

A seed is a lane of a compiled program, so the program itself keeps a lane as it was before its first bad batch
(``sound`` in the learner), for ever; nobody looks at it any more, and no other lane notices. Here is what is bad, and
the words for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Bool

from cppo.runs.metrics import METRICS, Row
from cppo.runs.plan import Plan
from cppo.types import LOST, AnyArray, Batch, Metrics, PyTree

LARGEST = 1e9  # size of a reward or a cost; far beyond, float32 and every critic have long lost count
KINDS = {f"dropped_{kind}": kind for kind in LOST}  # metrics of lost episodes
WINDOW = 20  # iterations over which lost episodes are counted
ACCIDENTS = 3  # iterations of a window with lost episodes from which on they are more than bad luck


def signals(batch: Batch) -> tuple[Metrics, Bool[Array, ""]]:
    """What a batch shows, and whether it is sound. Names with an underscore in front are not logged.

    Steps are counted through all worlds, from 0; −1 where there is none.
    """
    seen = jnp.isfinite(batch.next_obs).reshape(*batch.reward.shape, -1)
    small = (jnp.abs(batch.reward) <= LARGEST) & jnp.all(jnp.abs(batch.cost) <= LARGEST, axis=-1)
    bad = ~(small & jnp.all(seen, axis=-1)).reshape(-1)  # comparisons with NaN do not hold
    costs = batch.cost.reshape(bad.size, -1)
    negative = jnp.any(costs < 0, axis=-1)
    first, lowest = jnp.argmax(bad), jnp.argmax(negative)
    found: Metrics = {
        "nonfinite": jnp.sum(bad),
        "_bad": jnp.where(jnp.any(bad), first, -1),
        "_bad_reward": batch.reward.reshape(-1)[first],
        "_bad_cost": costs[first],
        "_negative": jnp.where(jnp.any(negative), lowest, -1),
        "_negative_cost": costs[lowest],
    }
    return found, ~jnp.any(bad)


def finite(tree: PyTree) -> Bool[Array, ""]:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def failures(plan: Plan, metrics: Metrics, iteration: int) -> dict[int, str]:
    """The seeds that bad numbers stopped in this batch or before, with words for this one."""
    found = {}
    for lane, seed in enumerate(plan.seeds):
        if metrics["_bad"][lane] >= 0:
            found[seed] = _bad_signals(plan, {name: value[lane] for name, value in metrics.items()}, seed, iteration)
        elif not metrics["_sound"][lane]:
            found[seed] = (
                f"the policy's parameters became NaN or infinite in iteration {iteration} of seed {seed}; those before "
                "are kept. Lower the learning rates (for example --set policy_rate=1e-4 value_rate=3e-4) and start "
                "again."
            )
    return found


def _bad_signals(plan: Plan, lane: dict[str, Any], seed: int, iteration: int) -> str:
    where = f"at step {_step(plan, iteration, lane['_bad']):,} of seed {seed} (iteration {iteration})"
    values = {"reward": lane["_bad_reward"], **dict(zip(plan.spec.cost_names, lane["_bad_cost"], strict=True))}
    if all(np.isfinite(value) for value in values.values()):
        large = " and ".join(f"{name} {value:g}" for name, value in values.items() if abs(value) > LARGEST)
        if large:
            return f"{plan.env} returned {large} {where}; sizes beyond {LARGEST:g} are refused: scale it down there."
    return (
        f"{plan.env} returned NaN or infinite rewards, costs or observations {where}. Everything up to the last "
        f"checkpoint is saved. If kl or the losses in {METRICS} grew before, the policy diverged: start again with "
        "lower learning rates; else mend the environment and resume."
    )


def negative_cost(plan: Plan, metrics: Metrics, iteration: int) -> str | None:
    """Words for the first cost below zero of this batch."""
    for lane, seed in enumerate(plan.seeds):
        if metrics["_negative"][lane] >= 0:
            step, cost = _step(plan, iteration, metrics["_negative"][lane]), np.min(metrics["_negative_cost"][lane])
            return (
                f"{plan.env} returned a cost of {cost:g} at step {step:,} of seed {seed}. Costs below 0 make up for "
                "others of the same episode; where that is not meant, return max(cost, 0) (docs/cost-contract.md)."
            )
    return None


def _step(plan: Plan, iteration: int, index: AnyArray | np.generic) -> int:
    """The environment step of a seed, from 1, that is ``index`` of its batch."""
    return (iteration - 1) * plan.settings.batch_size + int(index) * plan.settings.hold + 1


class Losses:
    """Episodes lost with their process, iteration by iteration."""

    def __init__(self, most: float):
        self._most = most
        self._recent: deque[tuple[int, int]] = deque(maxlen=WINDOW)

    def add(self, rows: Sequence[Row]) -> None:
        lost, ended = (sum(int(row[name]) for row in rows) for name in ("dropped_episodes", "episodes"))
        self._recent.append((lost, ended))

    def too_many(self) -> str | None:
        """Why to stop, where too large a share of the episodes of a whole window was lost, and not all at once."""
        lost, ended = (sum(part) for part in zip(*self._recent, strict=True))
        accidents = sum(dropped > 0 for dropped, _ in self._recent)
        if len(self._recent) < WINDOW or accidents < ACCIDENTS or lost <= self._most * (lost + ended):
            return None
        return (
            f"{lost} of {lost + ended} episodes of the last {WINDOW} iterations were lost with their process, "
            f"more than {self._most:.0%} (--env-max-dropped)"
        )


def lost_by_kind(frame: pd.DataFrame) -> dict[str, int]:
    """Lost episodes of a run by what it was that lost them."""
    return {kind: _sum(frame, column) for column, kind in KINDS.items()}


def none_finished(frame: pd.DataFrame) -> str | None:
    """Why a run that came to its end has nevertheless failed: all its episodes were lost."""
    lost = _sum(frame, "dropped_episodes")
    if not lost or _sum(frame, "episodes"):
        return None
    return f"no episode of the run finished, {lost} were lost with their process"


def _sum(frame: pd.DataFrame, column: str) -> int:
    """Rows without the quantity left out."""
    return int(np.nansum(np.asarray(frame[column], float))) if column in frame else 0
