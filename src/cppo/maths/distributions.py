"""Action distributions: a diagonal Gaussian, a categorical and several of them at once, each with one log density, one
KL, one entropy.

``kl(old, new)`` is the forward divergence KL(old‖new), summed over action dimensions. Averaged over the states of a
batch it is *the* KL of this project, wherever a limit, a log or a line search speaks of one.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cppo.types import Key

_LOG_2PI = 1.8378770664093453


class Gaussian(NamedTuple):
    """Independent normal for each action dimension, unbounded; the environment's bounds clip what is executed."""

    mean: Float[Array, " action"]
    log_std: Float[Array, " action"]

    def sample(self, key: Key) -> Float[Array, " action"]:
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape, self.mean.dtype)

    def mode(self) -> Float[Array, " action"]:
        return self.mean

    def log_prob(self, action: Float[Array, " action"]) -> Float[Array, ""]:
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std - 0.5 * _LOG_2PI, axis=-1)

    def kl(self, new: Gaussian) -> Float[Array, ""]:
        ratio = jnp.exp(2 * (self.log_std - new.log_std))
        shift = ((self.mean - new.mean) * jnp.exp(-new.log_std)) ** 2
        return jnp.sum(0.5 * (ratio + shift - 1.0) + new.log_std - self.log_std, axis=-1)

    def entropy(self) -> Float[Array, ""]:
        return jnp.sum(self.log_std + 0.5 * (1.0 + _LOG_2PI), axis=-1)


class Categorical(NamedTuple):
    """Over the last axis; a leading one is of several choices at once."""

    logits: Float[Array, "*choice option"]

    def sample(self, key: Key) -> Int[Array, "*choice"]:
        return jax.random.categorical(key, self.logits)

    def mode(self) -> Int[Array, "*choice"]:
        return jnp.argmax(self.logits, axis=-1)

    def log_prob(self, action: Int[Array, "*choice"]) -> Float[Array, "*choice"]:
        logp = jax.nn.log_softmax(self.logits)
        return jnp.take_along_axis(logp, action[..., None].astype(jnp.int32), axis=-1)[..., 0]

    def kl(self, new: Categorical) -> Float[Array, "*choice"]:
        old_logp, new_logp = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(new.logits)
        return jnp.sum(jnp.exp(old_logp) * (old_logp - new_logp), axis=-1)

    def entropy(self) -> Float[Array, "*choice"]:
        logp = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(logp) * logp, axis=-1)


IMPOSSIBLE = -1e9  # logit of a choice that does not exist; finite, so that 0 · logit stays 0


class FactorisedCategorical(NamedTuple):
    """Independent categoricals, one for each choice; shorter ones are filled up with ``IMPOSSIBLE`` logits.

    >>> both = FactorisedCategorical(jnp.asarray([[0.0, 0.0, 0.0], [0.0, 0.0, IMPOSSIBLE]]))
    >>> print(f"{jnp.exp(both.log_prob(jnp.asarray([2, 1]))):.4f}")
    0.1667
    """

    logits: Float[Array, "choice option"]

    def sample(self, key: Key) -> Int[Array, " choice"]:
        return jax.random.categorical(key, self.logits, axis=-1)

    def mode(self) -> Int[Array, " choice"]:
        return jnp.argmax(self.logits, axis=-1)

    def log_prob(self, action: Int[Array, " choice"]) -> Float[Array, ""]:
        return jnp.sum(Categorical(self.logits).log_prob(action), axis=-1)

    def kl(self, new: FactorisedCategorical) -> Float[Array, ""]:
        return jnp.sum(Categorical(self.logits).kl(Categorical(new.logits)), axis=-1)

    def entropy(self) -> Float[Array, ""]:
        return jnp.sum(Categorical(self.logits).entropy(), axis=-1)


Distribution = Gaussian | Categorical | FactorisedCategorical
