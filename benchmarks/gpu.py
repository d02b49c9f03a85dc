"""The whole environment step on a GPU (policy, physics, task, recording) against the bare physics graph.

Both run the same number of worlds with the same actions: those that the full loop took are replayed into the graph.
Run: python benchmarks/gpu.py [--worlds 180 1080 8192] [--names PointGoal1 CarPush1] [--steps 200]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax

from cppo import plan
from cppo.networks import scale_action


def measure(name: str, worlds: int, steps: int) -> tuple[float, float]:
    """Environment steps a second: full loop, bare graph."""
    run = plan.make("cppo", name, backend="warp", settings={"num_envs": worlds, "batch_size": worlds * steps})
    learner = run.learner()
    state = learner.start()
    env, agent, host_env, obs = learner.env, state.agent, state.host_env, state.worlds.obs
    full = 0.0
    for _ in range(2):  # the first compiles
        began = time.perf_counter()
        host_env, obs, rollout = learner._collect(learner.settings, agent, host_env, obs, state.key)
        jax.block_until_ready(rollout)
        full = worlds * steps / (time.perf_counter() - began)
    return full, bare_rate(env, host_env, scale_action(env.spec, rollout.action[0]))


def bare_rate(env: Any, state: Any, actions: Any) -> float:
    """Only the physics, from the same kind of state under the same actions."""
    wp, physics = env.physics.warp, env.physics
    env.run(env.inputs(state, actions[0]))
    inputs = [wp.from_jax(jax.block_until_ready(env.inputs(state, action))) for action in actions]
    first = int(physics._ends[3])  # controls come fourth; the rest goes on from where it is
    size = physics.data.ctrl.shape[1]
    copies = [source[:, first : first + size].contiguous() for source in inputs]
    with wp.ScopedCapture() as capture:
        for _ in range(physics.substeps):
            physics.engine.step(physics.model, physics.data)
        if physics.look:
            physics.engine.forward(physics.model, physics.data)
    wp.synchronize()
    began = time.perf_counter()
    for source in copies:
        wp.copy(physics.data.ctrl, source)
        wp.capture_launch(capture.graph)
    wp.synchronize()
    return env.num_envs * len(copies) / (time.perf_counter() - began)


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
