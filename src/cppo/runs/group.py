"""Plans that advance together: several seeds, settings and algorithms over one batch of worlds.

Plans with the same algorithm and structure are lanes of one ``Learner`` (a *section*): one compiled update serves them
all. On an environment that lives outside JAX, sections also share the physics: all worlds of all plans are one batch,
the policies of all sections act in one compiled call, and the sections update in turn. A world depends on its own key
and actions alone, so a run's result does not depend on its company, up to rounding. A single run is a group of one.

``join`` and ``split`` go between a run's own training state, as an ordinary checkpoint holds it, and the group's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from cppo import envs
from cppo.networks import Networks
from cppo.runs import collect, memory
from cppo.runs.learner import TrainState, learner_for, split3
from cppo.runs.plan import Plan
from cppo.runs.timing import Clock
from cppo.types import AnyArray, Key, Metrics, PyTree


class GroupState(NamedTuple):
    """Training states of all sections; ``host_env`` is the one state of a shared environment, else None."""

    sections: tuple[TrainState, ...]
    host_env: PyTree


class _Place(NamedTuple):
    """Where a plan is within its group."""

    section: int
    lanes: slice  # of the section
    worlds: slice  # of a shared environment


class Group:
    """``start`` makes a state, ``iterate`` advances all plans by one batch; ``clock`` says where the time went.

    Where ``stop`` says so, a batch on the host is given up halfway (``collect.Abandoned``).
    """

    def __init__(self, plans: Sequence[Plan], stop: Callable[[], bool] = lambda: False):
        self.plans, first = list(plans), plans[0]
        memory.refuse(self.plans)
        lanes = sum(len(plan.seeds) for plan in plans)
        self.shared = first.backend != "jax"
        self.env = first.build_env(first.settings.num_envs * (lanes if self.shared else 1))
        sections = _sections(self.plans)
        self.learners = [
            learner_for([self.plans[index] for index in indices], None if self.shared else self.env)
            for indices in sections
        ]
        self.clock = Clock()
        self._places = _places(self.plans, sections)
        ends = np.cumsum([len(learner.seeds) for learner in self.learners])
        self._lanes = [slice(end - len(learner.seeds), end) for learner, end in zip(self.learners, ends, strict=True)]
        several = len(sections) > 1
        self._parts = [f"updates of {self.plans[one[0]].algo}" if several else "update" for one in sections]
        self._needed: tuple[bool, ...] | None = None
        self._compiled = False
        # Arrays that come from Warp are tied to its device. Tie the others, too, or all would be compiled twice.
        self._device = jax.local_devices()[0] if self.env.backend == "warp" else None
        self.collector = self._collector(stop) if self.shared else None
        for learner in self.learners if self._device else ():
            learner.settings = jax.device_put(learner.settings, self._device)

    def _collector(self, stop: Callable[[], bool]) -> collect.HostCollector | collect.DeviceCollector:
        what = (self.env, self.act, self.learners[0].length, self.clock)
        return collect.HostCollector(*what, stop) if self._device is None else collect.DeviceCollector(*what)

    @property
    def batch_size(self) -> int:
        """Environment steps of one lane in an iteration."""
        return self.learners[0].batch_size

    @property
    def trouble(self) -> envs.gym_env.gym_pool.Failure | None:
        """How the environment's episodes were last lost, if any were."""
        return envs.last_failure(self.env)

    def start(self, restart: int = 0) -> GroupState:
        """The state before the first step; ``restart`` as in ``Learner.start``."""
        states, keys, ages = zip(*(learner.start(restart) for learner in self.learners), strict=True)
        if not self.shared:
            return GroupState(states, None)
        host_env, obs = self.env.init(jnp.concatenate(keys), jnp.concatenate(ages))
        sizes = np.cumsum([len(own) for own in ages])[:-1]
        parts = zip(self.learners, states, np.split(np.asarray(obs), sizes), strict=True)
        return GroupState(tuple(learner.place(state, part) for learner, state, part in parts), host_env)

    def iterate(self, state: GroupState) -> tuple[GroupState, list[Metrics]]:
        """Collect one batch of every plan and update; the metrics of each plan have a leading axis of its lanes."""
        if self.collector is None:
            with self.clock("compiled"):
                self.clock.tell("collecting and learning" if self._compiled else "compiling")
                pairs = zip(self.learners, state.sections, strict=True)
                results, host_env = [learner.iterate(part) for learner, part in pairs], None
                self._compiled = True
        else:
            results, host_env = self._iterate_outside(self.collector, state)
        sections, metrics = zip(*results, strict=True)
        metrics = jax.device_get(metrics)
        by_plan = [
            {name: value[place.lanes] for name, value in metrics[place.section].items()} for place in self._places
        ]
        return GroupState(sections, host_env), by_plan

    def _iterate_outside(self, collector: Any, state: GroupState) -> tuple[list[tuple[TrainState, Metrics]], PyTree]:
        if self._device is not None:
            state = jax.device_put(state, self._device)
        keys, act_keys, update_keys = zip(*(split3(part.key) for part in state.sections), strict=True)
        structure, leaves, obs, act_keys = self.acting(state, act_keys)
        host_env, obs, rollout = collector(structure, leaves, state.host_env, obs, act_keys)

        def update(number: int) -> tuple[TrainState, Metrics]:
            with self.clock(self._parts[number]):
                part, mine = state.sections[number]._replace(key=keys[number]), self._lanes[number]
                own = rollout if len(self.learners) == 1 else jax.tree.map(lambda leaf: leaf[mine], rollout)
                return self.learners[number].update(part, obs[mine], own, update_keys[number])

        seen = collect.measured(self.env.spec.measures, rollout)
        rollout = rollout._replace(measures=None)  # nothing learns from them
        numbers = range(len(self.learners))
        self.clock.tell("learning" if self._compiled else "compiling the update")
        if self._compiled:
            results = [update(number) for number in numbers]
        else:
            with ThreadPoolExecutor(len(numbers)) as pool:  # half a minute each where they wait for one another
                results = list(pool.map(update, numbers))
            self._compiled = True
        own = [{name: values[lanes] for name, values in seen.items()} for lanes in self._lanes]
        return [(part, metrics | mine) for (part, metrics), mine in zip(results, own, strict=True)], host_env

    def acting(self, state: GroupState, keys: Sequence[Key]) -> tuple[Any, list[Any], AnyArray, Key]:
        """What a collector needs of the policies: flattened once, for a step takes less than a millisecond."""
        pairs = zip(self.learners, state.sections, strict=True)
        leaves, structure = jax.tree.flatten(tuple((learner.settings, part.agent) for learner, part in pairs))
        obs, act_keys = _concatenate([part.worlds.obs for part in state.sections]), _concatenate(keys)
        if self._needed is None:
            self._needed = collect.needed(self.act, structure, leaves, obs, act_keys)
        return structure, collect.only(leaves, self._needed), obs, act_keys

    def act(self, structure: Any, leaves: list[Any], obs: Array, keys: Array, t: Array | int) -> tuple[Array, Array]:
        """Actions of all sections in one program, so that a step of the physics waits for one call."""
        actions = []
        for learner, mine, own in zip(self.learners, self._lanes, jax.tree.unflatten(structure, leaves), strict=True):
            own_leaves, own_structure = jax.tree.flatten(own, is_leaf=lambda leaf: leaf is None)
            actions.append(learner.act_lanes(own_structure, own_leaves, obs[mine], keys[mine], t))
        policies, environment = zip(*actions, strict=True)
        return jnp.concatenate(policies), jnp.concatenate(environment)

    def agents(self, state: GroupState) -> list[tuple[Networks, PyTree]]:
        """Networks and agents of each plan, what only training needs left out."""
        found = []
        for place in self._places:
            agents = jax.device_get(state.sections[place.section].agent._replace(extra=None))
            own = jax.tree.map(lambda leaf, place=place: leaf[place.lanes], agents)
            found.append((self.learners[place.section].networks, own))
        return found

    def split(self, state: GroupState) -> list[TrainState]:
        """The training state of each plan by itself."""
        sections, alone = jax.device_get(state.sections), []
        for place in self._places:
            own = jax.tree.map(lambda leaf, place=place: leaf[place.lanes], sections[place.section])
            host = jax.tree.map(lambda leaf, place=place: leaf[place.worlds], state.host_env)
            alone.append(own._replace(host_env=host))
        return alone

    def join(self, states: Sequence[TrainState]) -> GroupState:
        """The group's state from those of its plans."""
        ordered: list[list[TrainState]] = [[] for _ in self.learners]
        for place, state in zip(self._places, states, strict=True):
            ordered[place.section].append(state)
        sections = tuple(_joined([part._replace(host_env=None) for part in parts]) for parts in ordered)
        hosts = [part.host_env for parts in ordered for part in parts]
        return GroupState(sections, _joined(hosts) if self.shared else None)


