"""Ratios and divergence of a new policy against the one that collected the batch: the terms of every surrogate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cppo.types import PyTree


class Surrogate(NamedTuple):
    """Functions of new parameters, on the samples at ``index`` (default: all)."""

    ratio: Callable[..., Array]  # (params, index) -> π_θ/π of the actions taken, (n,)
    kl: Callable[..., Array]  # (params, index) -> KL(π‖π_θ) at each state, (n,)
    reverse_kl: Callable[..., Array]  # (params, index) -> KL(π_θ‖π) at each state, (n,)
    entropy: Callable[..., Array]  # (params, index) -> entropy of π_θ at each state, (n,)

    def mean_kl(self, params: PyTree) -> Float[Array, ""]:
        """The KL of this project: forward, summed over action dimensions, averaged over states."""
        return jnp.mean(self.kl(params))


def around(
    policy: Callable[[PyTree, Array], Any], params: PyTree, obs: Float[Array, "n obs"], action: Float[Array, "n ..."]
) -> Surrogate:
    """The surrogate's terms around the policy ``params`` that took ``action`` at ``obs``."""
    old = jax.vmap(lambda o: policy(params, o))(obs)
    old_log_prob = jax.vmap(lambda d, a: d.log_prob(a))(old, action)
    everything = slice(None)

    def ratio(new: PyTree, index: Any = everything) -> Array:
        log_prob = jax.vmap(lambda o, a: policy(new, o).log_prob(a))(obs[index], action[index])
        return jnp.exp(log_prob - old_log_prob[index])

    def kl(new: PyTree, index: Any = everything) -> Array:
        before = jax.tree.map(lambda x: x[index], old)
        return jax.vmap(lambda d, o: d.kl(policy(new, o)))(before, obs[index])

    def reverse_kl(new: PyTree, index: Any = everything) -> Array:
        before = jax.tree.map(lambda x: x[index], old)
        return jax.vmap(lambda d, o: policy(new, o).kl(d))(before, obs[index])

    def entropy(new: PyTree, index: Any = everything) -> Array:
        return jax.vmap(lambda o: policy(new, o).entropy())(obs[index])

    return Surrogate(ratio, kl, reverse_kl, entropy)
