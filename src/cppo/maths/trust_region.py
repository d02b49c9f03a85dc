"""The geometry of a KL ball around a policy: Fisher-vector products, conjugate gradient, backtracking line search.

Second-order methods work on flat parameter vectors in the metric H = F + c I, with F the Fisher matrix, which is the
Hessian of the mean KL(π‖π_θ) at θ = π's parameters, and c a damping that keeps H regular where a batch says nothing
about a parameter. The ball is ½ xᵀ H x ≤ δ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cppo.settings import setting, settings

Vector = Float[Array, " p"]
Product = Callable[[Vector], Vector]


@settings
class Region:
    """Settings of every second-order method."""

    kl: float = setting(0.01, "Trust region δ: largest mean forward KL(π‖π_θ) of an update.", above=0.0)
    damping: float = setting(
        0.1,
        "Added to the Fisher matrix's diagonal; keeps parameters still that the batch says nothing about.",
        at_least=0.0,
    )
    solver_iterations: int = setting(
        10, "Steps of conjugate gradient; the residual is in the metrics, 10 is the original's choice.", at_least=1
    )
    search_shrink: float = setting(0.8, "Factor between two tries of the line search.", above=0.0, below=1.0)
    search_tries: int = setting(15, "Tries of the line search; the last is 0.8¹⁴ = 4% of the step.", at_least=1)


def fisher_product(mean_kl: Callable[[Vector], Array], params: Vector, damping: Array | float) -> Product:
    """x ↦ (F + c I) x by forward over reverse differentiation, without forming F.

    The gradient is linearised once, so that a product pays for its own pass through the network alone.

    >>> half_square = lambda p: 0.5 * jnp.sum(jnp.array([1.0, 4.0]) * p**2)
    >>> fisher_product(half_square, jnp.zeros(2), 0.5)(jnp.ones(2)).tolist()
    [1.5, 4.5]
    """
    _, hessian = jax.linearize(jax.grad(mean_kl), params)
    return lambda x: hessian(x) + damping * x


class Solved(NamedTuple):
    """Result of conjugate gradient."""

    x: Vector
    residual: Float[Array, ""]  # ‖b − H x‖/‖b‖
    iterations: Int[Array, ""]


def conjugate_gradient(product: Product, b: Vector, iterations: int, tolerance: float = 1e-5) -> Solved:
    """Approximate H⁻¹ b (Hestenes & Stiefel 1952) until the residual is below ``tolerance``·‖b‖."""
    size = b @ b

    def go_on(carry: tuple[Array, ...]) -> Array:
        _, _, _, square, count = carry
        return (count < iterations) & (square > tolerance**2 * size)

    def one(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        x, rest, direction, square, count = carry
        image = product(direction)
        length = square / jnp.maximum(direction @ image, jnp.finfo(b.dtype).tiny)
        x, rest = x + length * direction, rest - length * image
        shrunk = rest @ rest
        return x, rest, rest + shrunk / square * direction, shrunk, count + 1

    x, _, _, square, count = jax.lax.while_loop(go_on, one, (jnp.zeros_like(b), b, b, size, jnp.zeros((), jnp.int32)))
    return Solved(x, jnp.sqrt(square / jnp.where(size > 0, size, 1.0)), count)


class Searched(NamedTuple):
    """Result of a line search; ``accepted`` false means that no length passed and ``params`` are the old ones."""

    params: Vector
    length: Float[Array, ""]  # accepted share of the proposed step, 0 if none
    tries: Int[Array, ""]
    accepted: Bool[Array, ""]


def backtrack(
    acceptable: Callable[[Vector], Array], params: Vector, step: Vector, *, shrink: Array | float, tries: int
) -> Searched:
    """The longest of step, shrink·step, shrink²·step, … whose end is ``acceptable`` (a NaN never is)."""

    def go_on(carry: Searched) -> Array:
        return ~carry.accepted & (carry.tries < tries)

    def one(carry: Searched) -> Searched:
        length = jnp.asarray(shrink, params.dtype) ** carry.tries
        end = params + length * step
        good = acceptable(end)
        return Searched(jnp.where(good, end, params), jnp.where(good, length, 0.0), carry.tries + 1, good)

    start = Searched(params, jnp.zeros((), params.dtype), jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    return jax.lax.while_loop(go_on, one, start)
