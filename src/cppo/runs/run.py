"""A run on disk: how far it is, and opened, its metrics, its summary and its trained policies."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np

from cppo.algos import on_policy as common
from cppo.networks import Networks, scale_action
from cppo.runs import checkpoint, evaluation, pretrained
from cppo.runs.checkpoint import BEST, MODEL, OPTIMISER, checkpoints_of
from cppo.runs.folder import ERROR, is_blank, writing
from cppo.runs.learner import learner_for
from cppo.runs.member import failed_seeds
from cppo.runs.metrics import has_rows, place, read_metrics
from cppo.runs.plan import CONFIG, Plan, load_plan
from cppo.runs.record import advice
from cppo.runs.sealed import Damaged, read_sealed, write_sealed
from cppo.settings import as_dict
from cppo.types import EnvSpec, PyTree, UsageError

if TYPE_CHECKING:
    import pandas as pd


class Policy:
    """A trained policy of one seed: observations in, actions in the environment's own units out.

    Each action is meant for ``hold`` steps of the environment; whoever steps it asks for the next one after them.
    """

    def __init__(self, networks: Networks, settings: Any, agent: PyTree):
        self.networks, self.settings, self.agent = networks, settings, agent
        self.spec: EnvSpec = networks.spec  # as the policy sees the environment: its steps are decisions
        self.hold: int = settings.hold
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
    """A run's folder, opened by ``cppo.load``; ``checkpoint`` says whose policies: a file's name, best or last.

    ``folder`` may be a name, too: ``pretrained:PointGoal1`` or ``hf://user/name``.

    ``plan`` is that of the run where it is known already; ``trust`` as in ``load``.
    """

    def __init__(
        self, folder: str | Path, *, checkpoint: str | None = None, trust: bool = False, plan: Plan | None = None
    ):
        self.folder = pretrained.located(folder)
        self.plan = load_plan(self.folder, trust) if plan is None else plan
        self.checkpoint = checkpoint or "last"

    def metrics(self) -> pd.DataFrame:
        """One row for each iteration and seed."""
        return read_metrics(self.folder)

    @cached_property
    def summary(self) -> dict[str, Any]:
        found = read_summary(self.folder)
        if found is None:
            raise UsageError(f"{self.folder} has no summary yet: go on with cppo train --resume {self.folder}")
        return found

    @property
    def is_summed_up(self) -> bool:
        """Whether the summary covers all that was trained."""
        return finished_steps(self.folder) >= self.steps > 0

    def parameters_file(self) -> Path:
        """Where the policies are: in the checkpoint that was asked for, or in the file of an exported run."""
        model = self.folder / MODEL
        if model.is_file() and self.checkpoint == "last":
            return model
        return checkpoint_file(self.folder, self.checkpoint)

    @cached_property
    def _parameters(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return checkpoint.load(self.parameters_file())

    def iteration(self) -> int:
        """How many updates the policies have had."""
        return int(self._parameters[1]["iteration"])

    @property
    def steps(self) -> int:
        """Environment steps of each seed that the policies have learned from."""
        return self.iteration() * self.plan.settings.batch_size

    @property
    def stage(self) -> str:
        """How far the policies are, in words; those that did not learn to the end are called so."""
        whole = self.plan.iterations * self.plan.settings.batch_size
        words = f"policy after {self.steps:,} of {whole:,} steps"
        if self.steps == 0:
            return f"Untrained: {words}."
        if "best" in (self.checkpoint, Path(self._parameters[1].get("source", "")).stem):
            return f"Best feasible {words}."
        return f"Half-trained: {words}." if self.steps < whole else f"Trained: {words}."

    @cached_property
    def failed_seeds(self) -> dict[int, str]:
        """Seeds that bad numbers stopped before the rest, with why; their policies are those of before."""
        return failed_seeds(checkpoint.load(self.parameters_file())[1])

    @property
    def sound_seeds(self) -> list[int]:
        """The seeds that trained to the end, or as far as the run has come."""
        return [seed for seed in self.plan.seeds if seed not in self.failed_seeds]

    @cached_property
    def agents(self) -> tuple[Networks, PyTree]:
        """Networks, and policies, critics and normalisers of all seeds; what only training needs is left out."""
        learner = learner_for([self.plan])
        arrays, _ = self._parameters
        wanted = jax.eval_shape(learner.init_agents)._replace(extra=None)
        extra = ("agent.extra.", "agent.extra")
        agents = {n: array for n, array in arrays.items() if n.startswith("agent.") and not n.startswith(extra)}
        if self.parameters_file().name == MODEL:  # which may leave out what only an optimiser remembers
            blank = checkpoint.blanks({"agent": wanted})
            agents = {name: array for name, array in blank.items() if OPTIMISER in name} | agents
        return learner.networks, checkpoint.restore(agents, {"agent": wanted})["agent"]

    def output(self, name: str) -> Path:
        """Where a file goes that is made of this run: into its folder, unless that is part of this package."""
        return Path(f"{self.folder.name}-{name}") if pretrained.is_ours(self.folder) else self.folder / name

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
        if self.checkpoint == "best":
            return min(self._parameters[1]["best"], key=evaluation.key)["seed"]
        if not (self.folder / "summary.json").is_file():
            return self.sound_seeds[0]
        return min((row for row in self.summary["seeds"] if "error" not in row), key=_place)["seed"]


def checkpoint_file(folder: Path, name: str) -> Path:
    """The checkpoint of a run called ``name``: the newest for ``last``, the best feasible policy for ``best``."""
    where = checkpoints_of(folder)
    if name == "last":
        return checkpoint.latest(where)
    path = where / (BEST if name == "best" else name)
    if path.is_file() and path.parent == where:
        return path
    saved = [path.name for path in checkpoint.by_iteration(where)]
    names = ", ".join(["last", *(["best"] if (where / BEST).is_file() else []), *saved])
    if name == "best":
        raise UsageError(
            f"{folder} keeps no best policy: none was evaluated within the limit while it trained (train with "
            f"--eval-every). There are: {names}."
        )
    raise UsageError(f"{folder} has no checkpoint {name!r}. There are: {names}.")


def _place(row: dict[str, Any]) -> tuple[bool, float]:
    costs = row["final_cost"].values() if isinstance(row["final_cost"], dict) else [row["final_cost"]]
    over = sum(math.inf if cost is None else cost for cost in costs)
    return place(row["feasible"], row["final_return"], over)


Standing = Literal["new", "stopped", "finished"]


def standing(plan: Plan, folder: Path) -> Standing:
    """What is left to do for ``plan`` in ``folder``; a ``UsageError`` where another run stands there."""
    if not (folder / CONFIG).is_file():
        if is_blank(folder):
            return "new"
        raise UsageError(f"{folder} exists and is not a run of cppo; choose another --out.")
    saved = load_plan(folder)
    differences = _differences(saved, plan)
    if differences:
        raise UsageError(
            f"{folder} holds another run: {'; '.join(differences)}. Choose another --out, or remove that folder."
        )
    if saved.steps == plan.steps and is_finished(plan, folder):
        return "finished"
    return "stopped" if saved_iterations(folder) or has_rows(folder) else "new"


def _differences(saved: Plan, wanted: Plan) -> list[str]:
    """In words, everything that would make the result of ``saved`` another than that of ``wanted``."""
    pairs = {
        name: (getattr(saved, name), getattr(wanted, name)) for name in ("algo", "env", "backend", "seeds", "init_from")
    }
    if saved.algo == wanted.algo:
        theirs, ours = as_dict(saved.settings), as_dict(wanted.settings)
        pairs |= {name: (theirs.get(name), ours[name]) for name in ours}
    if saved.steps > wanted.steps:
        pairs["steps"] = (saved.steps, wanted.steps)
    return [f"{name} is {there!r} there, {here!r} here" for name, (there, here) in pairs.items() if there != here]


def saved_iterations(folder: Path) -> list[int]:
    """Iterations of a run's checkpoints in order; none for a run that has not begun."""
    found = checkpoint.by_iteration(checkpoints_of(folder)) if (folder / CONFIG).is_file() else []
    return [checkpoint.iteration_of(path) for path in found]


