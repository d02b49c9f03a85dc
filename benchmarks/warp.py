"""The whole environment step on a GPU (policy, physics, task, recording) against the bare physics graph.

Both run the same number of worlds with the same actions: those that the full loop took are replayed into the graph.
Run: python benchmarks/warp.py [--worlds 180 1080 8192] [--names PointGoal1 CarPush1] [--steps 200]
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp

from cppo import plan
from cppo.collect import host_collect


def measure(name: str, worlds: int, steps: int) -> tuple[float, float]:
    """Environment steps a second: full loop, bare graph."""
    run = plan.make("cppo", name, backend="warp", settings={"num_envs": worlds, "batch_size": worlds * steps})
    learner = run.learner()
    state = learner.start()
    env = learner.env
    taken = []

    def act(*now):
        action, env_action = learner._act(learner.settings, *now)
        taken.append(env_action)
        return action, env_action

    def collect(host_env, obs):
        taken.clear()
        began = time.perf_counter()
        host_env, obs, rollout = host_collect(env, act, state.agent, host_env, obs, state.key, steps)
        jax.block_until_ready(rollout)
        return host_env, obs, worlds * steps / (time.perf_counter() - began)

    host_env, obs, _ = collect(state.host_env, state.worlds.obs)
    before = host_env
    host_env, obs, full = collect(host_env, obs)
    return full, bare_rate(env, before, [jnp.clip(a.reshape(worlds, -1), -1, 1) for a in taken], worlds)


def bare_rate(env, state, actions, worlds: int) -> float:
    physics, wp = env.physics, env.physics.warp
    from cppo.envs.warp_tasks import mocap

    placed = mocap(env.scene, state.task) if hasattr(env, "scene") else None
    physics.step(*state.bodies, placed, actions[0])
    sources = [wp.from_jax(a) for a in jax.block_until_ready(actions)]
    wp.synchronize()
    began = time.perf_counter()
    for source in sources:
        wp.copy(physics.data.ctrl, source)
        wp.capture_launch(physics._graphs["step"])
    wp.synchronize()
    return worlds * len(sources) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, nargs="+", default=[180, 1080, 8192])
    parser.add_argument("--names", nargs="+", default=["PointGoal1", "PointPush1", "CarPush1", "AntCircle"])
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    for name in options.names:
        for worlds in options.worlds:
            full, bare = measure(name, worlds, options.steps)
            print(f"{name:12s} {worlds:6d} worlds: {full:10,.0f} steps/s, bare graph {bare:10,.0f}, {full / bare:.0%}")


if __name__ == "__main__":
    main()
