"""How good is a saved policy? Whole fresh episodes, deterministic and sampled actions apart, with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cppo import envs
from cppo.run import Policy, Run
from cppo.types import UsageError

CONFIDENCE_95 = 1.96


class EpisodeTotals(NamedTuple):
    """Undiscounted sums of whole episodes."""

    reward: np.ndarray  # (episode,)
    cost: np.ndarray  # (episode, constraint)
    length: np.ndarray  # (episode,)


def rollout(policy: Policy, env: envs.VectorEnv, episodes: int, deterministic: bool, seed: int) -> EpisodeTotals:
    """The first ``episodes / num_envs`` episodes of every world, so that short episodes are not favoured."""
    each = -(-episodes // env.num_envs)
    obs = env.reset(seed=seed)
    reward, length = np.zeros(env.num_envs), np.zeros(env.num_envs)
    cost = np.zeros((env.num_envs, env.spec.num_costs))
    finished: list[list[tuple[float, np.ndarray, float]]] = [[] for _ in range(env.num_envs)]
    step_number = 0
    while min(map(len, finished)) < each:
        step = env.step(policy.act(obs, deterministic, seed=seed * 1_000_003 + step_number))
        reward, cost, length = reward + step.reward, cost + step.cost, length + 1
        for world in np.flatnonzero(step.terminated | step.truncated):
            finished[world].append((reward[world], cost[world].copy(), length[world]))
            reward[world], cost[world], length[world] = 0.0, 0.0, 0.0
        obs, step_number = step.obs, step_number + 1
    kept = [episode for world in finished for episode in world[:each]][:episodes]
    return EpisodeTotals(*(np.asarray(part) for part in zip(*kept, strict=True)))


def evaluate(run: Run | str | Path, episodes: int = 100, seed: int = 1_000_000, num_envs: int = 50) -> dict[str, Any]:
    """Evaluate every seed's policy of a run; means with 95% intervals over episodes (normal approximation)."""
    run = run if isinstance(run, Run) else Run(run)
    if episodes < 1:
        raise UsageError(f"episodes is {episodes}; it must be at least 1.")
    plan = run.plan
    env = envs.make(plan.env, min(num_envs, episodes), plan.backend)
    limits = plan.cost_limits
    results = []
    for trained_seed in plan.seeds:
        policy = run.policy(trained_seed)
        for actions in ("deterministic", "sampled"):
            totals = rollout(policy, env, episodes, actions == "deterministic", seed)
            row: dict[str, Any] = {"seed": trained_seed, "actions": actions, "episodes": len(totals.reward)}
            row["return"] = interval(totals.reward)
            row["length"] = float(totals.length.mean())
            row["cost"] = {name: interval(totals.cost[:, i]) for i, name in enumerate(limits)}
            row["feasible"] = all(row["cost"][name]["mean"] <= limit for name, limit in limits.items())
            results.append(row)
    return {"env": plan.env, "algo": plan.algo, "episodes": episodes, "cost_limits": limits, "policies": results}


def interval(values: np.ndarray) -> dict[str, float]:
    """Mean with the half-width of its 95% interval."""
    spread = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
    return {"mean": float(values.mean()), "half_width": CONFIDENCE_95 * spread / len(values) ** 0.5}
