"""What a record says in numbers: a row for each group, paths of recovery updates, probabilities of improvement."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from cppo import envs
from cppo.policies.evaluate import tail
from cppo.reports import published, stats
from cppo.reports.records import Record
from cppo.runs.metrics import place


def summaries(record: Record) -> list[Record]:
    """One row a group: final return and cost, feasibility and training, with intervals, ranked within each environment.

    First those that are within their limits, by return: in the mean, and in more than half of their seeds. Variants are
    not ranked.
    """
    seconds = {_key(one): one["seconds"] for one in record.get("measured", {}).get("update_times", ())}
    rows = [{**_summary(group), "update_seconds": seconds.get(_key(group))} for group in record["groups"]]
    for env in dict.fromkeys(row["env"] for row in rows):
        ranked = [row for row in rows if row["env"] == env and not row["variant"]]
        ranked.sort(key=lambda row: place(row["holds"], row["mean_return"], row["relative_cost"]))
        for rank, row in enumerate(ranked, start=1):
            row["rank"] = rank
        if ranked:
            ranked[0]["leads"] = _leads(ranked[0], ranked[1:])
    return rows


def _leads(first: Record, others: list[Record]) -> bool:
    """Whether the method that ranks first, within its limits, earns more by more than noise than each that may be
    within them, too: whose costs' intervals do not lie above the limits."""
    if first["relative_cost"] > 1.0 or first["seeds"] < 2:
        return False

    def least(cost: stats.Interval) -> float:
        return cost.value if math.isnan(cost.low) else cost.low

    rivals = [row for row in others if all(least(row["cost"][c]) <= d for c, d in row["cost_limits"].items())]
    return all(stats.surely_more(first["returns"], row["returns"]) for row in rivals)


def _key(one: Record) -> tuple[str, str, str]:
    return one["env"], one["algo"], one["variant"]


def path_summaries(record: Record) -> list[Record]:
    """How recovery updates went, one row for each environment, number of targets and β: means over seeds.

    A path *arrives* with the first epoch after which the predicted cost is within the limit.
    """
    means = ("epochs", "reward_then", "cost_share", "reward", "kl")
    found: dict[tuple[str, int, float], list[Record]] = {}
    for seed in record.get("measured", {}).get("paths", ()):
        for way in seed["ways"]:
            cost, reward = np.array(way["cost_change"]), np.array(way["reward_change"])
            within = np.flatnonzero(cost <= seed["needed"])
            found.setdefault((seed["env"], way["waypoints"], way["beta"]), []).append(
                {
                    "arrived": len(within) > 0,
                    "epochs": float(within[0]) if len(within) else None,
                    "reward_then": reward[within[0]] if len(within) else None,
                    "cost_share": cost[-1] / seed["needed"],
                    "reward": reward[-1],
                    "kl": way["kl"][-1],
                }
            )
    return [
        {
            **dict(zip(("env", "waypoints", "beta"), key, strict=True)),
            "seeds": len(seeds),
            "arrived": sum(seed["arrived"] for seed in seeds),
            **{name: _mean(seed[name] for seed in seeds) for name in means},
        }
        for key, seeds in found.items()
    ]


def _summary(group: Record) -> Record:
    seeds = group["seeds"]
    known = [seed for seed in seeds if seed["final_return"] is not None]
    returns = np.array([seed["final_return"] for seed in known])
    costs = {
        name: np.array([seed["final_cost"][name] for seed in known if seed["final_cost"][name] is not None])
        for name in group["cost_limits"]
    }
    relative = [
        values.mean() / max(limit, 1e-9) if len(values) else math.inf
        for values, limit in zip(costs.values(), group["cost_limits"].values(), strict=True)
    ]
    feasible = sum(bool(seed["feasible"]) for seed in seeds)
    mean = lambda name: _mean(seed.get(name) for seed in seeds)  # noqa: E731
    logged = dict.fromkeys(name for seed in seeds for name in seed.get("updates", ()))
    return {
        **{name: group[name] for name in ("env", "algo", "variant", "steps", "cost_limits")},
        "seeds": len(seeds),
        "returns": returns.tolist(),
        "return_iqm": stats.bootstrap(returns),
        "mean_return": float(returns.mean()) if len(returns) else math.nan,
        "mean_return_t": stats.mean_t(returns),
        "cost": {name: stats.mean_t(values, least=0.0) for name, values in costs.items()},
        "worst_cost": {name: float(values.max()) if len(values) else math.nan for name, values in costs.items()},
        "relative_cost": float(max(relative, default=0.0)),
        "within": stats.wilson(feasible, len(seeds)),
        "within_count": feasible,
        "holds": bool(max(relative, default=0.0) <= 1.0) and 2 * feasible > len(seeds),
        "violation_rate": mean("violation_rate"),
        "excess_cost": _mean(_excess(seed, group) for seed in seeds),
        **_quick(group),
        **_tails(group),
        "first_feasible": mean("first_feasible"),
        "never_feasible": sum(_mean([seed.get("first_feasible", 0.0)]) is None for seed in seeds),
        "to_90": mean("to_90"),
        # A seed that never recovered did not switch, if its method can recover: as some other seed shows.
        "switches": None if mean("switches") is None else _mean(seed.get("switches") or 0 for seed in seeds),
        "updates": {name: _mean(seed.get("updates", {}).get(name) for seed in seeds) for name in logged},
        "task": {
            name: _mean(seed.get("final_task", {}).get(name) for seed in seeds)
            for name in dict.fromkeys(name for seed in seeds for name in seed.get("final_task", ()))
        },
        "published": published.figures(group["env"], group["algo"], group["variant"]),
        "rank": None,
        "leads": False,
    }


