"""The whole environment step on a GPU (policy, physics, task, recording) against the bare physics graph.

All make the same steps: every way starts from the same worlds with the same keys, and what the physics was given in the
timed loop that is driven from the host is kept and replayed into the bare graph. Ways: "host" starts the physics of
every step; the others (``cppo.envs.physics.warp.MODES``) compile it into the loop; "TASK" is the compiled loop without
physics, to see what the rest costs. After the rate comes how far the first 50 steps are from those of "host":
median and worst of reward and observation, and where they first part by more than 0.01.

Run: python benchmarks/gpu.py [--worlds 180 1080 8192] [--names PointGoal1 CarPush1] [--modes GRAPH WARP] [--steps 200]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cppo import collect, plan
from cppo.envs.physics.warp import MODES, Moved

COMPARED = 50  # steps


class Worlds:
    """A learner's worlds before the first step; a way to collect starts from a copy of them."""

    def __init__(self, name: str, worlds: int, steps: int):
        settings = {"num_envs": worlds, "batch_size": worlds * steps}
        self.learner = plan.make("cppo", name, backend="warp", settings=settings).learner()
        self.env: Any = self.learner.env
        state = self.learner.start()
        self.start = jax.device_put((state.host_env, state.worlds.obs), jax.local_devices()[0])
        agent = jax.device_put((self.learner.settings, state.agent), jax.local_devices()[0])
        leaves, self.structure = jax.tree.flatten(agent)
        self.keys = state.key
        wanted = collect.needed(self.learner.act_lanes, self.structure, leaves, state.worlds.obs, self.keys)
        self.leaves = collect.only(leaves, wanted)

    def time(
        self, mode: str, repeats: int, before_last: Callable[[], None] = lambda: None
    ) -> tuple[float, float, collect.Rollout]:
        """Seconds of the first rollout, which compiles, and of the fastest later one; and the first rollout."""
        env = Still(self.env) if mode == "TASK" else self.env
        collector = collect.DeviceCollector(env, self.learner.act_lanes, self.learner.length, mode)
        host_env, obs = jax.tree.map(jnp.copy, self.start)
        seconds, first = [], None
        for repeat in range(1 + repeats):
            if repeat == repeats:
                before_last()
            began = time.perf_counter()
            done = collector(self.structure, self.leaves, host_env, obs, self.keys)
            host_env, obs, rollout = jax.block_until_ready(done)
            seconds.append(time.perf_counter() - began)
            first = rollout if first is None else first
        assert first is not None
        return seconds[0], min(seconds[1:]), jax.tree.map(lambda leaf: np.asarray(leaf[:, :COMPARED]), first)


class Still:
    """An environment whose physics does nothing."""

    def __init__(self, env: Any):
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def call(self, inputs: Any, mode: str) -> Moved:
        shapes = self.env.physics._moved
        ends = np.cumsum([0, *(shape.shape[1] for shape in shapes[:3])])
        state = [inputs[:, a:b] for a, b in itertools.pairwise(ends)]
        return Moved(*state, *(jnp.zeros(shape.shape, shape.dtype) for shape in shapes[3:]))


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


def refill_seconds(worlds: Worlds) -> float:
    """A new layout for every world, as ``attend`` draws them."""
    if not hasattr(worlds.env, "_draw"):
        return 0.0
    began = time.perf_counter()
    jax.block_until_ready(worlds.env._draw(worlds.start[0].key))
    return time.perf_counter() - began


def difference(seen: collect.Rollout, wanted: collect.Rollout) -> str:
    reward = np.abs(seen.reward - wanted.reward)
    obs = np.abs(seen.next_obs - wanted.next_obs).max(axis=-1)
    parted = np.flatnonzero(obs.max(axis=(0, 2)) > 1e-2)
    return (
        f"reward {np.median(reward):.0e} {reward.max():.0e}, obs {np.median(obs):.0e} {obs.max():.0e}, "
        f"parted at {parted[0] if len(parted) else 'no'} step, in {np.mean(obs[:, -1] > 1e-2):.1%} of worlds at the end"
    )


def measure(name: str, worlds: int, modes: list[str], steps: int, repeats: int) -> None:
    """Print a line for the bare graph and one for each way."""
    began = time.perf_counter()
    all_worlds = Worlds(name, worlds, steps)
    env, given = all_worlds.env, []
    run = env.run

    def keep() -> None:
        env.run = lambda inputs: (given.append(inputs), run(inputs))[1]

    compiling, seconds, wanted = all_worlds.time("host", repeats, keep)
    env.run = run
    bare = min(bare_seconds(env.physics, given) for _ in range(2))
    given.clear()
    refill = min(refill_seconds(all_worlds) for _ in range(2))
    line(name, worlds, "bare", steps, bare, bare, f"refill {1e3 * refill:.1f} ms")
    line(name, worlds, "host", steps, seconds, bare, f"first rollout {compiling:.0f} s")
    for mode in modes:
        try:
            compiling, seconds, seen = all_worlds.time(mode, repeats)
        except Exception as error:
            print(f"{name:11s} {worlds:5d} {mode:14s} failed: {str(error).strip().splitlines()[-1][:300]}", flush=True)
            continue
        far = "" if mode == "TASK" else difference(seen, wanted)
        line(name, worlds, mode, steps, seconds, bare, f"first rollout {compiling:.0f} s; {far}")
    print(f"{name:11s} {worlds:5d} took {time.perf_counter() - began:.0f} s", flush=True)


def line(name: str, worlds: int, mode: str, steps: int, seconds: float, bare: float, rest: str) -> None:
    rate, each = worlds * steps / seconds, 1e3 * seconds / steps
    print(f"{name:11s} {worlds:5d} {mode:14s} {rate:9,.0f}/s {each:6.2f} ms {bare / seconds:4.0%}  {rest}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, nargs="+", default=[180, 1080, 8192])
    parser.add_argument("--names", nargs="+", default=["PointGoal1", "PointPush1", "CarPush1", "AntCircle"])
    parser.add_argument("--modes", nargs="*", choices=[*MODES, "TASK"], default=["GRAPH"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    for name in options.names:
        for worlds in options.worlds:
            try:
                measure(name, worlds, options.modes, options.steps, options.repeats)
            except Exception as error:
                print(f"{name:11s} {worlds:5d} failed: {str(error).strip().splitlines()[-1][:300]}", flush=True)


if __name__ == "__main__":
    main()
