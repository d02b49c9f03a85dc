"""Rules that set the price λ_i of each constraint from the costs of the batches seen, as values to pass in.

A method with multipliers improves the penalised advantage

    (A − Σ_i λ_i A_ci) / (1 + Σ_i λ_i),

whose division (proposed by Stooke et al. 2020) keeps the size of a policy step independent of λ.

**Units.** Every rule sees the violation Δ = J_c − d in the limit's own unit, the mean undiscounted cost of an episode
(docs/cost-contract.md); nothing is divided by the limit, the episode's length or a spread. This is exact: the gradient
of the Lagrangian J − Σ λ_i (J_ci − d_i) in λ_i is −Δ_i, and λ is a price, reward for a unit of cost, which is the same
number for an episode as for one step, so λ multiplies A_c as it stands. A task whose costs are counted in units k times
smaller needs a λ that is k times smaller from a Δ that is k times larger: divide the rates by k².

``LAGRANGIAN`` differs in both: Adam cancels the size of Δ, so that its rate is the speed of λ itself, and its λ counts
in deviations of A (``penalised_by_deviations``), so that the same speed suits rewards of any size.

**No cap.** λ has no upper bound: a bound below the price that the task needs turns the method into its unconstrained
version. The integral of ``ASCENT`` and ``PID`` is kept at or above zero, so that long obedience does not have to be
paid back; ``LAGRANGIAN``, as published, has no such floor: its x falls on while λ = softplus(x) is already nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from cppo.settings import setting, settings
from cppo.types import Metrics


class State(NamedTuple):
    """One price for each constraint, and what the rule remembers."""

    value: Float[Array, " constraint"]  # λ
    integral: Float[Array, " constraint"]  # Σ Δ, weighted by the rate
    violation: Float[Array, " constraint"]  # Δ, smoothed
    cost: Float[Array, " constraint"]  # J_c, smoothed


class Driven(NamedTuple):
    """One price for each constraint, and the number that Adam moves in its place."""

    value: Float[Array, " constraint"]  # λ = softplus(x)
    raw: Float[Array, " constraint"]  # x
    memory: optax.OptState


Prices = State | Driven


def penalised(
    adv: Float[Array, " n"], cost_adv: Float[Array, "constraint n"], price: Float[Array, " constraint"]
) -> Float[Array, " n"]:
    """(A − Σ λ_i A_ci)/(1 + Σ λ_i).

    >>> penalised(jnp.array([3.0]), jnp.array([[1.0], [4.0]]), jnp.array([1.0, 0.0])).tolist()
    [1.0]
    """
    return (adv - price @ cost_adv) / (1.0 + jnp.sum(price))


def penalised_by_deviations(
    adv: Float[Array, " n"], cost_adv: Float[Array, "constraint n"], price: Float[Array, " constraint"]
) -> Float[Array, " n"]:
    """(A − σ Σ λ_i A_ci)/(1 + Σ λ_i), σ the deviation of A in this batch: the price of a unit of cost is λ deviations.

    Up to the factor σ, which keeps the result in units of reward, it is the objective of Ray et al.'s code, which
    standardises A and leaves A_c as it is. A price that moves by a fixed rate needs such a unit: without it a task
    whose rewards are 20 times larger needs 20 times as many updates to find its price.

    >>> penalised_by_deviations(jnp.array([-3.0, 3.0]), jnp.array([[-1.0, 1.0]]), jnp.array([0.5])).tolist()
    [-1.0, 1.0]
    """
    return penalised(adv, jnp.std(adv) * cost_adv, price)


@dataclass(frozen=True)
class Multiplier:
    """``init(settings, constraints) -> prices``, ``update(settings, prices, cost, limit) -> prices``, what to log."""

    init: Callable[[Any, int], Prices]
    update: Callable[[Any, Any, Array, Array], Prices]
    metrics: Callable[[Prices], Metrics] = lambda prices: {"multiplier": prices.value}
    penalised: Callable[[Array, Array, Array], Array] = penalised


@settings
class Lagrangian:
    """Settings of the rule of Ray et al. 2019."""

    multiplier_rate: float = setting(
        5e-2, "Adam's rate for x, λ being softplus(x): about the most that λ changes in an update.", at_least=0.0
    )
    multiplier_start: float = setting(
        1.0, "First λ, deviations of A for a unit of cost; softplus reaches every price but zero.", above=0.0
    )


@settings
class Ascent:
    """Settings of plain gradient ascent; PID's integral part uses them, too."""

    multiplier_rate: float = setting(
        5e-2, "Rate at which λ follows J_c − d, a unit of episode cost being one (PID: K_I).", at_least=0.0
    )
    multiplier_start: float = setting(
        0.0,
        "First λ. Zero, because the price is unknown: the method is unconstrained until it sees a violation.",
        at_least=0.0,
    )


