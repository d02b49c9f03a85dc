"""How fast environments step, as ratios measured in one run: what ``cppo bench env`` prints.

The raw rate is ``mujoco.rollout`` itself on the states that the environment passed through, with the actions that it
took: the physics steps of an environment step, and where the sensors are read one forward evaluation more (another
step; its integration is a few per cent of it). Both sides are timed in turns, a block of steps each, so that a busy
machine slows both; ratios are medians over blocks. On a machine that others use, too, the ratio by CPU time says more:
threads that wait for each other pay twice for a lost core.

An environment of pure JAX has no bare model beside it. Training steps it inside its compiled program, so that is what
is measured; called step by step from Python, most of the time goes into the calls, and that rate is told beside it.
"""

from __future__ import annotations

import subprocess
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from cppo import envs
from cppo.envs.registry import TABLE
from cppo.types import Box, UsageError

ACTIONS = ("uniform", "steady")
WARM_UP = 60
PEER = """
import sys, time, warnings
warnings.filterwarnings("ignore")
import safety_gymnasium
env = safety_gymnasium.make(sys.argv[1])
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
    simulated: float | None  # share of worlds that MuJoCo stepped; None in pure JAX
    called: float | None = None  # the rate of pure JAX where every step is a call from Python


def measure(name: str, worlds: int, backend: str, actions: str = "uniform", blocks: int = 15, block: int = 20) -> Speed:
    """Step ``blocks`` blocks of ``block`` steps of the environment, and of the bare model in between."""
    for label, value in (("worlds", worlds), ("blocks", blocks), ("block", block)):
        if value < 1:
            raise UsageError(f"{label} is {value}; it must be at least 1.")
    if actions not in ACTIONS:
        raise UsageError(f"actions is {actions!r}; use one of {', '.join(ACTIONS)}.")
    env = envs.build(name, worlds, backend)
    rng = np.random.default_rng(0)
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(0), worlds))
    ages = rng.integers(0, env.spec.episode_length, worlds).astype(np.int32)
    path = _actions(actions, rng, WARM_UP + blocks * block, worlds, env.spec.action)
    if env.jittable:
        return _measure_jax(env, keys, ages, path[WARM_UP:].reshape(blocks, block, *path.shape[1:]))
    advance = env.advance
    state, _ = env.init(keys, ages)
    for action in path[:WARM_UP]:
        state, step = advance(state, action)
    jax.block_until_ready(step)
    bare = TABLE[name].bare if name in TABLE and env.backend == "threads" else None
    raw, rates, simulated = bare and bare(env), [], []
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


def _measure_jax(env: Any, keys: Any, ages: Any, path: np.ndarray) -> Speed:
    """``path``: actions by block and step. Blocks inside one program, and the same step by step, in turns."""
    advance = jax.jit(env.advance)
    inside = jax.jit(lambda state, actions: jax.lax.scan(env.advance, state, actions)[0])
    state, _ = jax.jit(env.init)(keys, ages)
    jax.block_until_ready((advance(state, path[0, 0]), inside(state, path[0])))  # compiled
    seconds = []
    for block in path:
        began = _now()[0]
        state = jax.block_until_ready(inside(state, block))
        middle = _now()[0]
        for action in block:
            state, step = advance(state, action)
        jax.block_until_ready((state, step))
        seconds.append((middle - began, _now()[0] - middle))
    rate, called = path[0].shape[0] * path[0].shape[1] / np.median(np.maximum(seconds, 1e-9), axis=0)
    return Speed(float(rate), None, None, None, None, float(called))


def _now() -> np.ndarray:
    return np.array([time.perf_counter(), time.process_time()])


def _actions(kind: str, rng: np.random.Generator, steps: int, worlds: int, space: Any) -> np.ndarray:
    """``uniform``: a new action each step. ``steady``: slow changes plus a little noise, like a trained policy's."""
    if not isinstance(space, Box):
        return rng.integers(0, space.n, (steps, worlds))
    size, high = space.size, np.asarray(space.high, np.float32)  # bounds are symmetric in all that is measured
    if kind == "uniform":
        return rng.uniform(-1, 1, (steps, worlds, size)).astype(np.float32) * high
    times = np.arange(steps)[:, None, None] / 50.0
    waves = np.sin(times * rng.uniform(0.5, 1.5, (worlds, size)) + rng.uniform(0, 6.3, (worlds, size)))
    return (waves + 0.1 * rng.standard_normal((steps, worlds, size))).astype(np.float32) * high


def peer_rate(python: str, name: str, steps: int = 1000) -> float:
    """Steps a second of safety-gymnasium's own task ``name`` in one process of the interpreter ``python``.

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
