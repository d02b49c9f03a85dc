"""Batches that an update draws on beside the newest: kept in the training state, brought up to date by importance
weights.

Policies of neighbouring iterations differ by a KL of about δ, so the samples of the last few batches still tell about
the current one. They enter with the advantages of the current critics and the weight w = π/π_then, clipped, and lower
the noise of the E-step's two vectors, of the M-step and of the critics' fit. J_c always comes from the newest batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from cppo.networks import Networks
from cppo.types import Batch, Box

WEIGHTS = (0.5, 2.0)


class Past(NamedTuple):
    """The K − 1 batches before the newest, newest first, and what the policy of their time thought of their actions."""

    batch: Batch  # leading axis K − 1; ``episodes`` None
    log_prob: Float[Array, "batch time world"]
    filled: Bool[Array, ""]  # False before the first update: then the newest batch stands in for the missing ones


def nothing(networks: Networks, settings: Any) -> Past:
    spec, worlds = networks.spec, settings.num_envs
    shape = (settings.reuse - 1, settings.batch_size // (worlds * settings.hold), worlds)
    obs, number, flag = jnp.zeros((*shape, *spec.obs_shape)), jnp.zeros(shape), jnp.zeros(shape, bool)
    action = jnp.zeros((*shape, *spec.action.shape), jnp.float32 if isinstance(spec.action, Box) else jnp.int32)
    cost = jnp.zeros((*shape, spec.num_costs))
    # Of the past, means over episodes are not kept.
    batch = Batch(obs, action, obs, number, cost, flag, flag, number, None)  # pyright: ignore[reportArgumentType]
    return Past(batch, number, jnp.asarray(False))


def join(past: Past, batch: Batch, log_prob: Float[Array, "time world"]) -> tuple[Batch, Array, Past]:
    """All batches side by side as one of K·W worlds (newest first), their log densities then, and the past of next
    time."""
    newest = (batch._replace(episodes=None), log_prob)
    before = jax.tree.map(lambda old, new: jnp.where(past.filled, old, new[None]), (past.batch, past.log_prob), newest)
    stacked = jax.tree.map(lambda old, new: jnp.concatenate([new[None], old]), before, newest)
    kept, kept_log_prob = jax.tree.map(lambda x: x[:-1], stacked)
    joined, joined_log_prob = jax.tree.map(
        lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:]), stacked
    )
    return joined._replace(episodes=batch.episodes), joined_log_prob, Past(kept, kept_log_prob, jnp.asarray(True))


def weights(now: Array, then: Array) -> Array:
    """Importance of each sample under the current policy; exactly 1 for the newest batch."""
    return jnp.clip(jnp.exp(now - then), *WEIGHTS)