@settings
class Control(Ascent):
    """Settings of the PID rule; with both gains zero it is gradient ascent."""

    multiplier_proportional: float = setting(
        0.1, "K_P, on the smoothed violation: what damps the oscillation of plain ascent.", at_least=0.0
    )
    multiplier_derivative: float = setting(
        0.1, "K_D, on the rise of the smoothed cost since the last batch: acts ahead of the limit.", at_least=0.0
    )
    multiplier_smoothing: float = setting(
        0.5, "Share of the old value in smoothed violation and cost; K_P and K_D pass noise.", at_least=0.0, below=1.0
    )


def _init_none(settings: object, constraints: int) -> State:
    zeros = jnp.zeros(constraints)
    return State(zeros, zeros, zeros, zeros)


def _init_lagrangian(settings: Lagrangian, constraints: int) -> Driven:
    start = jnp.full(constraints, settings.multiplier_start, jnp.float32)
    raw = start + jnp.log(-jnp.expm1(-start))  # softplus⁻¹, without the overflow of log(e^λ − 1)
    return Driven(start, raw, optax.scale_by_adam().init(raw))


def _init_ascent(settings: Ascent, constraints: int) -> State:
    zeros = jnp.zeros(constraints)
    start = jnp.full(constraints, settings.multiplier_start, jnp.float32)
    return State(start, start, zeros, zeros * jnp.nan)


def _update_none(settings: object, state: State, cost: Array, limit: Array) -> State:
    return state


def _update_lagrangian(settings: Lagrangian, prices: Driven, cost: Array, limit: Array) -> Driven:
    """One step of Adam on the loss −x (J_c − d), then λ = softplus(x).

    The loss is linear in x, not in λ: the step does not vanish with softplus' slope where λ is small. Adam divides by
    the root mean square of the violations so far, so a step is at most about the rate, however large a violation is.
    """
    step, memory = optax.scale_by_adam().update(limit - cost, prices.memory)
    raw = prices.raw - settings.multiplier_rate * jnp.asarray(step)
    return Driven(jax.nn.softplus(raw), raw, memory)


def _update_ascent(settings: Ascent, state: State, cost: Array, limit: Array) -> State:
    """λ ← max(0, λ + η (J_c − d))."""
    value = jnp.maximum(state.value + settings.multiplier_rate * (cost - limit), 0.0)
    return State(value, value, cost - limit, cost)


def _update_control(settings: Control, state: State, cost: Array, limit: Array) -> State:
    """λ = max(0, K_P Δ + I + K_D (J_c − J_c,before)₊), I ← max(0, I + K_I Δ): the multiplier of Stooke et al. 2020.

    Δ in the proportional part and J_c in the derivative part are smoothed exponentially, as in the authors' code.
    """
    keep = jnp.where(jnp.isnan(state.cost), 0.0, settings.multiplier_smoothing)  # the first batch has no past
    before = jnp.where(jnp.isnan(state.cost), cost, state.cost)
    violation = keep * state.violation + (1 - keep) * (cost - limit)
    smooth = keep * before + (1 - keep) * cost
    integral = jnp.maximum(state.integral + settings.multiplier_rate * (cost - limit), 0.0)
    rise = jnp.maximum(smooth - before, 0.0)
    value = settings.multiplier_proportional * violation + integral + settings.multiplier_derivative * rise
    return State(jnp.maximum(value, 0.0), integral, violation, smooth)


NONE = Multiplier(_init_none, _update_none, lambda state: {})  # λ = 0: the limit is ignored
LAGRANGIAN = Multiplier(_init_lagrangian, _update_lagrangian, penalised=penalised_by_deviations)  # Ray et al. 2019
ASCENT = Multiplier(_init_ascent, _update_ascent)
PID = Multiplier(_init_ascent, _update_control)
