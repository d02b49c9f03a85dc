"""Two claims of the paper that training does not log, measured on the saved runs of a study.

- **Update time** of every algorithm and variant, CPO's among them: one update of one seed, compiled by itself, on the
  batch that the run would have seen next. All are timed in turns, so that a busy machine slows them alike.
- **The path of a recovery update** in the plane of the advantages (the paper's appendix C): where r − 1 stands after
  each epoch of the M-step for several β, with one target and with several along the way. From the end of training each
  run goes on until a batch breaks the limit and recovery is on; that batch's update is then repeated.

Coordinates are those of the E-step in units of root mean square: x = E[(r − 1) e_c], y = E[(r − 1) e_r] with e_c ∥ A_c,
e_r the part of A orthogonal to it, both of mean square 1. The trust region is then the ball of radius √δ', and A points
to (cos θ_A, sin θ_A). Only environments inside the compiled program (PointCircle, the probes) are measured.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cppo.algos import cppo
from cppo.reports.folders import Key, finished_runs
from cppo.reports.records import MEASURED, Record
from cppo.reports.seeds import rounded
from cppo.runs.checkpoint import checkpoints_of
from cppo.runs.learner import Learner, TrainState, learner_for
from cppo.runs.plan import load_plan
from cppo.runs.saving import Saver
from cppo.runs.sealed import write_json
from cppo.types import UsageError

SEEDS = 4  # of each group, the first ones
Place = tuple[int, Path]  # a seed and the folder of its run, which may hold other seeds, too
ROUNDS = 5
BETAS = (0.0, 0.3, 0.7, 1.0)
WAYPOINTS = (1, 4)
TRIES = 60  # iterations in which a run must come over its limit


def write(folder: Path) -> Path:
    """Measure the finished runs in ``folder`` and keep the result there, where ``records.load`` finds it."""
    groups = {key: sorted(runs)[:SEEDS] for key, runs in finished_runs(folder).items() if _can_measure(runs[0][1])}
    if not groups:
        raise UsageError(f"{folder} holds no finished run to measure, of PointCircle or a probe; leave --measure out.")
    path = folder / MEASURED
    write_json(path, {"update_times": update_times(groups), "paths": paths(groups)})
    return path


def _can_measure(place: Path) -> bool:
    plan = load_plan(place)
    return plan.trust.vouched and plan.usable_here().build_env(1).jittable


def _opened(place: Place) -> tuple[Learner, TrainState, int]:
    """The run with its newest state, and the lane of the seed."""
    seed, folder = place
    plan = load_plan(folder)
    learner = learner_for([plan], plan.build_env(plan.settings.num_envs))
    state, _ = Saver(checkpoints_of(folder)).load(learner.start()[0])
    return learner, state, learner.seeds.index(seed)


def _lane(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


# --- update time ------------------------------------------------------------------------------------------------------


def update_times(groups: dict[Key, list[Place]]) -> list[Record]:
    """Seconds of one update, for each group the mean over its seeds of the median of ``ROUNDS``."""
    cases = {key: _update_cases(places) for key, places in groups.items()}
    seconds: dict[Any, list[list[float]]] = {key: [[] for _ in found] for key, found in cases.items()}
    for _ in range(ROUNDS):
        for key, found in cases.items():
            for case, seen in zip(found, seconds[key], strict=True):
                began = time.perf_counter()
                jax.block_until_ready(case())
                seen.append(time.perf_counter() - began)
    return [
        {**_named(key), "seconds": float(np.mean([np.median(seen) for seen in found]))}
        for key, found in seconds.items()
    ]


def _update_cases(places: list[Place]) -> list[Callable[[], Any]]:
    """One compiled update for each seed, called once so that it is compiled."""
    learner, _, _ = _opened(places[0])
    gather = jax.jit(learner.next_update)
    update = jax.jit(partial(learner.algorithm.update, learner.networks))
    found = []
    for place in places:
        learner, state, lane = _opened(place)
        settings = _lane(learner.settings, lane)
        found.append(partial(update, settings, *gather(settings, _lane(state, lane))))
        jax.block_until_ready(found[-1]())
    return found


def _named(key: Key) -> Record:
    return dict(zip(("env", "algo", "variant"), key, strict=True))


# --- the path of a recovery update ------------------------------------------------------------------------------------


def paths(groups: dict[Key, list[Place]]) -> list[Record]:
    """One record for each seed of CPPO as chosen that had to recover."""
    found = []
    for (env, algo, variant), places in groups.items():
        if algo != "cppo" or variant or len(load_plan(places[0][1]).cost_limits) > 1:
            continue
        for place in places:
            seen = _recovery(place)
            if seen is not None:
                found.append({"env": env, "seed": place[0], **seen})
    return found


def _recovery(place: Place) -> Record | None:
    """The paths of the first recovery update, None where ``TRIES`` iterations bring none."""
    learner, state, lane = _opened(place)
    gather = jax.jit(learner.next_update)
    follow = jax.jit(partial(path, learner.networks), static_argnames=("waypoints",))
    for _ in range(TRIES):
        settings = _lane(learner.settings, lane)
        agent, batch, key = gather(settings, _lane(state, lane))
        first = follow(settings, agent, batch, key, BETAS[0], waypoints=WAYPOINTS[0])
        if first["over"]:
            break
        state, _ = learner.iterate(state)
    else:
        return None
    ways = []
    for waypoints in WAYPOINTS:
        for beta in BETAS:
            way = jax.device_get(follow(settings, agent, batch, key, beta, waypoints=waypoints))
            numbers = {name: _short(way[name]) for name in ("x", "y", "kl", "cost_change", "reward_change")}
            ways.append({"beta": beta, "waypoints": waypoints, **numbers})
    alone = ("cost", "limit", "budget", "needed", "radius", "theta_reward", "case")
    return {**{name: _short(first[name]) for name in alone}, "target": _short(first["target"]), "ways": ways}


def path(networks: Any, settings: Any, agent: Any, batch: Any, key: Any, beta: Any, *, waypoints: int) -> Record:
    """One update of CPPO, stopped after 0, 1, … epochs of its M-step, in the plane of the advantages."""
    settings = dataclasses.replace(settings, beta=beta, waypoints=waypoints)
    data, _ = cppo.samples(networks, settings, agent, batch)
    log_prob = lambda policy: jax.vmap(lambda o, a: networks.policy(policy, o).log_prob(a))(data.obs, data.action)  # noqa: E731
    cost_size, size = jnp.sqrt(jnp.mean(data.cost_adv[0] ** 2)), jnp.sqrt(jnp.mean(data.adv**2))
    e_c = data.cost_adv[0] / cost_size
    rest = data.adv - jnp.mean(data.adv * e_c) * e_c
    e_r = rest / jnp.sqrt(jnp.mean(rest**2))
    before = log_prob(agent.policy)

    def after(epochs: Any) -> Any:
        stopped = dataclasses.replace(settings, epochs=epochs)
        updated, metrics = cppo.update(networks, stopped, agent, batch, key)
        moved = jnp.exp(log_prob(updated.policy) - before) - 1.0
        return jnp.mean(moved * e_c), jnp.mean(moved * e_r), metrics

    x, y, metrics = jax.lax.map(after, jnp.arange(settings.epochs + 1))
    one = _lane(metrics, 0)  # epochs are in front here
    limit = jnp.asarray(settings.cost_limit)
    room = cppo.budgets.room(limit, batch.episodes, settings.cost_discount, settings.cost_unit)
    length, budget, angle = batch.episodes.length, room[0], one["theta_reward"]
    target = one["target_cost_change"][0] / (length * cost_size)
    across = (one["target_reward_change"] / (length * size) - jnp.cos(angle) * target) / jnp.sin(angle)
    return {
        "x": x,
        "y": y,
        "kl": metrics["kl"],
        "cost_change": metrics["predicted_cost_change"][:, 0],
        "reward_change": metrics["predicted_reward_change"],
        "over": one["recovering"][0] & (budget < 0),
        "status": one["status"],
        "case": one["case"],
        "cost": batch.episodes.cost[0],
        "limit": limit[0],
        "budget": budget / cost_size,  # largest x that keeps the limit
        "needed": budget * length,  # change of an episode's cost that keeps it
        "radius": jnp.sqrt(settings.kl / cppo.KL_TO_VARIANCE),
        "theta_reward": angle,
        "target": jnp.stack([target, across]),
    }


def _short(value: Any) -> Any:
    return rounded(np.asarray(value, float))
