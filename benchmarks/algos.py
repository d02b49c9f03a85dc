"""Update time of every algorithm on a batch of PointGoal1's size, as a ratio to PPO's, and throughput on PointGoal1.

    python benchmarks/algos.py                 30,000 synthetic samples of 60 observations, 2 actions, one constraint;
                                               then two iterations of each on PointGoal1 (threads)
    python benchmarks/algos.py --samples 6000 --repeats 3 --only ppo cpo --no-throughput

Updates are timed compiled, in turns, so that a busy machine slows them alike; figures are medians, and CPU seconds
stand beside the wall's. On-policy methods share their critics' fit, whose time is printed by itself. Off-policy methods
take their own, smaller batch: their row is the time for as many environment steps as the others' batch, in several
updates. Throughput counts environment steps of one seed over collecting and updating, after a first iteration that
compiles.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cppo import algos
from cppo.algos import on_policy as common
from cppo.networks import Networks
from cppo.runs.group import Group
from cppo.runs.plan import make_plan
from cppo.settings import replace
from cppo.types import Batch, Box, EnvSpec, Episodes

SPEC = EnvSpec("Synthetic", (60,), Box((-1.0, -1.0), (1.0, 1.0)), ("cost",), (25.0,), 1000)
ALLOWED = 3.0  # times PPO's update, for second-order methods


class Timed(NamedTuple):
    wall: float
    cpu: float


class Case(NamedTuple):
    """A compiled function with its arguments; ``share`` of the samples in one call."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    share: float = 1.0


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


def timed(case: Case) -> Timed:
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(case.function(*case.arguments))
    return Timed(time.perf_counter() - wall, time.process_time() - cpu)


def update_case(name: str, samples: int) -> Case:
    """One update, on an agent that has seen a batch already, so that observations are scaled."""
    row = algos.get(name)
    settings = replace(row.settings(), {"cost_limit": (25.0,)})
    size = samples if row.policy == "on" else min(settings.batch_size, samples)
    settings = replace(settings, {"batch_size": size})
    networks = Networks(SPEC, settings.hidden, settings.activation, settings.critic_clock)
    batch, key = synthetic(size, settings.num_envs), jax.random.PRNGKey(1)
    agent = jax.jit(lambda k: row.init(networks, settings, k))(key)
    update = jax.jit(lambda a, b, k: row.update(networks, settings, a, b, k))
    agent, _ = update(agent, batch, key)
    return Case(update, (agent, batch, key), size / samples)


def critics_case(ppo: Case) -> Case:
    """The part that on-policy methods share: advantages and the critics' fit."""
    settings = replace(algos.get("ppo").settings(), {"cost_limit": (25.0,)})
    networks = Networks(SPEC, settings.hidden, settings.activation, settings.critic_clock)

    def fit(agent: Any, batch: Batch, key: Any) -> Any:
        return common.fit_critics(networks, settings, agent, common.prepare(networks, settings, agent, batch), key)

    return Case(jax.jit(fit), ppo.arguments)


def updates(names: list[str], samples: int, repeats: int) -> None:
    cases = {}
    for name in names:
        start = time.perf_counter()
        cases[name] = update_case(name, samples)
        print(f"{name}: compiled in {time.perf_counter() - start:.0f} s", flush=True)
    cases["critics"] = critics_case(cases["ppo"])
    timed(cases["critics"])
    seen: dict[str, list[Timed]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            seen[name].append(timed(case))
    wall, cpu = (
        {name: np.array([getattr(t, kind) for t in times]) / cases[name].share for name, times in seen.items()}
        for kind in ("wall", "cpu")
    )
    print(f"\nOne update on {samples} samples, median of {repeats}")
    print(f"{'algorithm':<12}{'seconds':>9}{'of PPO':>8}{'CPU s':>9}{'of PPO':>8}  order")
    for name, case in cases.items():
        order = algos.get(name).order if name in algos.TABLE else "advantages and critics alone"
        note = f", {1 / case.share:.0f} updates" if case.share < 1 else ""
        over = order == "second" and np.median(cpu[name] / cpu["ppo"]) > ALLOWED
        print(
            f"{name:<12}{np.median(wall[name]):>9.2f}{np.median(wall[name] / wall['ppo']):>8.2f}"
            f"{np.median(cpu[name]):>9.2f}{np.median(cpu[name] / cpu['ppo']):>8.2f}  {order}{note}"
            + (f"  OVER {ALLOWED:g} times PPO" if over else "")
        )


def throughput(names: list[str], samples: int) -> None:
    print(f"\nPointGoal1 (threads), one seed, {samples} steps to an on-policy batch\n{'algorithm':<12}{'steps/s':>9}")
    for name in names:
        sizes = {"batch_size": samples} if algos.get(name).policy == "on" else {}
        group = Group([make_plan(name, "PointGoal1", backend="threads", settings=sizes)])
        state, _ = group.iterate(group.start())
        spent = timed(Case(lambda: group.iterate(state)[0].sections[0].agent, ()))  # noqa: B023 (called at once)
        print(f"{name:<12}{group.batch_size / spent.wall:>9.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=30_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(algos.TABLE))
    parser.add_argument("--no-throughput", action="store_true")
    args = parser.parse_args()
    names = list(args.only or algos.TABLE)
    updates(list(dict.fromkeys(["ppo", *names])), args.samples, args.repeats)
    if not args.no_throughput:
        throughput(names, args.samples)


if __name__ == "__main__":
    main()
