"""Policy and critics: Equinox modules split once into arrays and structure.

``Networks`` is the static half (hashable, closed over by jitted functions); parameters are pytrees of arrays that live
in the training state. ``policy(params, obs)`` gives the parameters of an action distribution for one observation;
``value(params, obs)`` one number for each head. Everything is written for one observation; callers ``vmap``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cppo.imports import USER, Trust
from cppo.maths import distributions, q_critics
from cppo.networks import encoders
from cppo.types import Box, Discrete, EnvSpec, Key, MultiDiscrete, PyTree

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
}


class Body(eqx.Module):
    """An encoder (or none) and layers of any widths. Inputs beyond the observation's go straight to the layers."""

    encoder: Callable[[Array], Array] | None
    layers: tuple[eqx.nn.Linear, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)
    obs_shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, inputs: Float[Array, "..."]) -> Float[Array, " out"]:
        x = jnp.ravel(inputs)
        if self.encoder is not None:
            size = prod(self.obs_shape)
            x = jnp.concatenate([self.encoder(x[:size].reshape(self.obs_shape)), x[size:]])
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class GaussianHead(eqx.Module):
    """Mean by a network, log standard deviation a free parameter for each action dimension (as in the paper's
    baselines)."""

    body: Body
    log_std: Array

    def __call__(self, obs: Float[Array, "*obs"]) -> distributions.Gaussian:
        return distributions.Gaussian(self.body(obs), self.log_std)


class CategoricalHead(eqx.Module):
    body: Body

    def __call__(self, obs: Float[Array, "*obs"]) -> distributions.Categorical:
        return distributions.Categorical(self.body(obs))


class FactorisedHead(eqx.Module):
    body: Body
    sizes: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, obs: Float[Array, "*obs"]) -> distributions.FactorisedCategorical:
        logits = self.body(obs).reshape(len(self.sizes), max(self.sizes))
        exists = jnp.arange(max(self.sizes)) < jnp.asarray(self.sizes)[:, None]
        return distributions.FactorisedCategorical(jnp.where(exists, logits, distributions.IMPOSSIBLE))


Head = GaussianHead | CategoricalHead | FactorisedHead


@dataclass(frozen=True)
class Networks:
    """Structure of policy and critics for one environment, rebuilt from the settings (never saved)."""

    spec: EnvSpec
    hidden: tuple[int, ...]
    activation: str
    more_inputs: int = 0  # what critics see beside the observation: the episode's age, or an action
    make_encoder: encoders.MakeEncoder | None = None  # None: the layers see the observation itself

    def of_actions(self) -> Networks:
        """The same with critics that take an observation followed by an action."""
        action = self.spec.action
        inputs = action.size if isinstance(action, Box) else q_critics.options(action)
        return dataclasses.replace(self, more_inputs=inputs)

    def init_policy(self, key: Key, initial_std: Array | float) -> PyTree:
        params = eqx.filter(self._build_policy(key), eqx.is_array)
        if not isinstance(self.spec.action, Box):
            return params
        log_std = jnp.full(self.spec.action.size, jnp.log(initial_std), jnp.float32)
        return eqx.tree_at(lambda head: head.log_std, params, log_std)

    def init_value(self, key: Key) -> PyTree:
        return eqx.filter(self._build_value(key), eqx.is_array)

    def policy(self, params: PyTree, obs: Float[Array, "*obs"]) -> distributions.Distribution:
        return self.policy_module(params)(obs)

    def value(self, params: PyTree, obs: Float[Array, "..."]) -> Float[Array, ""]:
        """``obs`` is an observation, or one flattened with ``more_inputs`` behind it."""
        return self.value_module(params)(obs)[0]

    def policy_module(self, params: PyTree) -> Head:
        """Structure and arrays together, as an Equinox module."""
        return eqx.combine(params, _static(self._build_policy))

    def value_module(self, params: PyTree) -> Body:
        return eqx.combine(params, _static(self._build_value))

    def _build_policy(self, key: Key) -> Head:
        action = self.spec.action
        if isinstance(action, Discrete):
            return CategoricalHead(self._body(key, action.n, output_scale=0.01))
        if isinstance(action, MultiDiscrete):
            outputs = len(action.sizes) * max(action.sizes)
            return FactorisedHead(self._body(key, outputs, output_scale=0.01), action.sizes)
        body = self._body(key, action.size, output_scale=0.01)
        return GaussianHead(body, jnp.zeros(action.size, jnp.float32))

    def _build_value(self, key: Key) -> Body:
        return self._body(key, 1, output_scale=1.0, more_inputs=self.more_inputs)

    def _body(self, key: Key, outputs: int, output_scale: float, more_inputs: int = 0) -> Body:
        """Normal weights of variance gain²/inputs, zero biases; a small last layer starts the policy near zero mean."""
        shape = self.spec.obs_shape
        make = self.make_encoder
        encoder = None if make is None else make(shape, key=jax.random.fold_in(key, len(self.hidden) + 1))
        inputs = more_inputs + (prod(shape) if make is None else encoders.features(make, shape))
        widths = (inputs, *self.hidden, outputs)
        layers = []
        for index, (before, after) in enumerate(pairwise(widths)):
            gain = output_scale if index == len(self.hidden) else 1.0
            weight = gain * jax.random.normal(jax.random.fold_in(key, index), (after, before)) / before**0.5
            layer = eqx.nn.Linear(before, after, key=key)
            layers.append(eqx.tree_at(lambda lin: (lin.weight, lin.bias), layer, (weight, jnp.zeros(after))))
        return Body(encoder, tuple(layers), ACTIVATIONS[self.activation], shape)


def networks_for(spec: EnvSpec, settings: Any, trust: Trust = USER) -> Networks:
    """Policy and critics as an algorithm's settings describe them, checked."""
    make = encoders.choose(settings.encoder, spec.obs_shape, trust)
    if make is not None:
        encoders.features(make, spec.obs_shape)
    return Networks(spec, settings.hidden, settings.activation, int(settings.critic_clock), make)


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
    """From the policy's units to the environment's; the identity where actions are numbers of choices."""
    if isinstance(spec.action, Box):
        return ActionScale(jnp.asarray(spec.action.low), jnp.asarray(spec.action.high)).to_env(action)
    return action
