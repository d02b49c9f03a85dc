"""The whole environment step on a GPU (policy, physics, task, recording) against the bare physics graph.

Both make the same steps: a rollout is first driven from the host, which keeps what the physics is given; the bare graph
replays that, and the compiled rollout starts from the same worlds with the same keys.

Run: python benchmarks/gpu.py [--worlds 180 1080 8192] [--names PointGoal1 CarPush1] [--steps 200]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp

from cppo.runs import collect
from cppo.runs.group import Group
from cppo.runs.plan import make_plan


class Worlds:
    """A learner's worlds before the first step; every rollout starts from a copy of them."""

    def __init__(self, name: str, worlds: int, steps: int):
        settings = {"num_envs": worlds, "batch_size": worlds * steps}
        group = Group([make_plan("cppo", name, backend="warp", settings=settings)])
        state = jax.device_put(group.start(), jax.local_devices()[0])
        self.env: Any = group.env
        self.structure, self.leaves, obs, self.keys = group.acting(state, [state.sections[0].key])
        self.start = state.host_env, obs
        self.collector: Any = group.collector

    def compiled_seconds(self, repeats: int) -> float:
        """Of the fastest rollout after the first, which compiles."""
        seconds = []
        for _ in range(1 + repeats):
            host_env, obs = jax.tree.map(jnp.copy, self.start)
            began = time.perf_counter()
            jax.block_until_ready(self.collector(self.structure, self.leaves, host_env, obs, self.keys))
            seconds.append(time.perf_counter() - began)
        return min(seconds[1:])

    def inputs(self) -> list[Any]:
        """What the physics is given in that rollout."""
        step = jax.jit(self.collector._one_step, static_argnums=0)
        env_state, obs = jax.tree.map(jnp.copy, self.start)
        now = collect.Now(obs, *self.collector._first(self.structure, self.leaves, env_state, obs, self.keys, 0))
        buffers, given = None, []
        for t in range(self.collector.length):
            given.append(now.inputs)
            moved = self.env.run(now.inputs)
            buffers = buffers or self.collector._buffers(env_state, now, moved)()
            (buffers, env_state), now = step(
                self.structure, (buffers, env_state), now, moved, (self.leaves, self.keys), t
            )
            env_state = self.env.attend(env_state)
        return given


def bare_seconds(physics: Any, given: list[Any]) -> float:
    """Only the physics, from the same states under the same actions, launched without waiting in between."""
    wp = physics.warp
    sources = [wp.from_jax(inputs) for inputs in jax.block_until_ready(given)]
    wp.synchronize()
    began = time.perf_counter()
    for source in sources:
        wp.copy(physics._inputs, source)
        wp.capture_launch(physics.graph("step"))
    wp.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, nargs="+", default=[180, 1080, 8192])
    parser.add_argument("--names", nargs="+", default=["PointGoal1", "PointPush1", "CarPush1", "AntCircle"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    for name in options.names:
        for number in options.worlds:
            worlds = Worlds(name, number, options.steps)
            given = worlds.inputs()
            bare = min(bare_seconds(worlds.env.physics, given) for _ in range(options.repeats))
            full = worlds.compiled_seconds(options.repeats)
            rates = [f"{number * options.steps / seconds:10,.0f}" for seconds in (full, bare)]
            print(
                f"{name:11s} {number:6d} worlds: {rates[0]} steps/s, bare graph {rates[1]}, {bare / full:.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
