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
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from cppo.maths.surrogate import Surrogate
from cppo.settings import setting, settings
from cppo.types import Metrics, PyTree

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
    """Approximate H⁻¹ b (Hestenes & Stiefel 1952) until the residual is below ``tolerance``·‖b‖.

    Ours, since that of ``jax.scipy`` tells neither its residual nor its iterations, which the metrics of every update
    show: an update that was not solved for must not pass for one that was. The iterates are the same.
    """
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


class Model(NamedTuple):
    """Reward (first) and costs around a policy, functions of all parameters in a row: linear, and as they truly are."""

    params: Vector
    as_tree: Callable[[Vector], PyTree]
    changes: Callable[[Vector], Array]  # predicted change of reward and costs, per step
    mean_kl: Callable[[Vector], Array]
    product: Product
    gradients: Float[Array, "signal p"]
    solved: Solved  # H⁻¹ of each gradient

    def told(self, searched: Searched, length: Array, settings: Region) -> Metrics:
        """What the step came to, with episodes of this length."""
        change = length * self.changes(searched.params)
        return {
            "kl": self.mean_kl(searched.params),
            "kl_limit": jnp.asarray(settings.kl),
            "search_accepted": searched.accepted,
            "search_tries": searched.tries,
            "solver_residual": jnp.max(self.solved.residual),
            "predicted_reward_change": change[0],
            "predicted_cost_change": change[1:],
        }


def model(terms: Surrogate, policy: PyTree, signals: Float[Array, "signal n"], settings: Region) -> Model:
    """The model of ``signals``, the advantages of reward and costs, around ``policy``."""
    params, as_tree = ravel_pytree(policy)

    def changes(flat: Vector) -> Array:
        return signals @ (terms.ratio(as_tree(flat)) - 1.0) / signals.shape[1]

    def mean_kl(flat: Vector) -> Array:
        return terms.mean_kl(as_tree(flat))

    product = fisher_product(mean_kl, params, settings.damping)
    gradients = jax.jacrev(changes)(params)
    solved = jax.vmap(lambda v: conjugate_gradient(product, v, settings.solver_iterations))(gradients)
    return Model(params, as_tree, changes, mean_kl, product, gradients, solved)
