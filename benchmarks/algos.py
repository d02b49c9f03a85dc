"""Update time of every algorithm on a batch of PointGoal1's size, as a ratio to PPO's.

    python benchmarks/algos.py                 30,000 synthetic samples of 60 observations, 2 actions, one constraint
    python benchmarks/algos.py --samples 6000 --repeats 3 --only ppo cpo

All methods are timed in turns, so that a busy machine slows them alike; figures are medians. On-policy methods share
their critics' fit, whose time is printed by itself. Off-policy methods take their own, smaller batch: their row is the
time for as many environment steps as the others' batch, in several updates.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from cppo import algos
from cppo.algos import common
from cppo.networks import Networks
from cppo.settings import replace
from cppo.types import Batch, Box, EnvSpec, Episodes

SPEC = EnvSpec("Synthetic", (60,), Box((-1.0, -1.0), (1.0, 1.0)), ("cost",), (25.0,), 1000)


def synthetic(samples: int, worlds: int) -> Batch:
    """Noise with a little signal; whole episodes of 1000 steps where they fit."""
    steps = samples // worlds
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    obs = jax.random.normal(keys[0], (steps + 1, worlds, 60))
    action = 0.6 * jax.random.normal(keys[1], (steps, worlds, 2))
    reward = action[..., 0] * obs[:-1, ..., 0]
    cost = (jax.random.uniform(keys[2], (steps, worlds, 1)) < 0.05) * 1.0
    age = jnp.tile((jnp.arange(steps) % 1000.0)[:, None], (1, worlds))
    number = jnp.asarray(30, jnp.int32)
    means = Episodes(jnp.zeros(()), jnp.array([50.0]), jnp.array([5.0]), jnp.asarray(1000.0), number, number)
    flags = jnp.zeros((steps, worlds), bool)
    return Batch(obs[:-1], action, obs[1:], reward, cost, flags, age == 999, age, means)


def timed(function, *arguments) -> float:
    start = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=30_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(algos.TABLE))
    args = parser.parse_args()
    names = dict.fromkeys(["ppo", *(args.only or algos.TABLE)])
    runs, scale = {}, {}
    for name in names:
        row = algos.get(name)
        settings = replace(row.settings(), {"cost_limit": (25.0,)})
        size = args.samples if row.policy == "on" else min(settings.batch_size, args.samples)
        settings = replace(settings, {"batch_size": size})
        networks = Networks(SPEC, settings.hidden, settings.activation, settings.critic_clock)
        batch = synthetic(size, settings.num_envs)
        key = jax.random.PRNGKey(1)
        agent = jax.jit(lambda k, row=row, n=networks, s=settings: row.init(n, s, k))(key)
        update = jax.jit(lambda a, b, k, row=row, n=networks, s=settings: row.update(n, s, a, b, k))
        compiled = timed(update, agent, batch, key)
        agent, _ = update(agent, batch, key)  # once, so that observations are scaled
        runs[name] = (update, agent, batch, key)
        scale[name] = args.samples / size
        print(f"{name}: compiled in {compiled:.0f} s", flush=True)
    settings = replace(algos.get("ppo").settings(), {"cost_limit": (25.0,)})
    _, agent, batch, key = runs["ppo"]
    networks = Networks(SPEC, settings.hidden, settings.activation, settings.critic_clock)
    fit = jax.jit(
        lambda a, b, k: common.fit_critics(networks, settings, a, common.prepare(networks, settings, a, b), k)
    )
    timed(fit, agent, batch, key)
    seconds = {name: [] for name in [*runs, "critics"]}
    for _ in range(args.repeats):
        for name, run in runs.items():
            seconds[name].append(timed(*run))
        seconds["critics"].append(timed(fit, agent, batch, key))
    print(f"\n{args.samples} samples, {args.repeats} repeats\n{'algorithm':<12}{'seconds':>9}{'of PPO':>8}  order")
    base = np.array(seconds["ppo"])
    for name in runs:
        own = scale[name] * np.array(seconds[name])
        order = algos.get(name).order + (f", {scale[name]:.0f} updates" if scale[name] > 1 else "")
        print(f"{name:<12}{np.median(own):>9.2f}{np.median(own / base):>8.2f}  {order}")
    print(
        f"{'(critics)':<12}{np.median(seconds['critics']):>9.2f}{np.median(np.array(seconds['critics']) / base):>8.2f}"
    )


if __name__ == "__main__":
    main()
