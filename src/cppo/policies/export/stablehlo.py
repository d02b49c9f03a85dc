"""A policy as StableHLO through ``jax.export``: read with ``jax.export.deserialize(bytes).call(obs)``, or by any XLA.

``NAME.stablehlo`` gives the most likely actions of a batch of any size; ``NAME-sampled.stablehlo`` takes two 32-bit
numbers as a seed after the observations; ``NAME.mlir`` is the first one as text.
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
from jax import export
from jaxtyping import Array

from cppo.algos import common
from cppo.networks import scale_action
from cppo.run import Policy

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
    path.write_bytes(first.serialize())
    path.with_name(f"{path.stem}-sampled{path.suffix}").write_bytes(second.serialize())
    path.with_suffix(".mlir").write_text(first.mlir_module())
    return path
