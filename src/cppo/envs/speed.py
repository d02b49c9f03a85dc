"""How fast environments step, as ratios measured in one run: what ``cppo bench env`` prints.

The raw rate is ``mujoco.rollout`` itself on the states that the environment passed through, with the actions that it
took: ten physics steps and one forward evaluation (an eleventh step; its integration is a few per cent of it) for
Safety Gym, five Runge-Kutta steps for AntCircle. Both sides are timed in turns, a block of steps each, so that a busy
machine slows both; ratios are medians over blocks. On a machine that others use, too, the ratio by CPU time says more:
threads that wait for each other pay twice for a lost core.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from cppo import envs
from cppo.types import Box, UsageError

DEFAULT_NAMES = ("PointGoal1", "PointPush1", "CarPush1", "AntCircle")
TARGETS = {"PointGoal1": 5.0, "PointPush1": 3.0, "CarPush1": 0.8, "AntCircle": 0.8}  # of the raw rate, on threads
ACTIONS = ("uniform", "steady")
WARM_UP = 60
PEER = """
import sys, time, warnings
warnings.filterwarnings("ignore")
import safety_gymnasium
env = safety_gymnasium.make("Safety" + sys.argv[1] + "-v0")
env.reset(seed=0)
steps = int(sys.argv[2])
actions = [env.action_space.sample() for _ in range(steps)]
start = time.process_time()
for action in actions:
    if any(env.step(action)[3:5]):
        env.reset()
print("rate", steps / (time.process_time() - start))
"""
PEER_NEEDS = (
    "it needs safety-gymnasium 1.0.0, which installs on Python 3.10 with mujoco 2.3.3, gymnasium 0.28.1, numpy below "
    "1.24 and xmltodict below 0.14"
)


class Speed(NamedTuple):
    """Environment steps a second, all worlds together; medians over blocks."""

    rate: float
    raw: float | None  # the bare model on the same cores; None where no model is stepped on threads
    ratio: float | None
    cpu_ratio: float | None  # the same by CPU time
    simulated: float  # share of worlds that MuJoCo stepped


def measure(name: str, worlds: int, backend: str, actions: str = "uniform", blocks: int = 15, block: int = 20) -> Speed:
    """Step ``blocks`` blocks of ``block`` steps of the environment, and of the bare model in between."""
    for label, value in (("worlds", worlds), ("blocks", blocks), ("block", block)):
        if value < 1:
            raise UsageError(f"{label} is {value}; it must be at least 1.")
    if actions not in ACTIONS:
        raise UsageError(f"actions is {actions!r}; use one of {', '.join(ACTIONS)}.")
    env = envs.build(name, worlds, backend)
    rng = np.random.default_rng(0)
    init, advance = (jax.jit(env.init), jax.jit(env.advance)) if env.jittable else (env.init, env.advance)
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(0), worlds))
    state, _ = init(keys, rng.integers(0, env.spec.episode_length, worlds).astype(np.int32))
    path = _actions(actions, rng, WARM_UP + blocks * block, worlds, env.spec.action)
    for action in path[:WARM_UP]:
        state, step = advance(state, action)
    jax.block_until_ready(step)
    raw, rates, simulated = _raw(env), [], []
    for chosen in path[WARM_UP:].reshape(blocks, block, *path.shape[1:]):
        states = []
        began = _now()
        for action in chosen:
            states.append(state)
            state, step = advance(state, action)
        jax.block_until_ready(step)
        middle = _now()
        if raw is not None:
            for before, action in zip(states, chosen, strict=True):
                raw(before, action)
        end = _now()
        rates.append(worlds * block / np.maximum([middle - began, end - middle], 1e-9))
        simulated.append(np.mean([np.mean(getattr(before, "simulate", True)) for before in states]))
    ours, bare = np.array(rates).transpose(1, 0, 2)  # (block, clock): wall and CPU time
    rate, share = float(np.median(ours[:, 0])), float(np.mean(simulated))
    if raw is None:
        return Speed(rate, None, None, None, share)
    ratio, cpu_ratio = np.median(ours / bare, axis=0)
    return Speed(rate, float(np.median(bare[:, 0])), float(ratio), float(cpu_ratio), share)


def _now() -> np.ndarray:
    return np.array([time.perf_counter(), time.process_time()])


def _actions(kind: str, rng: np.random.Generator, steps: int, worlds: int, space: Any) -> np.ndarray:
    """``uniform``: a new action each step. ``steady``: slow changes plus a little noise, like a trained policy's."""
    if not isinstance(space, Box):
        return rng.integers(0, space.n, (steps, worlds))
    size = space.size
    if kind == "uniform":
        return rng.uniform(-1, 1, (steps, worlds, size)).astype(np.float32)
    times = np.arange(steps)[:, None, None] / 50.0
    waves = np.sin(times * rng.uniform(0.5, 1.5, (worlds, size)) + rng.uniform(0, 6.3, (worlds, size)))
    return (waves + 0.1 * rng.standard_normal((steps, worlds, size))).astype(np.float32)


def _raw(env: Any) -> Callable[[Any, np.ndarray], Any] | None:
    """A function that rolls the bare model from an environment state; None where there is nothing to roll."""
    if env.backend != "threads":
        return None
    from cppo.envs.ant_circle import AntCircleEnv
    from cppo.envs.physics.models import ant_model
    from cppo.envs.physics.threads import Threads
    from cppo.envs.tasks import ant_circle

    if isinstance(env, AntCircleEnv):
        threads = Threads(ant_model())
        return lambda s, a: threads.roll(s.qpos, s.qvel, s.warm, a.astype(np.float64), ant_circle.SUBSTEPS)

    def roll(state: Any, action: np.ndarray) -> Any:
        physics = state.physics
        control = np.concatenate([np.clip(action, -1, 1), physics.mocap], 1)
        return env.threads.roll(physics.qpos, physics.qvel, physics.warm, control, 11)

    return roll


def peer_rate(python: str, name: str, steps: int = 1000) -> float:
    """Steps a second of safety-gymnasium's own task in one process of the interpreter ``python``.

    Measured in CPU time, so that a busy machine does not count against it.
    """
    try:
        done = subprocess.run(
            [python, "-c", PEER, name, str(steps)],
            capture_output=True,
            text=True,
            timeout=600,
            env={"MUJOCO_GL": "disabled"},
        )
    except OSError as error:
        raise UsageError(f"--peer {python}: {error.strerror}; give the path of a Python interpreter.") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"--peer {python}: {steps} steps of {name} took over ten minutes.") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UsageError(f"--peer {python} cannot run {name} ({reason}); {PEER_NEEDS}.")
    return float(done.stdout.split()[-1])
