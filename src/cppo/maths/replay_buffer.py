"""A ring of past transitions: fixed memory, newest in, oldest out; part of an off-policy method's training state."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num

from cppo.types import ActionSpace, Batch, Box, EnvSpec, Key, UsageError


class Transitions(NamedTuple):
    """Steps in no particular order."""

    obs: Float[Array, "n *obs"]
    action: Num[Array, "n *action"]
    next_obs: Float[Array, "n *obs"]  # true successors
    reward: Float[Array, " n"]
    cost: Float[Array, "n constraint"]
    terminated: Bool[Array, " n"]


class Replay(NamedTuple):
    steps: Transitions  # leading axis: capacity; step number i lies at i modulo capacity
    added: Int[Array, ""]  # steps ever added

    @property
    def capacity(self) -> int:
        return self.steps.reward.shape[-1]

    @property
    def position(self) -> Int[Array, ""]:
        """Where the next step goes."""
        return self.added % self.capacity

    @property
    def filled(self) -> Int[Array, ""]:
        return jnp.minimum(self.added, self.capacity)


def empty(spec: EnvSpec, capacity: int) -> Replay:
    obs = jnp.zeros((capacity, *spec.obs_shape))
    action = jnp.zeros((capacity, *spec.action.shape), _action_type(spec.action))
    cost = jnp.zeros((capacity, spec.num_costs))
    flags = jnp.zeros(capacity, bool)
    return Replay(Transitions(obs, action, obs, jnp.zeros(capacity), cost, flags), jnp.zeros((), jnp.int32))


def add(replay: Replay, batch: Batch) -> Replay:
    """The batch's steps in place of the oldest ones."""
    capacity, number = replay.capacity, batch.reward.size
    if number > capacity:
        raise UsageError(
            f"replay_size {capacity} is below batch_size {number}; use for example replay_size={10 * number}."
        )
    new = Transitions(batch.obs, batch.action, batch.next_obs, batch.reward, batch.cost, batch.terminated)
    slots = (replay.position + jnp.arange(number)) % capacity
    put = lambda old, x: old.at[slots].set(x.reshape(-1, *x.shape[2:]).astype(old.dtype))  # noqa: E731
    return Replay(jax.tree.map(put, replay.steps, new), replay.added + number)


def sample(replay: Replay, key: Key, number: int) -> Transitions:
    """Uniformly, with repetition."""
    index = jax.random.randint(key, (number,), 0, jnp.maximum(replay.filled, 1))
    return jax.tree.map(lambda x: x[index], replay.steps)


def _action_type(action: ActionSpace) -> type:
    return jnp.float32 if isinstance(action, Box) else jnp.int32
