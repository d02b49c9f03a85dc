"""How good is a saved policy? Whole fresh episodes, deterministic and sampled actions apart, with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cppo import envs
from cppo.runs.health import LARGEST
from cppo.runs.plan import Plan
from cppo.runs.run import Policy, Run
from cppo.types import ActionSpace, Box, EnvSpec, Step, TrainingError, UsageError

CONFIDENCE_95 = 1.96


class EpisodeTotals(NamedTuple):
    """Undiscounted sums of whole episodes."""

    reward: np.ndarray  # (episode,)
    cost: np.ndarray  # (episode, constraint)
    length: np.ndarray  # (episode,), steps of the environment
    dropped: int = 0  # episodes that were lost with their process, and are not among these
    measures: np.ndarray = np.zeros((0, 0))  # (episode, measure), what the task says of them


def rollout(policy: Policy, env: envs.VectorEnv, episodes: int, deterministic: bool, seed: int) -> EpisodeTotals:
    """The first ``episodes / num_envs`` episodes of every world, so that short episodes are not favoured."""
    each = -(-episodes // env.num_envs)
    obs = env.reset(seed=seed)
    reward, length = np.zeros(env.num_envs), np.zeros(env.num_envs)
    cost = np.zeros((env.num_envs, env.spec.num_costs))
    finished: list[list[tuple[float, np.ndarray, float, np.ndarray]]] = [[] for _ in range(env.num_envs)]
    step_number = dropped = 0
    while min(map(len, finished)) < each:
        step = env.step(policy.act(obs, deterministic, seed=(seed * 1_000_003 + step_number) % 2**32))
        _refuse_bad(env.spec, step, step_number * policy.hold)
        reward, cost, length = reward + step.reward, cost + step.cost, length + policy.hold
        lost = np.zeros(env.num_envs, bool) if step.dropped is None else step.dropped
        for world in np.flatnonzero(step.terminated | step.truncated):
            if not lost[world]:
                said = np.zeros(0) if step.measures is None else np.asarray(step.measures)[world]
                finished[world].append((reward[world], cost[world].copy(), length[world], said))
            elif len(finished[world]) < each:
                dropped += 1
                if dropped > episodes:
                    last, what = envs.last_failure(env.core), f"{dropped} episodes were lost, more than were asked for"
                    raise last.told(what, TrainingError) if last else TrainingError(what)
            reward[world], cost[world], length[world] = 0.0, 0.0, 0.0
        obs, step_number = step.obs, step_number + 1
    kept = [world[number] for number in range(each) for world in finished][:episodes]  # more begin with the same
    *totals, said = (np.asarray(part) for part in zip(*kept, strict=True))
    return EpisodeTotals(*totals, dropped=dropped, measures=said)


def _refuse_bad(spec: EnvSpec, step: Step, number: int) -> None:
    """Bad numbers end an evaluation as they end training."""
    for name, values in (("reward", step.reward), ("cost", step.cost)):
        good = np.abs(values) <= LARGEST  # not so of NaN
        if not np.all(good):
            value = np.asarray(values)[~good].flat[0]
            raise TrainingError(
                f"{spec.name} returned a {name} of {value:g} at step {number + 1:,} of its worlds; rewards and costs "
                f"have to be finite and at most {LARGEST:g} in size."
            )


def evaluate(
    run: Run | str | Path,
    episodes: int = 100,
    seed: int = 1_000_000,
    num_envs: int = 50,
    env: str | envs.VectorEnv | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """Evaluate every seed's policy of a run; means with 95% intervals over episodes (normal approximation).

    ``env`` puts the policies into another environment than the one they were trained on; ``trust`` as in ``load``.
    """
    run = run if isinstance(run, Run) else Run(run, trust=trust)
    if episodes < 1:
        raise UsageError(f"episodes is {episodes}; it must be at least 1.")
    plan = run.plan
    worlds = fresh_worlds(plan, min(num_envs, episodes), env)
    try:
        results = _evaluate_seeds(run, worlds, episodes, seed)
    finally:
        envs.close(worlds.core)
    return {
        "env": worlds.spec.name,
        "algo": plan.algo,
        "stage": run.stage,
        "steps": run.steps,
        "episodes": episodes,
        "cost_limits": plan.cost_limits,
        "policies": results,
    }


def fresh_worlds(plan: Plan, number: int, env: str | envs.VectorEnv | None = None) -> envs.VectorEnv:
    """The run's own environment as its policies see it, or a given one that fits them; the caller closes it."""
    if env is None:
        return envs.VectorEnv(plan.usable_here().build_env(number))
    if isinstance(env, str):
        chosen = envs.make(env, number)
    elif isinstance(env.core, envs.gym_env.GymnasiumEnv):
        chosen = envs.VectorEnv(envs.gym_env.GymnasiumEnv(env.core.source, number))
    else:
        chosen = env
    for what in ("obs_shape", "action", "num_costs"):
        here, there = getattr(chosen.spec, what), getattr(plan.spec, what)
        if here != there and not (what == "action" and _same_bounds(here, there)):
            raise UsageError(f"{chosen.spec.name} has {what} {here}; the policies of this run need {there}.")
    return envs.VectorEnv(plan.seen(chosen.core))


def _same_bounds(a: ActionSpace, b: ActionSpace) -> bool:
    return isinstance(a, Box) and isinstance(b, Box) and np.allclose((a.low, a.high), (b.low, b.high))


def _evaluate_seeds(run: Run, env: envs.VectorEnv, episodes: int, seed: int) -> list[dict[str, Any]]:
    limits = run.plan.cost_limits
    results = []
    for trained_seed in run.sound_seeds:
        policy = run.policy(trained_seed)
        for actions in ("deterministic", "sampled"):
            totals = rollout(policy, env, episodes, actions == "deterministic", seed)
            row: dict[str, Any] = {"seed": trained_seed, "actions": actions, "episodes": len(totals.reward)}
            row["return"] = interval(totals.reward)
            row["length"] = float(totals.length.mean())
            costs = dict(zip(limits, totals.cost.T, strict=True))
            row["cost"] = {name: interval(costs[name]) | tail(costs[name], limit) for name, limit in limits.items()}
            if env.spec.measures:
                said = dict(zip(env.spec.measures, totals.measures.T, strict=True))
                row["task"] = {name: interval(x[known]) for name, x in said.items() if (known := np.isfinite(x)).any()}
            row["feasible"] = all(row["cost"][name]["mean"] <= limit for name, limit in limits.items())
            results.append(row)
    return results


def tail(costs: np.ndarray, limit: float) -> dict[str, float]:
    """What a mean does not say of costs: CVaR₀.₉, the mean of the worst tenth, and the share over the limit.

    >>> tail(np.array([0.0, 0.0, 0.0, 0.0, 8.0]), 5.0)
    {'worst_tenth': 8.0, 'over': 0.2}
    """
    ordered = np.sort(np.asarray(costs, float))[::-1]
    weight = np.clip(0.1 * len(ordered) - np.arange(len(ordered)), 0.0, 1.0)  # the last of them counts in part
    return {"worst_tenth": float(ordered @ weight / weight.sum()), "over": float(np.mean(ordered > limit))}


def interval(values: np.ndarray) -> dict[str, float]:
    """Mean with the half-width of its 95% interval."""
    spread = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
    return {"mean": float(values.mean()), "half_width": CONFIDENCE_95 * spread / len(values) ** 0.5}