def section_key(plan: Plan) -> Any:
    """Plans with the same key can be lanes of one learner."""
    return plan.algo, plan.env, plan.backend, jax.tree.structure(plan.settings)


def world_key(plan: Plan) -> Any:
    """Plans with the same key can share one batch of worlds."""
    values = plan.settings  # an encoder with a memory sees the environment through a window
    return plan.env, plan.backend, values.num_envs, values.batch_size, values.hold, values.encoder, values.memory


def _sections(plans: Sequence[Plan]) -> list[list[int]]:
    sections: dict[Any, list[int]] = {}
    for index, plan in enumerate(plans):
        sections.setdefault(section_key(plan), []).append(index)
    return list(sections.values())


def _places(plans: Sequence[Plan], sections: Sequence[Sequence[int]]) -> list[_Place]:
    """By plan; lanes stand in the order of sections."""
    worlds, before, found = plans[0].settings.num_envs, 0, {}
    for section, indices in enumerate(sections):
        lane = 0
        for index in indices:
            lanes = slice(lane, lane + len(plans[index].seeds))
            rows = slice((before + lanes.start) * worlds, (before + lanes.stop) * worlds)
            found[index], lane = _Place(section, lanes, rows), lanes.stop
        before += lane
    return [found[index] for index in range(len(plans))]


def _joined(trees: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: _concatenate(leaves), *trees)


def _concatenate(leaves: Sequence[Any]) -> Any:
    """NumPy stays NumPy (a host environment's float64 must), everything else is JAX's."""
    if len(leaves) == 1:
        return leaves[0]
    if all(isinstance(leaf, np.ndarray) for leaf in leaves):
        return np.concatenate(leaves)
    return jnp.concatenate([jnp.asarray(leaf) for leaf in leaves])
