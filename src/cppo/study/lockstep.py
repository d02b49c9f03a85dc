"""Runs that advance together: several seeds, settings and algorithms over one batch of worlds.

Runs with the same algorithm and structure are lanes of one ``Learner`` (a *section*): one compiled update serves them
all. On an environment that lives outside JAX, sections also share the physics: all worlds of all runs are one batch,
the policies of all sections act in one compiled call, and the sections update in turn. A world depends on its own key
and actions alone, so a run's result does not depend on its company, up to rounding.

``join`` and ``split`` go between a run's own training state, as an ordinary checkpoint holds it, and the group's.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from cppo import algos, collect, envs
from cppo.learner import Learner, TrainState, split3
from cppo.plan import Plan
from cppo.timing import Clock
from cppo.types import EnvSpec, Metrics, PyTree


class GroupState(NamedTuple):
    """Training states of all sections; ``host_env`` is the one state of a shared environment, else None."""

    sections: tuple[TrainState, ...]
    host_env: PyTree


@dataclass(frozen=True)
class Share:
    """A section's share of the worlds, standing in for an environment where a learner asks for its properties."""

    spec: EnvSpec
    num_envs: int
    backend: str
    resumable: bool
    jittable: bool = False

    def init(self, keys: Any, ages: Any = None) -> Any:
        raise NotImplementedError("the group starts the worlds of all sections at once")

    def advance(self, state: Any, actions: Any) -> Any:
        raise NotImplementedError("the group steps the worlds of all sections at once")


