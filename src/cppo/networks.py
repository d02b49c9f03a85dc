"""Policy and critics: Equinox modules split once into arrays and structure.

``Networks`` is the static half (hashable, closed over by jitted functions); parameters are pytrees of arrays that live
in the training state. ``policy(params, obs)`` gives the parameters of an action distribution for one observation;
``value(params, obs)`` one number for each head. Everything is written for one observation; callers ``vmap``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cppo.maths import distributions
from cppo.types import Box, Discrete, EnvSpec, Key, PyTree, UsageError

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
}


class GaussianHead(eqx.Module):
    """Mean by a network, log standard deviation a free parameter for each action dimension (as in the paper's
    baselines)."""

    body: eqx.nn.MLP
    log_std: Array

    def __call__(self, obs: Float[Array, " obs"]) -> distributions.Gaussian:
        return distributions.Gaussian(self.body(obs), self.log_std)


class CategoricalHead(eqx.Module):
    body: eqx.nn.MLP

    def __call__(self, obs: Float[Array, " obs"]) -> distributions.Categorical:
        return distributions.Categorical(self.body(obs))


@dataclass(frozen=True)
class Networks:
    """Structure of policy and critics for one environment, rebuilt from the settings (never saved)."""

    spec: EnvSpec
    hidden: tuple[int, ...]
    activation: str
    clock: bool = False  # critics take the episode's age as one more input

    def init_policy(self, key: Key, initial_std: Array | float) -> PyTree:
        params = eqx.filter(self._build_policy(key), eqx.is_array)
        if isinstance(self.spec.action, Discrete):
            return params
        log_std = jnp.full(self.spec.action.size, jnp.log(initial_std), jnp.float32)
        return eqx.tree_at(lambda head: head.log_std, params, log_std)

    def init_value(self, key: Key) -> PyTree:
        return eqx.filter(self._build_value(key), eqx.is_array)

    def policy(self, params: PyTree, obs: Float[Array, " obs"]) -> distributions.Distribution:
        return eqx.combine(params, _static(self._build_policy))(obs)

    def value(self, params: PyTree, obs: Float[Array, " obs"]) -> Float[Array, ""]:
        return eqx.combine(params, _static(self._build_value))(obs)[0]

    def _build_policy(self, key: Key) -> eqx.Module:
        action = self.spec.action
        outputs = action.n if isinstance(action, Discrete) else action.size
        body = self._mlp(key, outputs, output_scale=0.01)
        if isinstance(action, Discrete):
            return CategoricalHead(body)
        return GaussianHead(body, jnp.zeros(action.size, jnp.float32))

    def _build_value(self, key: Key) -> eqx.nn.MLP:
        return self._mlp(key, 1, output_scale=1.0, more_inputs=int(self.clock))

    def _mlp(self, key: Key, outputs: int, output_scale: float, more_inputs: int = 0) -> eqx.nn.MLP:
        """Normal weights of variance gain²/inputs, zero biases; a small last layer starts the policy near zero mean."""
        if len(set(self.hidden)) > 1:
            raise UsageError(f"hidden={self.hidden}: all hidden layers must have the same width, for example (64, 64).")
        if len(self.spec.obs_shape) != 1:
            raise UsageError(f"{self.spec.name} has observations of shape {self.spec.obs_shape}; an MLP takes vectors.")
        inputs = self.spec.obs_shape[0] + more_inputs
        mlp = eqx.nn.MLP(inputs, outputs, self.hidden[0], len(self.hidden), ACTIVATIONS[self.activation], key=key)
        layers = []
        for index, layer in enumerate(mlp.layers):
            gain = output_scale if index == len(mlp.layers) - 1 else 1.0
            weight = jax.random.normal(jax.random.fold_in(key, index), layer.weight.shape)
            weight = gain * weight / layer.weight.shape[1] ** 0.5
            layers.append(eqx.tree_at(lambda lin: (lin.weight, lin.bias), layer, (weight, jnp.zeros_like(layer.bias))))
        return eqx.tree_at(lambda net: net.layers, mlp, tuple(layers))


def _static(build: Callable[[Key], eqx.Module]) -> PyTree:
    """A module's structure without its arrays; tracing only, so it costs nothing inside jit."""
    shape = eqx.filter_eval_shape(build, jax.random.PRNGKey(0))
    return eqx.partition(shape, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))[1]


class ActionScale(NamedTuple):
    """Policies act in units where each bound is ±1; the environment sees its own units, clipped to its bounds."""

    low: Array
    high: Array

    def to_env(self, action: Array) -> Array:
        clipped = jnp.clip(action, -1.0, 1.0)
        return self.low + 0.5 * (clipped + 1.0) * (self.high - self.low)


def scale_action(spec: EnvSpec, action: Array) -> Array:
    """From the policy's units to the environment's; the identity for Discrete actions."""
    if isinstance(spec.action, Box):
        return ActionScale(jnp.asarray(spec.action.low), jnp.asarray(spec.action.high)).to_env(action)
    return action
