"""A policy as StableHLO through ``jax.export``: read with ``jax.export.deserialize(bytes).call(obs)``, or by any XLA.

``NAME.stablehlo`` gives the most likely actions of a batch of any size; ``NAME-sampled.stablehlo`` takes two 32-bit
numbers as a seed after the observations; ``NAME.mlir`` is the first one as text, and says for how many steps of the
environment an action is to be held.
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
from jax import export
from jaxtyping import Array

from cppo import files
from cppo.algos import on_policy as common
from cppo.networks import scale_action
from cppo.runs.run import Policy

PLATFORMS = ("cpu", "cuda")


def write(policy: Policy, path: Path) -> Path:
    networks, settings, agent, spec = policy.networks, policy.settings, policy.agent, policy.spec

    def most_likely(obs: Array) -> Array:
        return scale_action(spec, common.act_mode(networks, settings, agent, obs))

    def sampled(obs: Array, seed: Array) -> Array:
        return scale_action(spec, common.act(networks, settings, agent, obs, seed))

    (batch,) = export.symbolic_shape("n")
    obs = jax.ShapeDtypeStruct((batch, *spec.obs_shape), jnp.float32)
    seed = jax.ShapeDtypeStruct((2,), jnp.uint32)
    first = export.export(jax.jit(most_likely), platforms=PLATFORMS)(obs)
    second = export.export(jax.jit(sampled), platforms=PLATFORMS)(obs, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomically(path, first.serialize())
    files.write_atomically(path.with_name(f"{path.stem}-sampled{path.suffix}"), second.serialize())
    held = f"// each action is to be held for {policy.hold} steps of the environment\n" if policy.hold > 1 else ""
    files.write_text(path.with_suffix(".mlir"), held + first.mlir_module())
    return path
