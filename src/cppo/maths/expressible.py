"""The part of an advantage that the policy's network can follow.

Advantages of single samples are mostly noise: on Safety Gym's tasks less than 1% of their variance lies in the span of
the network's scores ∂ log π/∂θ, which is all that a small step can express. Ratios chosen on the raw vectors meet
their budget by that noise; the network follows only the rest, whose cost may differ. Projected first,

    P A = S (F + c I)⁻¹ Sᵀ A / N,    S the N scores, F the Fisher matrix,

A and A_c give an E-step in the space where the policy moves: its targets can be reached, so the M-step fills its trust
region without a gain, and what it predicts is what the network does. A few steps of conjugate gradient
(``maths/trust_region.py``) keep the directions that the batch determines best and leave out the others.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from cppo.maths import trust_region
from cppo.types import PyTree


def project(
    log_prob: Callable[[PyTree], Array],
    mean_kl: Callable[[PyTree], Array],
    params: PyTree,
    signals: Float[Array, "k n"],
    damping: Array | float,
    iterations: int,
) -> Float[Array, "k n"]:
    """P of each signal around ``params``; ``log_prob(params)`` is that of the N actions."""
    flat, as_tree = ravel_pytree(params)
    flat_log_prob = lambda p: log_prob(as_tree(p))  # noqa: E731
    _, push = jax.linearize(flat_log_prob, flat)  # x ↦ S x
    pull = jax.linear_transpose(push, flat)  # y ↦ Sᵀ y
    product = trust_region.fisher_product(lambda p: mean_kl(as_tree(p)), flat, damping)

    def one(signal: Array) -> Array:
        (gradient,) = pull(signal / signal.size)
        return push(trust_region.conjugate_gradient(product, gradient, iterations).x)

    return jax.vmap(one)(signals)
