"""The M-step: make the policy's ratios r = π_θ/π follow the E-step's target ratios v (paper, section 3.4, appendix C).

With e = v − r held constant, the gradient of E[(v − r)²] is that of −E[e r]; with the lower clip the loss is

    −E[ min( e r, e max(r, c) ) ],    c = 0.6,

whose ``min`` keeps the gradient wherever v > r. In a recovery update e becomes β e + (1 − β) P e, P the projection onto
the cost advantages of the violated constraints, so that the path descends in cost first.

``kl_loss`` is what the paper argues against: minimising KL(q‖π_θ), as MPO and CVPO do, which is −E[v log r] up to a
constant. It knows no error v − r: the same mixture is made of v − 1, weights below 0 (a gain above 1 makes some) count
as 0, and since no weight pushes a ratio down there is nothing to clip.

Three things the paper leaves open are settled here:

- **Radius.** A network follows only the part of v − 1 that its tangent space contains, so plain tracking ends far
  inside the trust region. Targets are therefore 1 + g (v − 1) with a gain g ≥ 1, and the KL limit ends the step.
- **Stop.** KL(π‖π_θ) is checked after every epoch on the whole batch. An epoch that leaves the trust region is undone
  and the learning rate reduced; the step ends near δ or with the last epoch. What is kept is always inside, and the
  rate that proved right is remembered for the next iteration.
- **Targets along the way.** With K targets of growing radius (recovery), the one in force is the first whose radius is
  ahead of the distance covered, measured as √(KL/δ), by more than one K-th (so never the
  nearest, unless it is the only one).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cppo.maths import adam, minibatch
from cppo.types import Key, PyTree

BACK_OFF = 0.3  # factor on the learning rate after an epoch that left the trust region
ENOUGH = 0.9  # share of the KL limit at which an M-step ends


class Tracked(NamedTuple):
    """Result of an M-step."""

    params: PyTree
    memory: adam.Memory
    ratios: Float[Array, " n"]
    kl: Float[Array, ""]
    scale: Float[Array, ""]  # of the learning rate, after backing off
    epochs: Int[Array, ""]


class _Loop(NamedTuple):
    params: PyTree
    memory: adam.Memory
    kl: Array
    scale: Array
    epoch: Array


def project(
    error: Float[Array, " n"], cost_adv: Float[Array, "m n"], violated: Bool[Array, " m"]
) -> Float[Array, " n"]:
    """Projection of ``error`` onto the span of the violated constraints' cost advantages (0 if they vanish)."""
    basis = jnp.where(violated[:, None], cost_adv, 0.0)
    gram = basis @ basis.T
    ridge = 1e-6 * jnp.trace(gram) + 1e-12
    return jnp.linalg.solve(gram + ridge * jnp.eye(gram.shape[0]), basis @ error) @ basis


def clipped_tracking(error: Float[Array, " n"], ratio: Float[Array, " n"], lower_clip: Array | float) -> Array:
    """The loss above; ``error`` is treated as a constant."""
    error = jax.lax.stop_gradient(error)
    return -jnp.mean(jnp.minimum(error * ratio, error * jnp.maximum(ratio, lower_clip)))


Loss = Callable[[Array, Array, Callable[[Array], Array], Array | float], Array]


def l2_loss(
    target: Float[Array, " n"], ratio: Float[Array, " n"], mix: Callable[[Array], Array], lower_clip: Array | float
) -> Array:
    """Half of E[(v − r)²], clipped; ``mix`` is e ↦ β e + (1 − β) P e in recovery, else the identity."""
    return clipped_tracking(mix(target - ratio), ratio, lower_clip)


def kl_loss(
    target: Float[Array, " n"], ratio: Float[Array, " n"], mix: Callable[[Array], Array], lower_clip: Array | float
) -> Array:
    """KL(q‖π_θ) up to a constant: −E[v log r]. ``lower_clip`` has no meaning here."""
    return -jnp.mean(jnp.maximum(1.0 + mix(target - 1.0), 0.0) * jnp.log(ratio))


