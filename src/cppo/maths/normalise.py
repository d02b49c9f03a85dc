"""Running mean and variance of observations (Chan et al. 1979), kept in the training state and in every checkpoint."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

CLIP = 10.0  # standard deviations; guards the network against a rare outlier


class Normaliser(NamedTuple):
    """``count`` 0 means nothing seen yet: then ``apply`` is the identity."""

    count: Float[Array, ""]
    mean: Float[Array, " *obs"]
    sum_squares: Float[Array, " *obs"]


def empty(shape: tuple[int, ...]) -> Normaliser:
    return Normaliser(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))


def observe(stats: Normaliser, batch: Float[Array, "n *obs"]) -> Normaliser:
    """Merge the moments of a batch."""
    number = jnp.asarray(batch.shape[0], stats.count.dtype)
    mean = jnp.mean(batch, axis=0)
    sum_squares = jnp.sum((batch - mean) ** 2, axis=0)
    total = stats.count + number
    shift = mean - stats.mean
    return Normaliser(
        total,
        stats.mean + shift * number / total,
        stats.sum_squares + sum_squares + shift**2 * stats.count * number / total,
    )


def apply(stats: Normaliser, obs: Float[Array, "... *obs"], floor: Array | float) -> Float[Array, "... *obs"]:
    """(obs − mean)/max(deviation, floor): with a floor of 1, large signals are scaled down, small ones never blown up.

    What hardly varies is often noise (PointCircle's three constant velocities); at unit size it lets a policy
    recognise single episodes and learn their luck by heart.
    """
    variance = stats.sum_squares / jnp.maximum(stats.count, 1.0)
    scaled = (obs - stats.mean) / jnp.maximum(jnp.sqrt(variance), floor)
    return jnp.where(stats.count > 0, jnp.clip(scaled, -CLIP, CLIP), obs)


def policy_view(settings: Any, agent: Any, obs: Float[Array, "... *obs"]) -> Float[Array, "... *obs"]:
    """Observations as the policy sees them; what it is told to ignore is 0."""
    seen = apply(agent.normaliser, obs, settings.obs_floor) if settings.normalise_obs else obs
    return seen.at[..., jnp.asarray(settings.ignore)].set(0.0) if settings.ignore else seen
