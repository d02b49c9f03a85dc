"""Generalised advantage estimation (Schulman et al. 2016) with truncation kept apart from termination."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def gae(
    reward: Float[Array, "time world"],
    value: Float[Array, "time world"],
    next_value: Float[Array, "time world"],
    terminated: Bool[Array, "time world"],
    truncated: Bool[Array, "time world"],
    discount: Float[Array, ""] | float,
    decay: Float[Array, ""] | float,
) -> Float[Array, "time world"]:
    """A_t = δ_t + γ λ A_{t+1} within an episode, δ_t = r_t + γ V(s'_t) [not terminated] − V(s_t).

    ``next_value`` is the value of the step's true successor, so a time limit bootstraps from its final observation
    while the sum of later δ stops at either kind of end.
    """
    delta = reward + discount * next_value * ~terminated - value
    carry_on = discount * decay * ~(terminated | truncated)

    def backwards(after: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        now = step[0] + step[1] * after
        return now, now

    _, advantage = jax.lax.scan(backwards, jnp.zeros_like(reward[0]), (delta, carry_on), reverse=True)
    return advantage


def centred(advantage: Float[Array, "..."]) -> Float[Array, "..."]:
    """The advantage less its batch mean. Never divided by its spread: the scale of A_c is what gives d' its meaning."""
    return advantage - jnp.mean(advantage)