LOSSES: dict[str, Loss] = {"l2": l2_loss, "kl": kl_loss}


def waypoint(targets: Float[Array, "k n"], covered: Float[Array, ""]) -> Float[Array, " n"]:
    """The target in force after covering the share ``covered`` of the radius."""
    count = targets.shape[0]
    return targets[jnp.clip(jnp.floor(covered * count).astype(jnp.int32) + (count > 1), 0, count - 1)]


def after_epoch(loop: _Loop, params: PyTree, memory: adam.Memory, kl: Array, kl_limit: Array | float) -> _Loop:
    """What an epoch leaves that ended at ``params``; one that left the trust region is undone and the rate reduced."""
    inside = kl <= kl_limit  # False for NaN, too
    keep = lambda new, old: jnp.where(inside, new, old)  # noqa: E731
    return _Loop(
        jax.tree.map(keep, params, loop.params),
        jax.tree.map(keep, memory, adam.forget_direction(loop.memory)),
        keep(kl, loop.kl),
        keep(loop.scale, loop.scale * BACK_OFF),
        loop.epoch + 1,
    )


def track(
    log_prob: Callable[[PyTree, Array], Array],
    mean_kl: Callable[[PyTree], Array],
    params: PyTree,
    memory: adam.Memory,
    targets: Float[Array, "k n"],
    cost_adv: Float[Array, "m n"],
    violated: Bool[Array, " m"],
    *,
    key: Key,
    kl_limit: Array | float,
    rate: Array | float,
    beta: Array | float,
    gain: Array | float,
    lower_clip: Array | float,
    scale: Array | float,
    epochs: Array | int,
    minibatches: int,
    loss: Loss = l2_loss,
) -> Tracked:
    """Follow ``targets`` from ``params`` until the KL limit or the last epoch.

    ``log_prob(params, index)`` gives log π_θ of the batch's actions at ``index``; ``mean_kl(params)`` is KL(π‖π_θ)
    averaged over the batch's states. The state after k epochs is that of a step with ``epochs=k``.
    """
    samples = targets.shape[1]
    everything = jnp.arange(samples)
    old_log_prob = log_prob(params, everything)
    mixing = jnp.where(jnp.any(violated), beta, 1.0)

    def objective(current: PyTree, index: Array, target: Array) -> Array:
        ratio = jnp.exp(log_prob(current, index) - old_log_prob[index])
        mix = lambda e: mixing * e + (1.0 - mixing) * project(e, cost_adv[:, index], violated)  # noqa: E731
        return loss(1.0 + gain * (target[index] - 1.0), ratio, mix, lower_clip)

    def one_epoch(loop: _Loop) -> _Loop:
        target = waypoint(targets, jnp.sqrt(jnp.maximum(loop.kl, 0.0) / kl_limit))

        def one_minibatch(carry: tuple[PyTree, adam.Memory], index: Array) -> tuple[tuple[PyTree, adam.Memory], None]:
            current, memory = carry
            step = adam.step(memory, current, jax.grad(objective)(current, index, target), loop.scale * rate)
            return step, None

        order = minibatch.shuffled(jax.random.fold_in(key, loop.epoch), samples, minibatches)
        (moved, memory), _ = jax.lax.scan(one_minibatch, (loop.params, loop.memory), order)
        return after_epoch(loop, moved, memory, mean_kl(moved), kl_limit)

    def go_on(loop: _Loop) -> Array:
        return (loop.epoch < epochs) & (loop.kl < ENOUGH * kl_limit)

    first = _Loop(params, memory, jnp.zeros(()), jnp.asarray(scale), jnp.zeros((), jnp.int32))
    last = jax.lax.while_loop(go_on, one_epoch, first)
    ratios = jnp.exp(log_prob(last.params, everything) - old_log_prob)
    return Tracked(last.params, last.memory, ratios, last.kl, last.scale, last.epoch)
