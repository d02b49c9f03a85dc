"""When a learner's updates are measured (setting ``diagnose``), and where their batches come from."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from cppo.algos import diagnosis
from cppo.types import Batch, Key, Metrics

if TYPE_CHECKING:
    from cppo.runs.learner import Learner, TrainState


class Diagnosis:
    """Measures every so many-th update of a learner, in programs of its own."""

    def __init__(self, learner: Learner, settings: Any):
        self.learner, self.every = learner, settings.diagnose
        measure = partial(diagnosis.measure, learner.networks)
        self._measure = jax.jit(jax.vmap(measure))
        self._gather = jax.jit(jax.vmap(lambda s, state: measure(s, *learner.next_update(s, state))))
        self._tell = jax.jit(jax.vmap(diagnosis.tell))

    def is_due(self, state: TrainState) -> bool:
        return (int(jnp.max(state.iteration)) + 1) % self.every == 0

    def before(self, state: TrainState) -> diagnosis.Measured | None:
        """Where collecting is part of the compiled program: the batch is collected twice, once for this."""
        return jax.block_until_ready(self._gather(self.learner.settings, state)) if self.is_due(state) else None

    def of(self, state: TrainState, batch: Batch, keys: Key) -> diagnosis.Measured | None:
        return self._measure(self.learner.settings, state.agent, batch, keys) if self.is_due(state) else None

    def after(self, measured: diagnosis.Measured | None, state: TrainState) -> Metrics:
        """What was found; NaN where nothing was measured."""
        costs, lanes = self.learner.spec.num_costs, len(self.learner.seeds)
        if measured is not None:
            return self._tell(measured, state.agent.policy)
        return {name: jnp.full((lanes, *shape), jnp.nan) for name, shape in diagnosis.shapes(costs).items()}
