"""From one world written as pure functions to W worlds with time limits and autoreset."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from cppo.types import AnyArray, EnvSpec, Key, PyTree, Step


class World(Protocol):
    """One world as pure functions. The time limit (``spec.episode_length``) is not its business."""

    spec: EnvSpec

    def reset(self, key: Key) -> tuple[PyTree, Float[Array, " obs"]]: ...

    def step(self, state: PyTree, action: Array, key: Key) -> tuple[PyTree, Transition]: ...


class Transition(NamedTuple):
    """What a step of one world, or of many, gives besides its state."""

    obs: Float[AnyArray, "*world obs"]
    reward: Float[AnyArray, "*world"]
    cost: Float[AnyArray, "*world constraint"]
    terminated: Bool[AnyArray, "*world"]


class WorldState(NamedTuple):
    """State of W worlds between two steps."""

    world: Any
    key: Key
    age: Int[Array, " world"]


class JaxEnv:
    """W copies of a ``World``; see ``cppo.types.BatchedEnv`` for the contract."""

    backend = "jax"
    jittable = True
    resumable = True

    def __init__(self, world: World, num_envs: int):
        self.world = world
        self.spec = world.spec
        self.num_envs = num_envs

    def init(self, keys: AnyArray, ages: Int[AnyArray, " world"] | None = None) -> tuple[WorldState, Array]:
        next_keys, reset_keys = _split(keys)
        world, obs = jax.vmap(self.world.reset)(reset_keys)
        ages = jnp.zeros(self.num_envs, jnp.int32) if ages is None else jnp.asarray(ages, jnp.int32)
        return WorldState(world, next_keys, ages), obs

    def advance(self, state: WorldState, actions: AnyArray) -> tuple[WorldState, Step]:
        next_keys, step_keys, reset_keys = _split(state.key, 3)
        world, seen = jax.vmap(self.world.step)(state.world, jnp.asarray(actions), step_keys)
        age = state.age + 1
        truncated = (age >= self.spec.episode_length) & ~seen.terminated
        ended = seen.terminated | truncated
        fresh_world, fresh_obs = jax.vmap(self.world.reset)(reset_keys)
        world, obs = select(ended, (fresh_world, fresh_obs), (world, seen.obs))
        step = Step(obs, seen.obs, seen.reward, seen.cost, seen.terminated, truncated)
        return WorldState(world, next_keys, jnp.where(ended, 0, age)), step


def _split(keys: AnyArray, count: int = 2) -> tuple[Key, ...]:
    parts = jax.vmap(lambda key: jax.random.split(key, count))(keys)
    return tuple(parts[:, i] for i in range(count))


def select(mask: Bool[AnyArray, " world"], new: PyTree, old: PyTree) -> PyTree:
    """``new`` where the mask holds, leaf by leaf, always as new arrays: NumPy's where the mask is."""
    where = np.where if isinstance(mask, np.ndarray) else jnp.where
    return jax.tree.map(lambda a, b: where(mask.reshape(mask.shape + (1,) * (b.ndim - 1)), a, b), new, old)
