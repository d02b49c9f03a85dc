"""What stands between an observation and the layers of policy and critics: nothing, a CNN, a GRU, or a user's module.

An encoder is an Equinox module made by ``Encoder(obs_shape, key=key)`` that turns one observation into a vector.
Policy and critics have one each.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cppo.errors import blame
from cppo.imports import USER, Trust, is_path, resolve
from cppo.types import Key, UsageError

NAMES = ("auto", "mlp", "cnn", "gru")
MakeEncoder = Callable[..., Callable[[Array], Array]]


def choose(name: str, obs_shape: tuple[int, ...], trust: Trust = USER) -> MakeEncoder | None:
    """The encoder called ``name`` for observations of a shape; None: the layers see the observation itself."""
    if name == "auto":
        return CNN if len(obs_shape) == 3 else None
    if name == "mlp":
        return None
    if name == "cnn":
        if len(obs_shape) != 3:
            raise UsageError(f"encoder is 'cnn', but observations have shape {obs_shape}; it takes (height, width, n).")
        return CNN
    if name == "gru":
        return GRU
    if is_path(name):
        return resolve(name, "encoder", trust)
    raise UsageError(f"encoder is {name!r}; it must be one of {', '.join(NAMES)} or an import path module:Class.")


def features(make: MakeEncoder, obs_shape: tuple[int, ...]) -> int:
    """Length of the vector that an encoder gives; refuses one that gives none."""
    try:
        encoder = eqx.filter_eval_shape(lambda key: make(obs_shape, key=key), jax.random.PRNGKey(0))
        out = eqx.filter_eval_shape(lambda e, x: e(x), encoder, jnp.zeros(obs_shape))
    except UsageError:
        raise
    except Exception as error:
        how = f"It is made as Encoder(obs_shape, key=key) and called with one observation, here of shape {obs_shape}."
        raise blame("the encoder cannot be used", error, how) from error
    if getattr(out, "ndim", None) != 1:
        raise UsageError(f"the encoder returns {out}; it must return one vector for one observation.")
    return out.shape[0]


class CNN(eqx.Module):
    """Up to three 3×3 convolutions of stride 2 with 16, 32 and 64 channels and ReLU; pictures of any size.

    The layers only hold the weights, which are multiplied as matrices (``_convolved``): XLA's own convolutions take the
    lanes of a learner for groups of channels, and inside its loops over minibatches they take minutes on a CPU.

    Channels come last, or first where the first axis is at most 4 and the last one longer.
    """

    layers: tuple[eqx.nn.Conv2d, ...]
    channels_first: bool = eqx.field(static=True)

    def __init__(self, obs_shape: tuple[int, ...], *, key: Key):
        self.channels_first = obs_shape[0] <= 4 < obs_shape[-1]
        channels = obs_shape[0] if self.channels_first else obs_shape[-1]
        side = min(obs_shape[1:] if self.channels_first else obs_shape[:2])
        layers = []
        for index, width in enumerate((16, 32, 64)):
            if index and side <= 4:
                break
            layer_key = jax.random.fold_in(key, index)
            layers.append(eqx.nn.Conv2d(channels, width, kernel_size=3, stride=2, padding=1, key=layer_key))
            channels, side = width, -(-side // 2)
        self.layers = tuple(layers)

    def __call__(self, picture: Float[Array, "a b c"]) -> Float[Array, " features"]:
        x = jnp.moveaxis(picture, 0, -1) if self.channels_first else picture
        for layer in self.layers:
            x = jax.nn.relu(_convolved(layer, x))
        return jnp.moveaxis(x, -1, 0).reshape(prod(x.shape))


def _convolved(layer: eqx.nn.Conv2d, x: Float[Array, "row column channel"]) -> Float[Array, "row2 column2 width"]:
    """The 3×3 convolution of stride 2 as one product: the nine neighbours of each place, times the weights."""
    rows, columns = (-(-size // 2) for size in x.shape[:2])
    x = jnp.pad(x, ((1, 1), (1, 1), (0, 0)))
    shifted = [x[i : i + 2 * rows - 1 : 2, j : j + 2 * columns - 1 : 2] for i in range(3) for j in range(3)]
    neighbours = jnp.concatenate(shifted, axis=-1).reshape(rows * columns, -1)
    weights = layer.weight.transpose(2, 3, 1, 0).reshape(neighbours.shape[-1], -1)
    bias = 0.0 if layer.bias is None else layer.bias[:, 0, 0]
    return (neighbours @ weights + bias).reshape(rows, columns, -1)


class GRU(eqx.Module):
    """A gated recurrent unit of 64 over a window of observations (``envs/history.py``); the newest one is passed on."""

    cell: eqx.nn.GRUCell

    def __init__(self, obs_shape: tuple[int, ...], *, key: Key):
        self.cell = eqx.nn.GRUCell(obs_shape[-1], 64, key=key)

    def __call__(self, window: Float[Array, "time obs"]) -> Float[Array, " features"]:
        remember = lambda state, obs: (self.cell(obs, state), None)  # noqa: E731
        state, _ = jax.lax.scan(remember, jnp.zeros(self.cell.hidden_size), window)
        return jnp.concatenate([state, window[-1]])
