"""The M-step: make the policy's ratios r = π_θ/π follow the E-step's target ratios v (paper, section 3.4, appendix C).

With e = v − r held constant, the gradient of E[(v − r)²] is that of −E[e r]; with the lower clip the loss is

    −E[ min( e r, e max(r, c) ) ],    c = 0.6,

whose ``min`` keeps the gradient wherever v > r. In a recovery update e becomes β e + (1 − β) P e, P the projection onto
the cost advantages of the violated constraints, so that the path descends in cost first.

Three things the paper leaves open are settled here:

- **Radius.** A network follows only the part of v − 1 that its tangent space contains, so plain tracking ends far
  inside the trust region. Targets are therefore 1 + g (v − 1) with a gain g ≥ 1, and the KL limit ends the step.
- **Stop.** KL(π‖π_θ) is checked after every epoch on the whole batch. When it exceeds δ, the step is cut back along the
  segment from the last parameters inside (bisection), so that what is kept is always inside and close to δ.
- **Targets along the way.** With K targets of growing radius (recovery), the one in force is the first whose radius is
  ahead of the distance covered, measured as √(KL/δ), by at least one K-th.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cppo.maths import adam, minibatch
from cppo.types import Key, PyTree

BISECTIONS = 6


class Tracked(NamedTuple):
    """Result of an M-step."""

    params: PyTree
    memory: adam.Memory
    ratios: Float[Array, " n"]
    kl: Float[Array, ""]
    epochs: Int[Array, ""]
    stopped: Bool[Array, ""]  # by the KL limit


class _Loop(NamedTuple):
    params: PyTree
    memory: adam.Memory
    kl: Array
    epoch: Array
    stopped: Array


def project(error: Float[Array, " n"], cost_adv: Float[Array, "m n"], violated: Bool[Array, " m"]) -> Float[Array, " n"]:
    """Projection of ``error`` onto the span of the violated constraints' cost advantages (0 if they vanish)."""
    basis = jnp.where(violated[:, None], cost_adv, 0.0)
    gram = basis @ basis.T
    ridge = 1e-6 * jnp.trace(gram) + 1e-12
    return jnp.linalg.solve(gram + ridge * jnp.eye(gram.shape[0]), basis @ error) @ basis


def clipped_tracking(error: Float[Array, " n"], ratio: Float[Array, " n"], lower_clip: Array | float) -> Array:
    """The loss above; ``error`` is treated as a constant."""
    error = jax.lax.stop_gradient(error)
    return -jnp.mean(jnp.minimum(error * ratio, error * jnp.maximum(ratio, lower_clip)))


def waypoint(targets: Float[Array, "k n"], covered: Float[Array, ""]) -> Float[Array, " n"]:
    """The target in force after covering the share ``covered`` of the radius."""
    count = targets.shape[0]
    return targets[jnp.clip(jnp.floor(covered * count).astype(jnp.int32) + (count > 1), 0, count - 1)]


def track(
    log_prob: Callable[[PyTree, Array], Array],
    mean_kl: Callable[[PyTree, Array], Array],
    params: PyTree,
    memory: adam.Memory,
    targets: Float[Array, "k n"],
    cost_adv: Float[Array, "m n"],
    violated: Bool[Array, " m"],
    key: Key,
    *,
    kl_limit: Array | float,
    rate: Array | float,
    beta: Array | float,
    gain: Array | float,
    lower_clip: Array | float,
    expected: bool,
    epochs: int,
    minibatches: int,
) -> Tracked:
    """Follow ``targets`` from ``params`` until the KL limit or the last epoch.

    ``log_prob(params, index)`` gives log π_θ of the batch's actions at ``index``; ``mean_kl(params)`` is KL(π‖π_θ)
    averaged over the batch's states.
    """
    samples = targets.shape[1]
    everything = jnp.arange(samples)
    old_log_prob = log_prob(params, everything)
    mixing = jnp.where(jnp.any(violated), beta, 1.0)

    def loss(current: PyTree, index: Array, target: Array) -> Array:
        ratio = jnp.exp(log_prob(current, index) - old_log_prob[index])
        error = 1.0 + gain * (target[index] - 1.0) - ratio
        pull = gain * (target[index] - 1.0) if expected else error
        direction = mixing * pull + (1.0 - mixing) * project(error, cost_adv[:, index], violated)
        penalty = mean_kl(current, index) if expected else 0.0
        return clipped_tracking(direction, ratio, lower_clip) + penalty

    def one_epoch(loop: _Loop) -> _Loop:
        target = waypoint(targets, jnp.sqrt(jnp.maximum(loop.kl, 0.0) / kl_limit))

        def one_minibatch(carry: tuple[PyTree, PyTree], index: Array) -> tuple[tuple[PyTree, PyTree], None]:
            current, memory = carry
            return adam.step(memory, current, jax.grad(loss)(current, index, target), rate), None

        order = minibatch.shuffled(jax.random.fold_in(key, loop.epoch), samples, minibatches)
        (moved, memory), _ = jax.lax.scan(one_minibatch, (loop.params, loop.memory), order)
        kl = mean_kl(moved, everything)
        inside = kl <= kl_limit  # False for NaN, too
        kept, kept_kl = jax.lax.cond(
            inside, lambda: (moved, kl), lambda: _cut_back(lambda p: mean_kl(p, everything), loop.params, moved, loop.kl, kl_limit)
        )
        return _Loop(kept, memory, kept_kl, loop.epoch + 1, ~inside)

    first = _Loop(params, memory, jnp.zeros(()), jnp.zeros((), jnp.int32), jnp.asarray(False))
    last = jax.lax.while_loop(lambda loop: (loop.epoch < epochs) & ~loop.stopped, one_epoch, first)
    ratios = jnp.exp(log_prob(last.params, everything) - old_log_prob)
    return Tracked(last.params, last.memory, ratios, last.kl, last.epoch, last.stopped)


def _cut_back(
    mean_kl: Callable[[PyTree], Array], inside: PyTree, outside: PyTree, inside_kl: Array, limit: Array | float
) -> tuple[PyTree, Array]:
    """The farthest point found by bisection between ``inside`` and ``outside`` whose KL is within the limit."""

    def between(share: Array) -> PyTree:
        return jax.tree.map(lambda a, b: a + share * (b - a), inside, outside)

    def halve(_: int, bracket: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        low, high, best = bracket
        middle = 0.5 * (low + high)
        kl = mean_kl(between(middle))
        good = kl <= limit
        return jnp.where(good, middle, low), jnp.where(good, high, middle), jnp.where(good, kl, best)

    low, _, kl = jax.lax.fori_loop(0, BISECTIONS, halve, (jnp.zeros(()), jnp.ones(()), inside_kl))
    # NaN parameters outside must not reach the kept ones through 0·NaN.
    return jax.tree.map(lambda a, b: jnp.where(low > 0, a + low * (b - a), a), inside, outside), kl