def _curves(seed: Record, group: Record) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps, returns and costs of a seed's curve; NaN where nothing is known."""
    names = ("steps", "return", *group["cost_limits"])
    steps, returns, *costs = (np.array(seed["curve"][name], float) for name in names)
    return steps, returns, np.array(costs)


def _excess(seed: Record, group: Record) -> float | None:
    length = group.get("episode_length") or (
        envs.spec(group["env"]).episode_length if group["env"] in envs.TABLE else None
    )
    if not seed.get("curve") or not length:
        return None
    costs = _curves(seed, group)[2]
    return stats.excess_cost(costs, list(group["cost_limits"].values()), group["steps"], length)


def _quick(group: Record) -> Record:
    """Steps until a return worth having within the limit, where a task has one; how many seeds never did."""
    wanted, seeds = published.WANTED.get(group["env"]), [seed for seed in group["seeds"] if seed.get("curve")]
    limits = list(group["cost_limits"].values())
    found = [] if wanted is None else [stats.steps_until(*_curves(seed, group), wanted, limits) for seed in seeds]
    return {"wanted": wanted, "until_wanted": _mean(found), "never_wanted": int(np.sum(np.isnan(found)))}


def _tails(group: Record) -> Record:
    """CVaR₀.₉ and the share over the limit of the final policies' episodes, means over seeds that have some."""
    played = [seed["episodes"]["cost"] for seed in group["seeds"] if "episodes" in seed]
    found = {
        name: [tail(np.array(costs[name]), limit) for costs in played] for name, limit in group["cost_limits"].items()
    }
    names = {"worst_tenth": "worst_tenth", "episodes_over": "over"}
    return {
        what: {name: _mean(one[column] for one in rows) for name, rows in found.items()} if played else {}
        for what, column in names.items()
    }


def improvements(record: Record, algo: str = "cppo") -> list[Record]:
    """How probably a seed of ``algo`` beats one of each other algorithm, infeasible seeds counting as worst.

    A seed's value is its return when it ended within its limits; else it stands behind all feasible ones, by excess.
    """
    values: dict[tuple[str, str], np.ndarray] = {}
    for group in record["groups"]:
        if not group["variant"]:
            values[group["env"], group["algo"]] = np.array([_worth(seed, group) for seed in group["seeds"]])
    rows = []
    for other in dict.fromkeys(name for _, name in values if name != algo):
        envs = [env for env, name in values if name == other and (env, algo) in values]
        if envs:
            interval = stats.improvement_interval(
                [values[env, algo] for env in envs], [values[env, other] for env in envs]
            )
            rows.append({"algo": algo, "other": other, "envs": envs, "probability": interval})
    return rows


def _worth(seed: Record, group: Record) -> float:
    if seed["feasible"] and seed["final_return"] is not None:
        return float(seed["final_return"])
    over = [
        (math.inf if cost is None else cost) / max(group["cost_limits"][name], 1e-9)
        for name, cost in seed["final_cost"].items()
    ]
    return -1e9 * (1.0 + max(over, default=0.0))


def _mean(values: Iterable[float | None]) -> float | None:
    """Mean of the known ones; None where there is none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return float(np.mean(known)) if known else None