class Lockstep:
    """``start`` makes a state, ``iterate`` advances all runs by one batch. Every plan has one seed."""

    def __init__(self, plans: Sequence[Plan]):
        self.plans = list(plans)
        first = plans[0]
        self.env = first.build_env(first.settings.num_envs)
        self.shared = not self.env.jittable
        if self.shared and len(plans) > 1:
            envs.close(self.env)
            self.env = first.build_env(first.settings.num_envs * len(plans))
        self.members = _sections(self.plans)
        self.learners = [self._learner(indices) for indices in self.members]
        self.clock = Clock()
        self._act = jax.jit(self._act_sections, static_argnums=0)
        self._needed: tuple[bool, ...] | None = None
        ends = np.cumsum([len(learner.seeds) for learner in self.learners])
        self._lanes = [slice(end - len(learner.seeds), end) for learner, end in zip(self.learners, ends, strict=True)]
        self._compiled = False
        length = self.learners[0].length
        on_device = self.env.backend == "warp"
        self._device = collect.DeviceCollector(self.env, self._act_sections, length) if on_device else None

    @property
    def batch_size(self) -> int:
        """Environment steps of one run in an iteration."""
        return self.learners[0].batch_size

    def seconds(self) -> dict[str, float]:
        """Seconds by part since ``restart_clocks``: collecting for all, then the updates of each algorithm."""
        parts = {"collecting": self.clock.seconds["collecting"]} if self.shared else {}
        for indices, learner in zip(self.members, self.learners, strict=True):
            name = ("" if self.shared else "collecting and ") + f"updates of {self.plans[indices[0]].algo}"
            parts[name] = parts.get(name, 0.0) + learner.clock.seconds["update" if self.shared else "compiled"]
        return parts

    def restart_clocks(self) -> None:
        for clock in (self.clock, *(learner.clock for learner in self.learners)):
            clock.restart()

    def start(self, restart: int = 0) -> GroupState:
        """The state before the first step; ``restart`` as in ``Learner.start``."""
        if not self.shared:
            return GroupState(tuple(learner.start(restart) for learner in self.learners), None)
        states, keys, ages = zip(*(learner.start_lanes(restart) for learner in self.learners), strict=True)
        host_env, obs = self.env.init(jnp.concatenate(keys), jnp.concatenate(ages))
        sizes = np.cumsum([learner.env.num_envs for learner in self.learners])[:-1]
        parts = zip(self.learners, states, np.split(np.asarray(obs), sizes), strict=True)
        return GroupState(tuple(learner.place(state, part) for learner, state, part in parts), host_env)

    def iterate(self, state: GroupState) -> tuple[GroupState, list[Metrics]]:
        """Collect one batch of every run and update; the metrics of each plan have a leading axis of 1."""
        if self.shared:
            state, metrics = self._iterate_shared(state)
        else:
            results = [learner.iterate(part) for learner, part in zip(self.learners, state.sections, strict=True)]
            state = GroupState(tuple(part for part, _ in results), None)
            metrics = [found for _, found in results]
        metrics = jax.device_get(metrics)
        by_plan: list[Metrics] = [{}] * len(self.plans)
        for indices, found in zip(self.members, metrics, strict=True):
            for lane, index in enumerate(indices):
                by_plan[index] = {name: value[lane : lane + 1] for name, value in found.items()}
        return state, by_plan

    def _iterate_shared(self, state: GroupState) -> tuple[GroupState, list[Metrics]]:
        if self._device is not None:  # as in ``Learner.iterate``: one device for all, or everything is compiled twice
            state = jax.device_put(state, jax.local_devices()[0])
        keys, act_keys, update_keys = zip(*(split3(part.key) for part in state.sections), strict=True)
        acting = tuple(
            (learner.settings, part.agent) for learner, part in zip(self.learners, state.sections, strict=True)
        )
        leaves, structure = jax.tree.flatten(acting)
        obs, acting_keys = _concatenate([part.worlds.obs for part in state.sections]), jnp.concatenate(act_keys)
        if self._needed is None:
            self._needed = collect.needed(self._act_sections, structure, leaves, obs, acting_keys)
        leaves = collect.only(leaves, self._needed)
        with self.clock("collecting"):
            collected = self._collect(structure, leaves, state.host_env, obs, acting_keys)
            host_env, obs, rollout = jax.block_until_ready(collected)

        def absorb(number: int) -> tuple[TrainState, Metrics]:
            learner, mine = self.learners[number], self._lanes[number]
            own = jax.tree.map(lambda leaf: leaf[mine], rollout)
            part = state.sections[number]._replace(key=keys[number])
            return learner.absorb(part, obs[mine], own, update_keys[number])

        numbers = range(len(self.learners))
        if self._compiled:
            results = [absorb(number) for number in numbers]
        else:  # half a minute each where they wait for one another
            with ThreadPoolExecutor(len(numbers)) as pool:
                results = list(pool.map(absorb, numbers))
            self._compiled = True
        sections, metrics = zip(*results, strict=True)
        return GroupState(sections, host_env), list(metrics)

    def _collect(
        self, structure: Any, leaves: list[Array], host_env: PyTree, obs: Array, keys: Array
    ) -> tuple[PyTree, Array, collect.Rollout]:
        if self._device is not None:
            return self._device(structure, leaves, host_env, obs, keys)
        act = partial(self._act, structure, leaves)
        return collect.host_collect(self.env, act, host_env, obs, keys, self.learners[0].length, self.clock)

    def _act_sections(
        self, structure: Any, leaves: list[Array], obs: Array, keys: Array, t: Array | int
    ) -> tuple[Array, Array]:
        """Actions of all sections in one program, so that a step of the physics waits for one call."""
        actions = []
        for learner, mine, own in zip(self.learners, self._lanes, jax.tree.unflatten(structure, leaves), strict=True):
            own_leaves, own_structure = jax.tree.flatten(own, is_leaf=lambda leaf: leaf is None)
            actions.append(learner.act_lanes(own_structure, own_leaves, obs[mine], keys[mine], t))
        policies, environment = zip(*actions, strict=True)
        return jnp.concatenate(policies), jnp.concatenate(environment)

    def split(self, state: GroupState) -> list[TrainState]:
        """The training state of each plan by itself."""
        alone: list[Any] = [None] * len(self.plans)
        worlds, lane = self.plans[0].settings.num_envs, 0
        for indices, part in zip(self.members, jax.device_get(state.sections), strict=True):
            for number, index in enumerate(indices):
                own = jax.tree.map(lambda leaf, number=number: leaf[number : number + 1], part)
                rows = slice(lane * worlds, (lane + 1) * worlds)
                host = jax.tree.map(lambda leaf, rows=rows: leaf[rows], state.host_env) if self.shared else None
                alone[index] = own._replace(host_env=host)
                lane += 1
        return alone

    def join(self, states: Sequence[TrainState]) -> GroupState:
        """The group's state from those of its plans."""
        ordered = [[states[index] for index in indices] for indices in self.members]
        sections = tuple(
            jax.tree.map(lambda *leaves: _concatenate(leaves), *(part._replace(host_env=None) for part in parts))
            for parts in ordered
        )
        if not self.shared:
            return GroupState(sections, None)
        hosts = [part.host_env for parts in ordered for part in parts]
        return GroupState(sections, jax.tree.map(lambda *leaves: _concatenate(leaves), *hosts))

    def _learner(self, indices: list[int]) -> Learner:
        plans = [self.plans[index] for index in indices]
        env: Any = self.env
        if self.shared:
            num_envs = plans[0].settings.num_envs * len(plans)
            env = Share(self.env.spec, num_envs, self.env.backend, self.env.resumable)
        algorithm = algos.get(plans[0].algo)
        return Learner(algorithm, env, [plan.settings for plan in plans], [plan.seeds[0] for plan in plans])


def section_key(plan: Plan) -> Any:
    """Plans with the same key can be lanes of one learner."""
    return plan.algo, plan.env, plan.backend, jax.tree.structure(plan.settings), plan.init_from


def world_key(plan: Plan) -> Any:
    """Plans with the same key can share one batch of worlds."""
    values = plan.settings  # an encoder with a memory sees the environment through a window
    return plan.env, plan.backend, values.num_envs, values.batch_size, values.encoder, values.memory


def _sections(plans: list[Plan]) -> list[list[int]]:
    sections: dict[Any, list[int]] = {}
    for index, plan in enumerate(plans):
        sections.setdefault(section_key(plan), []).append(index)
    return list(sections.values())


def _concatenate(leaves: Sequence[Any]) -> Any:
    """NumPy stays NumPy (a host environment's float64 must), everything else is JAX's."""
    if all(isinstance(leaf, np.ndarray) for leaf in leaves):
        return np.concatenate(leaves)
    return jnp.concatenate([jnp.asarray(leaf) for leaf in leaves])
