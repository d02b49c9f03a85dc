"""Evaluation while training: whole episodes on worlds of their own, and the best policy that they found.

Nothing of it reaches training: worlds, keys and programs are others. What an evaluation finds is a function of the
policy, its seed and the iteration, so that a resumed run finds the same. Costs of sampled actions are what a limit
bounds (docs/cost-contract.md), so those decide which policy is best: the highest return among evaluations whose cost
is within its limit by the upper confidence bound; before there is one, the cost that is least over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from cppo import envs
from cppo.algos import on_policy as common
from cppo.networks import scale_action
from cppo.runs.learner import learner_for
from cppo.runs.metrics import MEASURE, Row, place
from cppo.types import PyTree

if TYPE_CHECKING:
    from cppo.runs.plan import Plan

CONFIDENCE = 0.95
KINDS = ("sampled", "mode")  # of actions
_STREAM = 2**31 - 2  # of keys, which no split of a seed's key reaches


class Totals(NamedTuple):
    """Undiscounted sums of the episodes of one policy."""

    reward: Float[np.ndarray, " episode"]
    cost: Float[np.ndarray, "episode constraint"]
    measures: Float[np.ndarray, "episode measure"]


class Evaluator:
    """Evaluates the policies of a plan side by side, as many episodes of each kind of action as the plan says."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self._learner = learner_for([plan])
        most = plan.eval_episodes if plan.backend == "jax" else plan.settings.num_envs
        self._worlds = min(plan.eval_episodes, most)
        self._each = -(-plan.eval_episodes // self._worlds)
        self._env = plan.build_env(len(KINDS) * len(plan.seeds) * self._worlds)
        self._init = jax.jit(self._env.init) if self._env.jittable else self._env.init
        self._advance = jax.jit(self._env.advance) if self._env.jittable else self._env.advance
        self._act = jax.jit(jax.vmap(self._act_lane, in_axes=(0, 0, 0, 0, None)))

    def close(self) -> None:
        envs.close(self._env)

    @property
    def columns(self) -> list[str]:
        """Of the rows, in order."""
        names = self.plan.spec.cost_names
        ends = [""] if len(names) == 1 else [f".{name}" for name in names]
        costs = [f"{column}{end}" for column in ("eval_cost", "eval_bound", "eval_cost_mode") for end in ends]
        measures = [f"eval_{MEASURE}{name}" for name in self.plan.spec.measures]
        return ["eval_return", "eval_return_mode", *costs, *measures]

    def is_due(self, iteration: int) -> bool:
        """Whether the iteration passes a multiple of ``eval_every``."""
        batch, every = self.plan.settings.batch_size, self.plan.eval_every
        return iteration * batch // every > (iteration - 1) * batch // every

    def __call__(self, agents: PyTree, iteration: int) -> list[Row]:
        """Columns of the iteration's rows, one dict for each seed."""
        totals = self._episodes(jax.device_put(agents), iteration)
        return [self._row(*found) for found in totals]

    def _row(self, sampled: Totals, mode: Totals) -> Row:
        costs = [sampled.cost.mean(0), [student(cost, CONFIDENCE) for cost in sampled.cost.T], mode.cost.mean(0)]
        values = [sampled.reward.mean(), mode.reward.mean(), *np.concatenate(costs), *sampled.measures.mean(0)]
        return dict(zip(self.columns, map(float, values), strict=True))

    def _act_lane(self, settings: Any, agent: PyTree, obs: Any, key: Any, step: Any) -> Any:
        networks, spec = self._learner.networks, self._env.spec
        sampled = common.act(networks, settings, agent, obs[0], jax.random.fold_in(key, step))
        mode = common.act_mode(networks, settings, agent, obs[1])
        return scale_action(spec, jnp.stack([sampled, mode]))

    def _episodes(self, agents: PyTree, iteration: int) -> list[list[Totals]]:
        """The first episodes of every world, so that short ones are not favoured; by lane and kind."""
        shape = (len(self.plan.seeds), len(KINDS), self._worlds)
        starts, keys = zip(*(_keys(seed, iteration, self._worlds) for seed in self.plan.seeds), strict=True)
        state, obs = self._init(jnp.concatenate([own for own in starts for _ in KINDS]))  # the same for each kind
        settings, acting = self._learner.settings, jnp.stack(keys)
        reward, cost = np.zeros(shape), np.zeros((*shape, self.plan.spec.num_costs))
        done: list[list[Any]] = [[] for _ in range(reward.size)]
        step = 0
        while min(map(len, done)) < self._each:
            seen = np.asarray(obs).reshape(*shape, *self._env.spec.obs_shape)
            actions = self._act(settings, agents, seen, acting, step)
            state, found = self._advance(state, np.asarray(actions).reshape(-1, *actions.shape[3:]))
            reward += np.asarray(found.reward).reshape(reward.shape)
            cost += np.asarray(found.cost).reshape(cost.shape)
            lost = np.zeros(reward.size, bool) if found.dropped is None else np.asarray(found.dropped)
            for world in np.flatnonzero(np.asarray(found.terminated) | np.asarray(found.truncated)):
                place_of = np.unravel_index(world, shape)
                if not lost[world]:
                    said = np.zeros(0) if found.measures is None else np.asarray(found.measures)[world]
                    done[world].append((reward[place_of], cost[place_of].copy(), said))
                reward[place_of], cost[place_of] = 0.0, 0.0
            obs, step = found.obs, step + 1
        kept = [
            [episode for world in done[at : at + self._worlds] for episode in world[: self._each]]
            for at in range(0, len(done), self._worlds)
        ]
        totals = [Totals(*(np.asarray(part) for part in zip(*some, strict=True))) for some in kept]
        return [totals[at : at + len(KINDS)] for at in range(0, len(totals), len(KINDS))]


def _keys(seed: int, iteration: int, worlds: int) -> tuple[Any, Any]:
    """Keys that start the worlds of a seed's policy, and the key that it acts with."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.PRNGKey(seed), _STREAM), iteration)
    world_key, act_key = jax.random.split(key)
    return jax.random.split(world_key, worlds), act_key


def student(values: Float[np.ndarray, " n"], confidence: float) -> float:
    """Approximate upper bound on the mean; exact for normal values."""
    from scipy import stats

    if len(values) < 2:
        return float("inf")
    return float(values.mean() + stats.t.ppf(confidence, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5)


class Best(NamedTuple):
    """The best policy of each seed so far: whose record, and the agents (leading axis of lanes)."""

    records: tuple[dict[str, Any], ...]
    agents: PyTree

    @property
    def feasible(self) -> bool:
        return any(record["feasible"] for record in self.records)

    @property
    def iteration(self) -> int:
        return max(record["iteration"] for record in self.records)


def better(best: Best | None, plan: Plan, iteration: int, agents: PyTree, rows: list[Row]) -> Best:
    """``best`` with what an evaluation found, seed by seed."""
    found = tuple(_record(plan, seed, iteration, row) for seed, row in zip(plan.seeds, rows, strict=True))
    if best is None:
        return Best(found, agents)
    taken = np.asarray([key(new) < key(old) for new, old in zip(found, best.records, strict=True)])

    def choose(new: Any, old: Any) -> np.ndarray:
        new, old = np.asarray(new), np.asarray(old)
        return np.where(taken.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    records = tuple(new if take else old for new, old, take in zip(found, best.records, taken, strict=True))
    return Best(records, jax.tree.map(choose, agents, best.agents))


def _record(plan: Plan, seed: int, iteration: int, row: Row) -> dict[str, Any]:
    ends = {name: "" if len(plan.cost_limits) == 1 else f".{name}" for name in plan.cost_limits}
    bounds = {name: row[f"eval_bound{end}"] for name, end in ends.items()}
    over = max(bounds[name] - limit for name, limit in plan.cost_limits.items())
    return {
        "seed": seed,
        "iteration": iteration,
        "steps": iteration * plan.settings.batch_size,
        "feasible": over <= 0,
        "return": row["eval_return"],
        "cost": {name: row[f"eval_cost{end}"] for name, end in ends.items()},
        "cost_at_most": bounds,
        "over": over,
    }


def key(record: dict[str, Any]) -> tuple[bool, float]:
    """Sorts the records of the best, the best first."""
    return place(record["feasible"], record["return"], record["over"])
