"""Encoders that a user might write."""

import equinox as eqx
import jax
import jax.numpy as jnp


class Squares(eqx.Module):
    """A user's module: a vector and its squares, scaled by a parameter."""

    scale: jax.Array

    def __init__(self, obs_shape, *, key):
        self.scale = jnp.ones(obs_shape[0])

    def __call__(self, obs):
        return jnp.concatenate([obs, self.scale * obs**2])


class Matrix(Squares):
    def __call__(self, obs):
        return jnp.ones((2, 2))
