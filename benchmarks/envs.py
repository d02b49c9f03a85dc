"""Environment steps per second against the raw rate of the same model on the same cores.

    python benchmarks/envs.py                       every task, uniformly random actions
    python benchmarks/envs.py --worlds 180 --actions steady --only CarPush1
    python benchmarks/envs.py --peer /path/to/python     also safety-gymnasium's rate with that interpreter

The raw rate is ``mujoco.rollout`` itself on the states that the environment passed through, with the actions that it
took: ten physics steps and one forward evaluation (an eleventh step; its integration is a few per cent of it) for
Safety Gym, five Runge-Kutta steps for AntCircle. Both sides are timed in turns, a block of steps each, so that a busy
machine slows both; ratios are medians over blocks.
"""

from __future__ import annotations

import argparse
import subprocess
import time

import jax
import numpy as np

from cppo.envs.ant_circle import AntCircleEnv
from cppo.envs.mujoco_tasks import THREADS, build
from cppo.envs.physics.models import ant_model
from cppo.envs.physics.threads import Threads
from cppo.envs.tasks import ant_circle

TARGETS = {"PointGoal1": 5.0, "PointPush1": 3.0, "CarPush1": 0.8, "AntCircle": 0.8}
PEER = """
import sys, time, warnings
warnings.filterwarnings("ignore")
import safety_gymnasium
env = safety_gymnasium.make("Safety" + sys.argv[1] + "-v0")
env.reset(seed=0)
start = time.perf_counter()
for i in range(1000):
    env.step(env.action_space.sample())
print(1000 / (time.perf_counter() - start))
"""


def actions_of(kind: str, rng: np.random.Generator, steps: int, worlds: int, size: int) -> np.ndarray:
    """``uniform``: a new action each step. ``steady``: slow changes plus a little noise, like a trained policy's."""
    if kind == "uniform":
        return rng.uniform(-1, 1, (steps, worlds, size)).astype(np.float32)
    times = np.arange(steps)[:, None, None] / 50.0
    waves = np.sin(times * rng.uniform(0.5, 1.5, (worlds, size)) + rng.uniform(0, 6.3, (worlds, size)))
    return (waves + 0.1 * rng.standard_normal((steps, worlds, size))).astype(np.float32)


def raw_stepper(env):
    """A function that rolls the bare model from an environment state, and its physics steps."""
    if isinstance(env, AntCircleEnv):
        threads = Threads(ant_model())
        return lambda s, a: threads.roll(s.qpos, s.qvel, s.warm, a.astype(np.float64), ant_circle.SUBSTEPS)

    def roll(state, action):
        p = state.physics
        control = np.concatenate([np.clip(action, -1, 1), p.mocap], 1)
        return env.threads.roll(p.qpos, p.qvel, p.warm, control, 11)

    return roll


def bench(name: str, worlds: int, kind: str, blocks: int, block: int) -> tuple[float, float, float, float]:
    """Environment rate, raw rate, their ratio (medians over blocks), and the share of worlds that MuJoCo stepped."""
    env = build(name, worlds)
    rng = np.random.default_rng(0)
    state, _ = env.init(
        jax.random.split(jax.random.PRNGKey(0), worlds), rng.integers(0, env.spec.episode_length, worlds)
    )
    warm_up = 60
    actions = actions_of(kind, rng, warm_up + blocks * block, worlds, env.spec.action.size)
    for action in actions[:warm_up]:
        state, _ = env.advance(state, action)
    raw, rates, simulated = raw_stepper(env), [], []
    for chosen in actions[warm_up:].reshape(blocks, block, worlds, -1):
        states = []
        start = time.perf_counter()
        for action in chosen:
            states.append(state)
            state, _ = env.advance(state, action)
        middle = time.perf_counter()
        for before, action in zip(states, chosen, strict=True):
            raw(before, action)
        end = time.perf_counter()
        rates.append((worlds * block / (middle - start), worlds * block / (end - middle)))
        simulated.append(np.mean([getattr(s, "simulate", np.ones(1)).mean() for s in states]))
    rates = np.array(rates)
    return (*np.median(rates, 0), float(np.median(rates[:, 0] / rates[:, 1])), float(np.mean(simulated)))


def peer_rate(python: str, name: str) -> str:
    done = subprocess.run([python, "-c", PEER, name], capture_output=True, text=True, timeout=600)
    return f"{float(done.stdout.split()[-1]):.0f}" if done.returncode == 0 else "failed: " + done.stderr.strip()[-80:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=64)
    parser.add_argument("--actions", choices=("uniform", "steady"), default="uniform")
    parser.add_argument("--only", choices=list(THREADS), action="append")
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--block", type=int, default=20)
    parser.add_argument("--peer", help="a Python interpreter that has safety-gymnasium")
    args = parser.parse_args()
    print(f"{args.worlds} worlds, {args.actions} actions, {args.blocks} blocks of {args.block} steps")
    print(f"{'task':<12}{'env steps/s':>12}{'raw steps/s':>12}{'ratio':>8}{'target':>8}{'in MuJoCo':>11}  peer")
    for name in args.only or TARGETS:
        rate, raw, ratio, share = bench(name, args.worlds, args.actions, args.blocks, args.block)
        peer = peer_rate(args.peer, name) if args.peer and name != "AntCircle" else "-"
        print(f"{name:<12}{rate:>12.0f}{raw:>12.0f}{ratio:>8.2f}{TARGETS.get(name, 0):>8.2f}{share:>11.3f}  {peer}")


if __name__ == "__main__":
    main()
