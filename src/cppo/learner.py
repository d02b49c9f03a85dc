"""One iteration of training as a compiled function of the whole training state, all seeds at once.

A *lane* is one seed with its settings. ``collect`` then ``update`` is all there is; where the environment is jittable
both run in one program, otherwise the environment steps outside and only acting and updating are compiled.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from cppo import collect, episodes
from cppo.algos import Algorithm
from cppo.networks import networks_for, scale_action
from cppo.timing import Clock
from cppo.types import Batch, BatchedEnv, Key, Metrics, PyTree


class TrainState(NamedTuple):
    """All that a checkpoint saves. Every leaf but ``host_env`` has a leading axis of lanes."""

    agent: PyTree
    worlds: collect.Worlds
    key: Key
    iteration: Int[Array, " lane"]
    host_env: PyTree  # state of an environment that lives outside JAX, all lanes' worlds together; else None


class Learner:
    """``start`` makes a state, ``iterate`` advances it by one batch. ``settings`` may differ by lane in its numbers."""

    def __init__(self, algorithm: Algorithm, env: BatchedEnv, settings: list[Any], seeds: list[int]):
        first = settings[0]
        self.algorithm, self.env, self.seeds = algorithm, env, seeds
        self.settings = jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.float32), *settings)
        self.worlds = env.num_envs if env.jittable else env.num_envs // len(seeds)
        self.length = first.batch_size // self.worlds
        self.min_episodes = first.min_episodes
        horizon = env.spec.episode_length
        by_age = env.spec.time_limit and episodes.covered(self.worlds, self.length, horizon, self.min_episodes)
        self.horizon = horizon if by_age else None
        self.networks = networks_for(env.spec, first)
        self._iterate = jax.jit(jax.vmap(self._iterate_lane), donate_argnums=(1,))
        self._act = jax.jit(self.act_lanes, static_argnums=0)
        self._needed: tuple[bool, ...] | None = None
        self._device = collect.DeviceCollector(env, self.act_lanes, self.length) if env.backend == "warp" else None
        self._update = jax.jit(jax.vmap(self._update_lane))
        self.clock = Clock()
        self.last: tuple[PyTree, Batch, Key] | None = None  # agents, batch and keys of the newest update on the host

    @property
    def batch_size(self) -> int:
        """Environment steps of one lane in an iteration."""
        return self.length * self.worlds

    def start(self, restart: int = 0) -> TrainState:
        """The state before the first step. A lane's randomness comes from its own seed alone.

        A run whose episodes cannot be saved restarts them; ``restart`` (its iteration) then gives it other ones.
        """
        state, world_keys, ages = self.start_lanes(restart)
        if self.env.jittable:
            return state
        host_env, obs = self.env.init(world_keys, ages)
        return self.place(state, obs)._replace(host_env=host_env)

    def start_lanes(self, restart: int = 0) -> tuple[TrainState, Key, Int[Array, " worlds"]]:
        """A state that lacks its host environment, with the keys and ages that start the worlds of all lanes."""
        ages = self._ages()
        keys = jnp.stack([jax.random.PRNGKey(seed) for seed in self.seeds])
        if restart:  # a number that no split of these keys reaches, so that no world has its first episode again
            keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, 2**31 - 1), restart))(keys)
        state, world_keys = jax.jit(jax.vmap(self._start_lane, in_axes=(0, 0, None)))(self.settings, keys, ages)
        return state, world_keys.reshape(-1, world_keys.shape[-1]), jnp.tile(ages, len(self.seeds))

    def place(self, state: TrainState, obs: Array) -> TrainState:
        """``state`` with the first observations of a host environment, all lanes' worlds in a row."""
        obs = obs.reshape(len(self.seeds), self.worlds, *self.env.spec.obs_shape)
        return state._replace(worlds=state.worlds._replace(obs=obs))

    def init_agents(self) -> PyTree:
        """Fresh algorithm states of all lanes (their shapes say what a checkpoint's agents look like)."""
        keys = jnp.stack([jax.random.PRNGKey(seed) for seed in self.seeds])
        return jax.vmap(lambda s, k: self.algorithm.init(self.networks, s, k))(self.settings, keys)

    def _start_lane(self, settings: Any, key: Key, ages: Array) -> tuple[TrainState, Key]:
        agent_key, world_key, loop_key = jax.random.split(key, 3)
        world_keys = jax.random.split(world_key, self.worlds)
        agent = self.algorithm.init(self.networks, settings, agent_key)
        env_state, obs = self.env.init(world_keys, ages) if self.env.jittable else (None, None)
        running, window = episodes.start(self.worlds, self.env.spec.num_costs, ages)
        worlds = collect.Worlds(env_state, obs, running, window)
        return TrainState(agent, worlds, loop_key, jnp.zeros((), jnp.int32), None), world_keys

    def iterate(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Collect one batch and update; metrics have a leading axis of lanes."""
        if self.env.jittable:
            with self.clock("compiled"):
                return jax.block_until_ready(self._iterate(self.settings, state))
        if self._device is not None:
            # Arrays that come from Warp are tied to its device. Tie the others, too, or all would be compiled twice.
            self.settings, state = jax.device_put((self.settings, state), jax.local_devices()[0])
        key, act_key, update_key = split3(state.key)
        # Flattened once, and only what acting needs: a step takes less than a millisecond.
        leaves, structure = jax.tree.flatten((self.settings, state.agent))
        if self._needed is None:
            self._needed = collect.needed(self.act_lanes, structure, leaves, state.worlds.obs, act_key)
        leaves = collect.only(leaves, self._needed)
        collected = self._collect_on_host if self._device is None else self._collect_on_device
        host_env, obs, rollout = collected(structure, leaves, state, act_key)
        state, metrics = self.absorb(state._replace(key=key), obs, rollout, update_key)
        return state._replace(host_env=host_env), metrics

    def absorb(self, state: TrainState, obs: Array, rollout: collect.Rollout, keys: Key) -> tuple[TrainState, Metrics]:
        """Update every lane on its rollout (lane, time, world, …) of a host environment, which ended at ``obs``."""
        with self.clock("update"):
            worlds = state.worlds._replace(obs=obs)
            updated = self._update(self.settings, state.agent, worlds, rollout, keys)
            agent, worlds, batch, metrics = jax.block_until_ready(updated)
        self.last = state.agent, batch, keys
        return state._replace(agent=agent, worlds=worlds, iteration=state.iteration + 1), metrics

    def _collect_on_device(
        self, structure: Any, leaves: list[Array], state: TrainState, keys: Key
    ) -> tuple[PyTree, Array, collect.Rollout]:
        assert self._device is not None
        with self.clock("environment"):  # acting is part of its compiled calls
            collected = self._device(structure, leaves, state.host_env, state.worlds.obs, keys)
            return jax.block_until_ready(collected)

    def _collect_on_host(
        self, structure: Any, leaves: list[Array], state: TrainState, keys: Key
    ) -> tuple[PyTree, Array, collect.Rollout]:
        began, physics = time.perf_counter(), _physics_seconds(self.env)
        before = self.clock.seconds["environment"]
        act = lambda *now: self._act(structure, leaves, *now)  # noqa: E731
        collected = collect.host_collect(self.env, act, state.host_env, state.worlds.obs, keys, self.length, self.clock)
        physics = _physics_seconds(self.env) - physics
        stepping = self.clock.seconds["environment"] - before
        self.clock.add("acting", time.perf_counter() - began - stepping)
        if physics:
            self.clock.add("physics", physics)
            self.clock.add("environment", -physics)
        return collected

    def _ages(self) -> Int[Array, " world"]:
        """Zero where whole episodes fit a rollout; else spread over the episode so that ends do not coincide."""
        horizon = self.env.spec.episode_length
        if self.length >= horizon:
            return jnp.zeros(self.worlds, jnp.int32)
        return (jnp.arange(self.worlds) * horizon // self.worlds).astype(jnp.int32)

    def _iterate_lane(self, settings: Any, state: TrainState) -> tuple[TrainState, Metrics]:
        key, act_key, update_key = jax.random.split(state.key, 3)
        act = lambda agent, obs, k: self.algorithm.act(self.networks, settings, agent, obs, k)  # noqa: E731
        worlds, rollout = collect.scan_collect(self.env, act, state.agent, state.worlds, act_key, self.length)
        agent, worlds, _, metrics = self._update_lane(settings, state.agent, worlds, rollout, update_key)
        return TrainState(agent, worlds, key, state.iteration + 1, None), metrics

    def act_lanes(
        self, structure: Any, leaves: list[Array], obs: Array, keys: Key, t: Array | int
    ) -> tuple[Array, Array]:
        """Actions of all lanes, in the policies' units and, all worlds in one row, in the environment's."""
        settings, agents = jax.tree.unflatten(structure, leaves)
        actions, env_actions = jax.vmap(self._act_lane, in_axes=(0, 0, 0, 0, None))(settings, agents, obs, keys, t)
        return actions, env_actions.reshape(-1, *env_actions.shape[2:])

    def _act_lane(self, settings: Any, agent: PyTree, obs: Array, key: Key, t: Array) -> tuple[Array, Array]:
        action = self.algorithm.act(self.networks, settings, agent, obs, jax.random.fold_in(key, t))
        return action, scale_action(self.env.spec, action)

    def _update_lane(
        self, settings: Any, agent: PyTree, worlds: collect.Worlds, rollout: collect.Rollout, key: Key
    ) -> tuple[PyTree, collect.Worlds, Batch, Metrics]:
        worlds, batch = collect.to_batch(worlds, rollout, settings.cost_discount, self.min_episodes, self.horizon)
        updated, metrics = self.algorithm.update(self.networks, settings, agent, batch, key)
        # Without one finished episode J_c is unknown and no limit can be kept: wait.
        ready = batch.episodes.count > 0
        agent = jax.tree.map(lambda new, old: jnp.where(ready, new, old), updated, agent)
        lost = {} if rollout.dropped is None else {"dropped_episodes": jnp.sum(rollout.dropped)}
        return agent, worlds, batch, _episode_metrics(batch) | lost | metrics | {"waiting": ~ready}


def _episode_metrics(batch: Batch) -> Metrics:
    seen = jnp.isfinite(batch.next_obs).reshape(*batch.reward.shape, -1)
    finite = jnp.isfinite(batch.reward) & jnp.all(jnp.isfinite(batch.cost), axis=-1) & jnp.all(seen, axis=-1)
    return {
        "return": batch.episodes.reward,
        "cost": batch.episodes.cost,
        "length": batch.episodes.length,
        "episodes": batch.episodes.ended,
        "nonfinite": jnp.sum(~finite),
    }


def _physics_seconds(env: BatchedEnv) -> float:
    """Seconds that an environment's threads have spent in MuJoCo so far, where it counts them."""
    return getattr(getattr(env, "threads", None), "seconds", 0.0)


def split3(keys: Key) -> tuple[Key, Key, Key]:
    """Three keys for each lane: the next iteration's, one to act, one to update."""
    parts = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
    return parts[:, 0], parts[:, 1], parts[:, 2]
