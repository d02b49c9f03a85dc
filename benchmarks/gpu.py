"""The whole environment step on a GPU (policy, physics, task, recording) against the bare physics graph.

Both make the same steps: states and actions of the timed loop are kept and replayed into the graph.
Run: python benchmarks/gpu.py [--worlds 180 1080 8192] [--names PointGoal1 CarPush1] [--steps 200]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax

from cppo import collect, plan


def measure(name: str, worlds: int, steps: int) -> tuple[float, float]:
    """Environment steps a second: full loop, bare graph."""
    run = plan.make("cppo", name, backend="warp", settings={"num_envs": worlds, "batch_size": worlds * steps})
    learner = run.learner()
    state = learner.start()
    env, host_env, obs = learner.env, state.host_env, state.worlds.obs
    leaves, structure = jax.tree.flatten(jax.device_put((learner.settings, state.agent), jax.local_devices()[0]))
    leaves = collect.only(leaves, collect.needed(learner.act_lanes, structure, leaves, obs, state.key))
    given = []
    run_physics = env.run
    seconds = 0.0
    for attempt in range(2):  # the first compiles, the second is timed and keeps what the physics was given
        if attempt == 1:
            env.run = lambda inputs: (given.append(inputs), run_physics(inputs))[1]
        began = time.perf_counter()
        host_env, obs, _ = jax.block_until_ready(learner._device(structure, leaves, host_env, obs, state.key))
        seconds = time.perf_counter() - began
    return worlds * steps / seconds, bare_rate(env.physics, given)


def bare_rate(physics: Any, given: list[Any]) -> float:
    """Only the physics, from the same states under the same actions, launched without waiting in between."""
    wp = physics.warp
    sources = [wp.from_jax(inputs) for inputs in jax.block_until_ready(given)]
    wp.synchronize()
    began = time.perf_counter()
    for source in sources:
        wp.copy(physics._inputs, source)
        wp.capture_launch(physics._graphs["step"])
    wp.synchronize()
    return len(given[0]) * len(given) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, nargs="+", default=[180, 1080, 8192])
    parser.add_argument("--names", nargs="+", default=["PointGoal1", "PointPush1", "CarPush1", "AntCircle"])
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    for name in options.names:
        for worlds in options.worlds:
            full, bare = measure(name, worlds, options.steps)
            print(
                f"{name:12s} {worlds:6d} worlds: {full:10,.0f} steps/s, bare graph {bare:10,.0f}, {full / bare:.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
