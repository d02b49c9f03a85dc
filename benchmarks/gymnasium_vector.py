"""Steps per second of our vectoriser against ``gymnasium.vector.AsyncVectorEnv`` with shared memory.

    python benchmarks/gymnasium_vector.py
    python benchmarks/gymnasium_vector.py --env Hopper-v5 --worlds 32

Same environment, same number of worlds, same actions. Blocks of steps are timed in turns, so that a busy machine slows
both sides; ratios are medians over blocks. ``SyncVectorEnv``, which has no processes at all, is shown beside them.
"""

from __future__ import annotations

import argparse
import time

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import cppo

ENVIRONMENTS = ("CartPole-v1", "Hopper-v5")


def no_cost(obs, action, next_obs, info):
    return 0.0


def bench(name: str, worlds: int, blocks: int, block: int) -> np.ndarray:
    """Steps per second of ours, AsyncVectorEnv and SyncVectorEnv in each block."""

    def make() -> gymnasium.Env:
        return gymnasium.make(name, disable_env_checker=True)

    theirs = AsyncVectorEnv([make] * worlds, shared_memory=True), SyncVectorEnv([make] * worlds)
    ours = cppo.envs.from_gymnasium(make, cost=no_cost, num_envs=worlds)
    space = theirs[0].action_space
    space.seed(0)
    actions = [space.sample() for _ in range(block)]
    everyone = (ours, *theirs)
    rates = np.zeros((blocks + 1, len(everyone)))
    for env in everyone:
        env.reset(seed=0)
    for number in range(blocks + 1):
        for index, env in enumerate(everyone):
            start = time.perf_counter()
            for action in actions:
                env.step(action)
            rates[number, index] = worlds * block / (time.perf_counter() - start)
    for env in everyone:
        env.close()
    return rates[1:]  # the first block warms up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", action="append", help="a registered name; may be repeated")
    parser.add_argument("--worlds", type=int, action="append")
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--block", type=int, default=50)
    args = parser.parse_args()
    print(f"{'environment':<16}{'worlds':>7}{'ours':>10}{'async':>10}{'sync':>10}{'ours/async':>12}{'ours/sync':>11}")
    for name in args.env or ENVIRONMENTS:
        for worlds in args.worlds or (8, 32):
            rates = bench(name, worlds, args.blocks, args.block)
            ratios = np.median(rates[:, :1] / rates[:, 1:], 0)
            numbers = "".join(f"{rate:>10.0f}" for rate in np.median(rates, 0))
            print(f"{name:<16}{worlds:>7}{numbers}{ratios[0]:>12.2f}{ratios[1]:>11.2f}")


if __name__ == "__main__":
    main()
