"""How a policy's reward and costs truly respond to a step, measured between groups of worlds that share no episode.

A step along D⁻¹g_j changes signal i (the reward or a cost) by g_i·D⁻¹g_j, g the policy gradients E[∇log π A] and D the
metric that steps are measured in. So all that an update can hope for is in the matrix G_ij = g_i·D⁻¹g_j: its diagonal
says what a step along a gradient brings, its angle arccos(G_ij/√(G_ii G_jj)) whether two signals pull together.

Computed from one batch, ĝ_i·D⁻¹ĝ_j holds the noise of single steps squared, which on Safety Gym's tasks is most of it.
But groups k and l of worlds that share no episode have errors that know nothing of each other, and

    G_ij = mean over pairs k ≠ l of g_i(k)·D⁻¹ g_j(l)

is unbiased, if D knows nothing of them, either. Here D is the diagonal of the Fisher matrix, from actions drawn anew.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cppo.maths.advantages import centred
from cppo.types import Key, PyTree

FLOOR = 1e-3  # of the metric, in shares of its mean: parameters that no action depends on would be free to move

Vector = Float[Array, " p"]
Gradients = Float[Array, "group signal p"]
Matrix = Float[Array, "signal signal"]


def gradients(
    log_prob: Callable[[Vector, PyTree], Array],
    params: Vector,
    samples: PyTree,
    signals: Float[Array, "group signal n"],
) -> Gradients:
    """Policy gradients of every group; ``log_prob(params, samples)`` is that of one group's actions, (n,)."""

    def of_one(group: tuple[PyTree, Array]) -> Array:
        own, signal = group
        _, pull = jax.vjp(lambda p: log_prob(p, own), params)
        weights = jax.vmap(centred)(signal) / signal.shape[1]
        return jax.vmap(lambda weight: pull(weight)[0])(weights)

    return jax.lax.map(of_one, (samples, signals))


def fisher_diagonal(
    draw: Callable[[Vector, PyTree, Key], Array], params: Vector, blocks: PyTree, size: int, key: Key
) -> Vector:
    """Mean square of each entry of ∇log π. ``draw(params, block, key)`` is log π, (size,), of actions drawn anew.

    In the sum of a block's gradients, squared, those of different samples cancel on average.
    """
    number = jax.tree.leaves(blocks)[0].shape[0]

    def of_one(block: tuple[PyTree, Key]) -> Array:
        return jax.grad(lambda p: jnp.sum(draw(p, *block)))(params) ** 2

    found = jnp.mean(jax.lax.map(of_one, (blocks, jax.random.split(key, number))), axis=0) / size
    return found + FLOOR * jnp.mean(found) + jnp.finfo(found.dtype).tiny


def between(found: Gradients, metric: Vector) -> Matrix:
    """G, without bias: its diagonal may come out below 0."""
    number = found.shape[0]
    total = jnp.sum(found, axis=0)
    own = jnp.einsum("kip,kjp->ij", found / metric, found)
    return ((total / metric) @ total.T - own) / (number * (number - 1))


def promised(found: Gradients, metric: Vector) -> Matrix:
    """The same from all groups together, as an update sees it: G and the noise of the batch."""
    mean = jnp.mean(found, axis=0)
    return (mean / metric) @ mean.T


def angle(matrix: Matrix, first: int, second: int) -> Float[Array, ""]:
    """Between two signals; NaN where one of them has no response."""
    size = matrix[first, first] * matrix[second, second]
    known = (matrix[first, first] > 0) & (matrix[second, second] > 0)
    cosine = matrix[first, second] / jnp.sqrt(jnp.where(known, size, 1.0))
    return jnp.where(known, jnp.arccos(jnp.clip(cosine, -1.0, 1.0)), jnp.nan)


def confirmed_change(found: Gradients, metric: Vector, step: Vector) -> Float[Array, " signal"]:
    """What a step does to each signal by the word of other worlds, as far as it follows the batch's own gradients.

    The step is split into x_j D⁻¹ĝ_j and a rest that no gradient of the batch speaks of; of the first part G tells.
    """
    own = promised(found, metric)
    shares = jnp.linalg.pinv(own, rtol=1e-6, hermitian=True) @ (jnp.mean(found, axis=0) @ step)
    return between(found, metric) @ shares
