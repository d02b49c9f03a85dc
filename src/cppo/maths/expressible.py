"""The part of an advantage that the policy's network can follow, and that unseen samples confirm.

Advantages of single samples are mostly noise: on Safety Gym's tasks less than 1% of their variance lies in the span of
the network's scores ∂ log π/∂θ, which is all that a small step can express. Ratios chosen on the raw vectors meet
their budget by that noise; the network follows only the rest, whose cost may differ. So advantages are projected first,

    P A = S x,    x = (F + c I)⁻¹ g,    g = Sᵀ A / N,    S the N scores, F the Fisher matrix:

an E-step in the space where the policy moves has targets that can be reached, and the M-step fills its trust region
without a gain. A few steps of conjugate gradient (``maths/trust_region.py``) keep the directions that the batch
determines best.

**Confirmed.** What is left still looks better than it is: of all directions an update takes the one whose noise looks
best. On PointGoal1 projected advantages promised a fall in cost by 34 an update, of which other batches of the same
policy confirmed half a unit (benchmarks/confirmed.py). So the episodes are split in two halves; the directions of one
are held against the gradients of the other,

    H_ab = ½ (g_a1 · x_b2 + g_a2 · x_b1),    against K_ab = mean of (P A_a)(P A_b), the batch's own opinion,

and advantages become Ã_a = Σ_b (H K⁻¹)_ab P A_b: vectors of the same span whose product with ratios of that span is
the confirmed change. Noise in A_c shrinks, and the E-step pays the right price for a fall in cost. H of a single batch
is uncertain itself, so H and K are averaged over recent iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from cppo.maths import trust_region
from cppo.types import PyTree

MEMORY = 0.9  # share of the past that one iteration keeps in H and K
LEAST = 0.03  # of the batch's own opinion always counts as confirmed: no direction is lost for good


class Opinions(NamedTuple):
    """Running averages of H and K, for reward and costs."""

    across: Float[Array, "k k"]
    within: Float[Array, "k k"]


def start(signals: int) -> Opinions:
    return Opinions(jnp.zeros((signals, signals)), jnp.zeros((signals, signals)))


def halves(worlds: int, samples: int) -> Float[Array, "2 n"]:
    """Weights that average over the even and over the odd worlds of samples ordered by time, then world.

    A single world is split in time.

    >>> halves(2, 4).tolist()
    [[0.5, 0.0, 0.5, 0.0], [0.0, 0.5, 0.0, 0.5]]
    >>> halves(1, 4).tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    """
    index = jnp.arange(samples)
    odd = index % worlds % 2 if worlds > 1 else index >= samples // 2
    chosen = jnp.stack([1 - odd, odd]).astype(jnp.float32)
    return chosen / jnp.maximum(jnp.sum(chosen, axis=1, keepdims=True), 1.0)


def project(
    log_prob: Callable[[PyTree], Array],
    mean_kl: Callable[[PyTree], Array],
    params: PyTree,
    signals: Float[Array, "k n"],
    split: Float[Array, "2 n"],
    past: Opinions,
    damping: Array | float,
    iterations: int,
) -> tuple[Float[Array, "k n"], Opinions]:
    """Ã of each signal around ``params``; ``log_prob(params)`` is that of the N actions, ``split`` from ``halves``."""
    flat, as_tree = ravel_pytree(params)
    _, push = jax.linearize(lambda p: log_prob(as_tree(p)), flat)  # x ↦ S x
    pull = jax.linear_transpose(push, flat)  # y ↦ Sᵀ y
    product = trust_region.fisher_product(lambda p: mean_kl(as_tree(p)), flat, damping)
    each = lambda f: jax.vmap(jax.vmap(f))  # noqa: E731
    g = each(lambda y: pull(y)[0])(split[:, None] * signals[None])
    x = each(lambda b: trust_region.conjugate_gradient(product, b, iterations).x)(g)
    projected = jax.vmap(push)(jnp.mean(x, axis=0))
    across = g[0] @ x[1].T + g[1] @ x[0].T
    now = Opinions(0.25 * (across + across.T), projected @ projected.T / projected.shape[1])
    now = jax.tree.map(lambda old, new: MEMORY * old + (1 - MEMORY) * new, past, now)
    return confirmed(now) @ projected, now


def confirmed(seen: Opinions) -> Float[Array, "k k"]:
    """H K⁻¹, with H nowhere below ``LEAST`` K."""
    size = jnp.sqrt(jnp.diagonal(seen.within)) + 1e-12  # signals of unit size: one tolerance fits all
    across, within = (matrix / (size[:, None] * size) for matrix in seen)
    values, vectors = jnp.linalg.eigh(within + 1e-6 * jnp.eye(size.size))
    root, inverse_root = (vectors * values**power @ vectors.T for power in (0.5, -0.5))
    shares, axes = jnp.linalg.eigh(inverse_root @ across @ inverse_root)
    kept = axes * jnp.maximum(shares, LEAST) @ axes.T
    return root @ kept @ inverse_root * (size[:, None] / size)
