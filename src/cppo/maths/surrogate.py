"""Ratios and divergence of a new policy against the one that collected the batch: the terms of every surrogate."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num

from cppo.maths.distributions import Distribution
from cppo.settings import setting, settings
from cppo.types import PyTree

Index = Int[Array, " i"] | slice
EVERYTHING = slice(None)


@settings
class Bonus:
    """A setting of methods that may be paid for staying random."""

    entropy: float = setting(
        0.0,
        "Bonus on entropy, reward for a nat. None by default; with a price that swings, a Discrete policy may need it: "
        "an action that is no longer tried is never tried again.",
        at_least=0.0,
    )


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
    policy: Callable[[PyTree, Array], Distribution],
    params: PyTree,
    obs: Float[Array, "n *obs"],
    action: Num[Array, "n *action"],
) -> Surrogate:
    """The surrogate's terms around the policy ``params`` that took ``action`` at ``obs``."""
    old = jax.vmap(lambda o: policy(params, o))(obs)
    old_log_prob = jax.vmap(lambda d, a: d.log_prob(a))(old, action)

    def ratio(new: PyTree, index: Index = EVERYTHING) -> Array:
        log_prob = jax.vmap(lambda o, a: policy(new, o).log_prob(a))(obs[index], action[index])
        return jnp.exp(log_prob - old_log_prob[index])

    def kl(new: PyTree, index: Index = EVERYTHING) -> Array:
        before = jax.tree.map(lambda x: x[index], old)
        return jax.vmap(lambda d, o: d.kl(policy(new, o)))(before, obs[index])

    def reverse_kl(new: PyTree, index: Index = EVERYTHING) -> Array:
        before = jax.tree.map(lambda x: x[index], old)
        return jax.vmap(lambda d, o: policy(new, o).kl(d))(before, obs[index])

    def entropy(new: PyTree, index: Index = EVERYTHING) -> Array:
        return jax.vmap(lambda o: policy(new, o).entropy())(obs[index])

    return Surrogate(ratio, kl, reverse_kl, entropy)
