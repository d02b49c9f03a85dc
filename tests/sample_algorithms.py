"""An algorithm of pure noise, which tells what it saw of a batch."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from cppo import algos
from cppo.networks import Networks


def act(networks: Networks, settings: Any, agent: Any, obs: Any, key: Any) -> Any:
    return jax.random.normal(key, (obs.shape[0], *networks.spec.action.shape))


def update(networks: Networks, settings: Any, agent: Any, batch: Any, key: Any) -> Any:
    """The largest share of actions that a batch holds at two steps, and the J_c that an update is given."""
    same = [jnp.mean(batch.action == jnp.roll(batch.action, t, axis=0)) for t in range(1, len(batch.action))]
    return agent, {"repeated": jnp.max(jnp.stack(same)), "known_cost": batch.episodes.cost[0]}


NOISE = replace(algos.get("ppo"), name="noise", update=update, act=act)
