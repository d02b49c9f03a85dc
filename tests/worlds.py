"""What tests of environments share: worlds on CPU threads, their keys, and recordings of the originals."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import jax
import numpy as np

from cppo import envs
from cppo.envs import registry
from cppo.envs.batched import JaxEnv

FOLDER = Path(__file__).parent / "data"


class OnHost(JaxEnv):
    """A probe that pretends to live outside JAX."""

    jittable = False
    backend = "host"

    def __init__(self, world, num_envs):
        super().__init__(world, num_envs)
        self._init, self._advance = jax.jit(super().init), jax.jit(super().advance)

    def init(self, keys, ages=None):
        return jax.device_get(self._init(keys, ages))

    def advance(self, state, actions):
        return jax.device_get(self._advance(state, actions))


class OnDevice(JaxEnv):
    """A probe that pretends to have its physics on the device, but outside JAX."""

    jittable = False
    backend = "warp"
    unattended = 7

    def __init__(self, world, num_envs):
        super().__init__(world, num_envs)
        self.attended = []

    def inputs(self, state, actions):
        return state, actions

    def call(self, inputs):
        return self.advance(*inputs)

    def finish(self, state, moved):
        return moved

    def attend(self, state, steps=1):
        self.attended.append(steps)
        return state


def build(name, worlds, backend="threads"):
    return envs.build(name, worlds, backend)


def offer(monkeypatch, name, world):
    """Let ``name`` mean environments of ``world``, inside the compiled program, for one test."""
    world.spec = replace(world.spec, name=name)  # a run goes by the name in the spec
    row = registry.Environment(world.spec, "Tests", {"jax": partial(JaxEnv, world)})
    monkeypatch.setitem(registry.TABLE, name, row)


def keys_of(seed, worlds):
    return np.asarray(jax.random.split(jax.random.PRNGKey(seed), worlds))


@cache
def recording(name):
    with np.load(FOLDER / f"{name}.npz") as data:
        return {key: data[key] for key in data.files}


def recorded_costs(data):
    """The original's costs as our constraints."""
    if "cost_vases_contact" in data:
        vases = np.maximum(data["cost_vases_contact"], data["cost_vases_velocity"])
        return np.stack([data["cost_hazards"], vases], 1)
    if "cost_pillars" in data:
        return np.stack([data["cost_hazards"], data["cost_pillars"]], 1)
    return data["cost"]
