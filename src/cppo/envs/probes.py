"""Tiny constrained problems whose best policy is known, which every algorithm must solve.

All have episodes of ten steps, so a limit of 10·c on the episode's cost means c a step.

=============== ============== ============================================= ===============================
name            actions        reward / cost of one step                     optimum (mean per step)
=============== ============== ============================================= ===============================
ProbeBox        Box [0, 1]     a / a                                         a = 0.3 (limit 3)
ProbeDiscrete   4 arms         0, 0.5, 1, 0.2 / 0, 0.2, 1, 0.8               reward 0.5625: arms 1 and 2
                                                                              mixed 7:1 (limit 3)
ProbeTwo        Box [0, 1]²    a₁ + a₂ / (a₁, a₂)                            a = (0.2, 0.6) (limits 2, 6)
ProbeState      Box [−1, 1]    a s / max(0, a s); s = ±1 in turn             a s = 0.25 (limit 2.5)
=============== ============== ============================================= ===============================
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array

from cppo.envs.batched import Transition
from cppo.types import Box, Discrete, EnvSpec, Key

_STEPS = 10
_ARM_REWARD = (0.0, 0.5, 1.0, 0.2)
_ARM_COST = (0.0, 0.2, 1.0, 0.8)


def _spec(name: str, action: Box | Discrete, limits: tuple[float, ...]) -> EnvSpec:
    costs = ("cost",) if len(limits) == 1 else tuple(f"cost{i + 1}" for i in range(len(limits)))
    return EnvSpec(name, (1,), action, costs, limits, _STEPS)


class _Bandit:
    """One state; subclasses say what an action earns and costs."""

    spec: EnvSpec

    def reset(self, key: Key) -> tuple[dict[str, Array], Array]:
        del key
        return {"parity": jnp.zeros(())}, jnp.ones(1)

    def step(self, state: dict[str, Array], action: Array, key: Key) -> tuple[dict[str, Array], Transition]:
        del key
        reward, cost = self.outcome(action)
        return state, Transition(jnp.ones(1), reward, cost, jnp.asarray(False))

    def outcome(self, action: Array) -> tuple[Array, Array]:
        raise NotImplementedError


class ProbeBox(_Bandit):
    spec = _spec("ProbeBox", Box((0.0,), (1.0,)), (3.0,))

    def outcome(self, action: Array) -> tuple[Array, Array]:
        used = jnp.clip(action, 0.0, 1.0)
        return used[0], used


class ProbeTwo(_Bandit):
    spec = _spec("ProbeTwo", Box((0.0, 0.0), (1.0, 1.0)), (2.0, 6.0))

    def outcome(self, action: Array) -> tuple[Array, Array]:
        used = jnp.clip(action, 0.0, 1.0)
        return used.sum(), used


class ProbeDiscrete(_Bandit):
    spec = _spec("ProbeDiscrete", Discrete(4), (3.0,))

    def outcome(self, action: Array) -> tuple[Array, Array]:
        return jnp.array(_ARM_REWARD)[action], jnp.array(_ARM_COST)[action][None]


class ProbeState:
    """The sign of the observation says which way earns reward: the policy must look at it."""

    spec = _spec("ProbeState", Box((-1.0,), (1.0,)), (2.5,))

    def reset(self, key: Key) -> tuple[dict[str, Array], Array]:
        del key
        return {"parity": jnp.ones(())}, jnp.ones(1)

    def step(self, state: dict[str, Array], action: Array, key: Key) -> tuple[dict[str, Array], Transition]:
        del key
        gain = jnp.clip(action[0], -1.0, 1.0) * state["parity"]
        turned = {"parity": -state["parity"]}
        cost = jnp.maximum(gain, 0.0)[None]
        return turned, Transition(turned["parity"][None], gain, cost, jnp.asarray(False))