def read_summary(folder: Path) -> dict[str, Any] | None:
    """``summary.json``, where there is one: with its steps, and a row for each seed."""
    path = folder / "summary.json"
    if not path.is_file():
        return None
    found = read_sealed(path, advice(folder))
    rows = found.get("seeds")
    whole = isinstance(rows, list) and all(isinstance(row, dict) and "seed" in row for row in rows)
    if not whole or type(found.get("steps")) is not int:
        raise Damaged(f"{path} is damaged: it sums up no run. {advice(folder)}")
    return found


def finished_steps(folder: Path) -> int:
    """Environment steps of each seed that the run's summary covers; 0 where it has none. It is written last of all."""
    found = read_summary(folder)
    return 0 if found is None else found["steps"]


def is_finished(plan: Plan, folder: Path) -> bool:
    """Whether the run has as many steps as the plan wants."""
    return finished_steps(folder) >= plan.iterations * plan.settings.batch_size


def failure(folder: Path) -> str | None:
    """Why the run failed, if it did."""
    path = folder / ERROR
    return str(read_sealed(path, "Remove it to try the run again.").get("error")) if path.is_file() else None


def is_open(plan: Plan, folder: Path) -> bool:
    """Whether the run is to be trained (on)."""
    return not is_finished(plan, folder) and failure(folder) is None


def seed_failure(folder: Path, seed: int) -> str | None:
    """Why a seed of a finished run failed, if it did."""
    found = read_summary(folder)
    return next((row.get("error") for row in found["seeds"] if row["seed"] == seed), None) if found else None


def record_failure(folder: Path, error: BaseException) -> None:
    kind = "" if isinstance(error, ValueError | RuntimeError) and str(error) else f"{type(error).__name__}: "
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_sealed(folder / ERROR, {"error": f"{kind}{error}"})


def load(folder: str | Path, *, checkpoint: str | None = None, trust: bool = False) -> Run:
    """Open the folder of a run, a policy that comes with cppo (``pretrained:PointGoal1``), or a run on the Hugging Face
    Hub (``hf://user/name``).

    ``checkpoint`` says whose policies: the name of a file, ``last`` (default) or ``best``. Code that only the run's
    files name (an algorithm, encoder, environment or interpreter of somebody's own) is not run, unless this user
    started the run on this machine, or says ``trust=True`` (SECURITY.md).
    """
    return Run(folder, checkpoint=checkpoint, trust=trust)
