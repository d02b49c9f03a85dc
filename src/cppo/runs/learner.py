"""One iteration of training as a compiled function of the whole training state, all lanes at once.

A *lane* is one seed with its settings; a learner's lanes share an algorithm and its structure. ``collect`` then
``update`` is all there is. Where the environment is jittable both run in one program (``iterate``), otherwise a group
steps the worlds of all its learners outside, and only acting and updating are compiled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from cppo.algos import Algorithm
from cppo.imports import USER, Trust
from cppo.networks import networks_for, scale_action
from cppo.runs import collect, episodes, health
from cppo.runs.diagnosis import Diagnosis
from cppo.types import AnyArray, Batch, BatchedEnv, EnvSpec, Key, Metrics, PyTree

if TYPE_CHECKING:
    from cppo.runs.plan import Plan


class TrainState(NamedTuple):
    """All that a checkpoint saves. Every leaf but ``host_env`` has a leading axis of lanes."""

    agent: PyTree
    worlds: collect.Worlds
    key: Key
    iteration: Int[Array, " lane"]  # updates so far; -1 from the first bad numbers on (``health``)
    host_env: PyTree  # state of an environment that lives outside JAX, all lanes' worlds together; else None


class Learner:
    """Lanes of one algorithm. ``settings`` may differ by lane in their numbers.

    ``inside`` is the environment where it is part of the compiled program; all that others need to know is ``spec``.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        spec: EnvSpec,
        settings: Sequence[Any],
        seeds: Sequence[int],
        inside: BatchedEnv | None = None,
        trust: Trust = USER,
    ):
        first = settings[0]
        self.algorithm, self.spec, self.seeds, self.inside = algorithm, spec, list(seeds), inside
        self.settings = jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.float32), *map(of_decisions, settings))
        self.worlds, self.hold = first.num_envs, first.hold
        self.length = first.batch_size // (self.worlds * self.hold)  # decisions of a world in a batch
        self.min_episodes = first.min_episodes
        by_age = spec.time_limit and episodes.covered(self.worlds, self.length, spec.episode_length, self.min_episodes)
        self.horizon = spec.episode_length if by_age else None
        self.networks = networks_for(spec, first, trust)
        self._iterate = jax.jit(jax.vmap(self._iterate_lane), donate_argnums=(1,))
        self._update = jax.jit(jax.vmap(self._update_lane))
        self._diagnosis = Diagnosis(self, first) if getattr(first, "diagnose", 0) else None
        self.last: tuple[PyTree, Batch, Key] | None = None  # agents, batch and keys of the newest update by itself

    @property
    def batch_size(self) -> int:
        """Environment steps of one lane in an iteration."""
        return self.length * self.worlds * self.hold

    def start(self, restart: int = 0) -> tuple[TrainState, Key, Int[Array, " worlds"]]:
        """The state before the first step, with the keys and ages that start the worlds of a host environment.

        A lane's randomness comes from its own seed alone. A run whose episodes cannot be saved restarts them;
        ``restart`` (its iteration) then gives it other ones.
        """
        ages = self._ages()
        keys = jnp.stack([jax.random.PRNGKey(seed) for seed in self.seeds])
        if restart:  # a number that no split of these keys reaches, so that no world has its first episode again
            keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, 2**31 - 1), restart))(keys)
        state, world_keys = jax.jit(jax.vmap(self._start_lane, in_axes=(0, 0, None)))(self.settings, keys, ages)
        return state, world_keys.reshape(-1, world_keys.shape[-1]), jnp.tile(ages, len(self.seeds))

    def place(self, state: TrainState, obs: AnyArray) -> TrainState:
        """``state`` with the first observations of a host environment, all lanes' worlds in a row."""
        obs = obs.reshape(len(self.seeds), self.worlds, *self.spec.obs_shape)
        return state._replace(worlds=state.worlds._replace(obs=obs))

    def init_agents(self) -> PyTree:
        """Fresh algorithm states of all lanes (their shapes say what a checkpoint's agents look like)."""
        keys = jnp.stack([jax.random.PRNGKey(seed) for seed in self.seeds])
        return jax.vmap(lambda s, k: self.algorithm.init(self.networks, s, k))(self.settings, keys)

    def _start_lane(self, settings: Any, key: Key, ages: Array) -> tuple[TrainState, Key]:
        agent_key, world_key, loop_key = jax.random.split(key, 3)
        world_keys = jax.random.split(world_key, self.worlds)
        agent = self.algorithm.init(self.networks, settings, agent_key)
        env_state, obs = (None, None) if self.inside is None else self.inside.init(world_keys, ages)
        running, window = episodes.start(self.worlds, self.spec.num_costs, ages)
        worlds = collect.Worlds(env_state, obs, running, window)
        return TrainState(agent, worlds, loop_key, jnp.zeros((), jnp.int32), None), world_keys

    def iterate(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Collect one batch inside the program and update; metrics have a leading axis of lanes."""
        measured = self._diagnosis and self._diagnosis.before(state)
        state, metrics = jax.block_until_ready(self._iterate(self.settings, state))
        return state, metrics | (self._diagnosis.after(measured, state) if self._diagnosis else {})

    def update(
        self, state: TrainState, obs: AnyArray, rollout: collect.Rollout, keys: Key
    ) -> tuple[TrainState, Metrics]:
        """Update every lane on its rollout (lane, time, world, …) of a host environment, which ended at ``obs``."""
        worlds = state.worlds._replace(obs=obs)
        updated = self._update(self.settings, state.agent, worlds, rollout, keys, state.iteration)
        agent, worlds, iteration, batch, metrics = jax.block_until_ready(updated)
        self.last = state.agent, batch, keys
        if self._diagnosis:
            measured = self._diagnosis.of(state, batch, keys)
            metrics |= self._diagnosis.after(measured, state._replace(agent=agent))
        return state._replace(agent=agent, worlds=worlds, iteration=iteration), metrics

    def next_update(self, settings: Any, state: TrainState) -> tuple[PyTree, Batch, Key]:
        """Agent, batch and key that the next update of a lane would see; nothing changes."""
        _, act_key, update_key = jax.random.split(state.key, 3)
        worlds, rollout = self._collect_lane(settings, state, act_key)
        return state.agent, self._batch(settings, worlds, rollout)[1], update_key

    def _ages(self) -> Int[Array, " world"]:
        """Zero where whole episodes fit a rollout; else spread over the episode so that ends do not coincide."""
        horizon = self.spec.episode_length
        if self.length >= horizon:
            return jnp.zeros(self.worlds, jnp.int32)
        return (jnp.arange(self.worlds) * horizon // self.worlds).astype(jnp.int32)

    def _iterate_lane(self, settings: Any, state: TrainState) -> tuple[TrainState, Metrics]:
        key, act_key, update_key = jax.random.split(state.key, 3)
        worlds, rollout = self._collect_lane(settings, state, act_key)
        updated = self._update_lane(settings, state.agent, worlds, rollout, update_key, state.iteration)
        agent, worlds, iteration, _, metrics = updated
        return TrainState(agent, worlds, key, iteration, None), metrics

    def _collect_lane(self, settings: Any, state: TrainState, key: Key) -> tuple[collect.Worlds, collect.Rollout]:
        assert self.inside is not None
        act = lambda agent, obs, k: self.algorithm.act(self.networks, settings, agent, obs, k)  # noqa: E731
        return collect.scan_collect(self.inside, act, state.agent, state.worlds, key, self.length)

    def act_lanes(
        self, structure: Any, leaves: list[Any], obs: Array, keys: Key, t: Array | int
    ) -> tuple[Array, Array]:
        """Actions of all lanes, in the policies' units and, all worlds in one row, in the environment's."""
        settings, agents = jax.tree.unflatten(structure, leaves)
        actions, env_actions = jax.vmap(self._act_lane, in_axes=(0, 0, 0, 0, None))(settings, agents, obs, keys, t)
        return actions, env_actions.reshape(-1, *env_actions.shape[2:])

    def _act_lane(self, settings: Any, agent: PyTree, obs: Array, key: Key, t: Array | int) -> tuple[Array, Array]:
        action = self.algorithm.act(self.networks, settings, agent, obs, jax.random.fold_in(key, t))
        return action, scale_action(self.spec, action)

    def _update_lane(
        self, settings: Any, agent: PyTree, worlds: collect.Worlds, rollout: collect.Rollout, key: Key, iteration: Array
    ) -> tuple[PyTree, collect.Worlds, Array, Batch, Metrics]:
        worlds, batch = self._batch(settings, worlds, rollout)
        updated, metrics = self.algorithm.update(self.networks, settings, agent, batch, key)
        # Without one finished episode J_c is unknown and no limit can be kept: wait.
        ready = batch.episodes.count > 0
        seen, good = health.signals(batch)
        good &= iteration >= 0
        kept = jax.tree.map(lambda new, old: jnp.where(ready & good, new, old), updated, agent)
        # Of the policy alone: were all to wait for this, the compiler would round other parts of the agent otherwise.
        sound = good & health.finite(kept.policy)
        policy = jax.tree.map(lambda new, old: jnp.where(sound, new, old), kept.policy, agent.policy)
        agent = kept._replace(policy=policy)
        iteration = jnp.where(sound, iteration + 1, -1)
        seen |= _episode_metrics(batch, self.hold) | _lost(rollout.dropped)
        return agent, worlds, iteration, batch, seen | metrics | {"waiting": ~ready, "_sound": sound}

    def _batch(self, settings: Any, worlds: collect.Worlds, rollout: collect.Rollout) -> tuple[collect.Worlds, Batch]:
        return collect.to_batch(worlds, rollout, settings.cost_discount, self.min_episodes, self.horizon)


def learner_for(plans: Sequence[Plan], inside: BatchedEnv | None = None) -> Learner:
    """The learner of plans with one algorithm and structure: their seeds in a row."""
    first = plans[0]
    settings = [plan.settings for plan in plans for _ in plan.seeds]
    seeds = [seed for plan in plans for seed in plan.seeds]
    return Learner(first.algorithm, first.spec_seen, settings, seeds, inside, first.trust)


def of_decisions(settings: Any) -> Any:
    """The settings as an algorithm takes them, whose steps are decisions: γ of a step becomes γ^hold."""
    hold = settings.hold
    if hold == 1:
        return settings
    powers = {name: getattr(settings, name) ** hold for name in ("discount", "cost_discount")}
    return dataclasses.replace(settings, **powers)


def _episode_metrics(batch: Batch, hold: int) -> Metrics:
    return {
        "return": batch.episodes.reward,
        "cost": batch.episodes.cost,
        "length": batch.episodes.length * hold,
        "episodes": batch.episodes.ended,
    }


def _lost(dropped: AnyArray | None) -> Metrics:
    """Episodes lost with their process, all and by kind."""
    if dropped is None:
        return {}
    kinds: Metrics = {name: jnp.sum(dropped == code) for code, name in enumerate(health.KINDS, start=1)}
    return kinds | {"dropped_episodes": jnp.sum(dropped > 0)}


def split3(keys: AnyArray) -> tuple[Key, Key, Key]:
    """Three keys for each lane: the next iteration's, one to act, one to update."""
    parts = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
    return parts[:, 0], parts[:, 1], parts[:, 2]
