"""A saved run, opened: its metrics, its summary, and its trained policies."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from cppo import checkpoint, log
from cppo import plan as plans
from cppo.algos import common
from cppo.networks import Networks, scale_action
from cppo.types import EnvSpec, PyTree, UsageError

if TYPE_CHECKING:
    import pandas as pd


MODEL = "model.safetensors"  # parameters of an exported run (cppo/export/hub.py)


class Policy:
    """A trained policy of one seed: observations in, actions in the environment's own units out."""

    def __init__(self, networks: Networks, settings: Any, agent: PyTree):
        self.networks, self.settings, self.agent = networks, settings, agent
        self.spec: EnvSpec = networks.spec
        self._mode = jax.jit(lambda obs: scale_action(self.spec, common.act_mode(networks, settings, agent, obs)))
        self._sample = jax.jit(
            lambda obs, key: scale_action(self.spec, common.act(networks, settings, agent, obs, key))
        )
        self._key = jax.random.PRNGKey(0)

    def act(self, obs: Any, deterministic: bool = True, seed: int | None = None) -> np.ndarray:
        """Actions for one observation or a batch of them.

        ``deterministic`` gives the most likely action; otherwise actions are sampled, reproducibly from ``seed`` where
        one is given.
        """
        obs = np.asarray(obs, np.float32)
        shape = self.spec.obs_shape
        if obs.shape[obs.ndim - len(shape) :] != shape or obs.ndim not in (len(shape), len(shape) + 1):
            raise UsageError(f"obs has shape {obs.shape}; {self.spec.name} has {shape}, or a batch {('n', *shape)}.")
        single = obs.ndim == len(shape)
        batch = obs[None] if single else obs
        if deterministic:
            actions = self._mode(batch)
        else:
            self._key, key = jax.random.split(self._key) if seed is None else (self._key, jax.random.PRNGKey(seed))
            actions = self._sample(batch, key)
        return np.asarray(actions[0] if single else actions)


class Run:
    """A run's folder, opened by ``cppo.load``."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.plan = plans.load(self.folder)

    def metrics(self) -> pd.DataFrame:
        """One row for each iteration and seed."""
        return log.read_metrics(self.folder)

    @cached_property
    def summary(self) -> dict[str, Any]:
        path = self.folder / "summary.json"
        if not path.is_file():
            raise UsageError(f"{self.folder} has no summary yet: go on with cppo train --resume {self.folder}")
        return json.loads(path.read_text())

    def parameters_file(self) -> Path:
        """The newest checkpoint, or the parameters of an exported run."""
        model = self.folder / MODEL
        return model if model.is_file() else checkpoint.latest(self.folder / "checkpoints")

    def iteration(self) -> int:
        """How many updates the saved policies have had."""
        return int(checkpoint.load(self.parameters_file())[1]["iteration"])

    @cached_property
    def agents(self) -> tuple[Networks, PyTree]:
        """Networks, and policies, critics and normalisers of all seeds; what only training needs is left out."""
        learner = plans.usable_here(self.plan).learner()
        arrays, _ = checkpoint.load(self.parameters_file())
        wanted = jax.eval_shape(learner.init_agents)._replace(extra=None)
        extra = ("agent.extra.", "agent.extra")
        agents = {n: array for n, array in arrays.items() if n.startswith("agent.") and not n.startswith(extra)}
        return learner.networks, checkpoint.restore(agents, {"agent": wanted})["agent"]

    def policy(self, seed: int | None = None) -> Policy:
        """The policy of ``seed`` (default: of the feasible seed with the highest return, else the least cost)."""
        seeds = self.plan.seeds
        seed = self.best_seed if seed is None else seed
        if seed not in seeds:
            raise UsageError(f"seed {seed} is not in this run; it has {', '.join(map(str, seeds))}.")
        networks, agents = self.agents
        return Policy(networks, self.plan.settings, jax.tree.map(lambda x: x[seeds.index(seed)], agents))

    def act(self, obs: Any, deterministic: bool = True, seed: int | None = None) -> np.ndarray:
        """``policy().act``: actions of the best seed's policy."""
        return self._best_policy.act(obs, deterministic, seed)

    @cached_property
    def _best_policy(self) -> Policy:
        return self.policy()

    @property
    def best_seed(self) -> int:
        """The feasible seed with the highest return, else the one with the least cost."""
        if not (self.folder / "summary.json").is_file():
            return self.plan.seeds[0]
        rows = self.summary["seeds"]
        feasible = [row for row in rows if row["feasible"]]
        if feasible:
            return max(feasible, key=lambda row: row["final_return"])["seed"]
        return min(rows, key=lambda row: np.sum(list(_values(row["final_cost"]))))["seed"]


def _values(cost: Any) -> Any:
    if isinstance(cost, dict):
        return cost.values()
    return [np.inf if cost is None else cost]


def load(folder: str | Path) -> Run:
    """Open the folder of a run, or a run on the Hugging Face Hub: ``hf://user/name``."""
    if str(folder).startswith("hf://"):
        from cppo.export import hub

        return Run(hub.pull(str(folder).removeprefix("hf://")))
    return Run(folder)
