"""One run of a group while it trains: its folder, and everything that is written there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cppo import envs
from cppo.errors import TrainingError, Unsaved, UsageError
from cppo.runs import checkpoint, health
from cppo.runs.checkpoint import checkpoints_of
from cppo.runs.evaluation import Evaluator, better
from cppo.runs.folder import empty, obstacle, reason, writing
from cppo.runs.learner import TrainState
from cppo.runs.lock import taken_over
from cppo.runs.loggers import TABLE, Logger
from cppo.runs.metrics import FAILED_SEEDS, MEASURE, Row, RunWriter, read_metrics, summarise
from cppo.runs.plan import CONFIG, Plan, read_config
from cppo.runs.pretrained import is_remote, located
from cppo.runs.provenance import versions
from cppo.runs.saving import Saver
from cppo.runs.sealed import write_sealed
from cppo.types import Metrics, PyTree

log = logging.getLogger("cppo.runs")

BOUND = "config"  # in a checkpoint: the settings that it was trained with
Fail = Callable[[Path, TrainingError], None]  # what is done about a run that cannot go on


class Member:
    """A plan and its folder. A member that failed writes nothing any more; what it saved stays.

    A seed that bad numbers stop fails alone. Its lane is computed on, unseen, its state kept as it was before.
    """

    def __init__(self, plan: Plan, folder: Path, fail: Fail):
        self.plan, self.folder, self.fail = plan, folder, fail
        self.failed = False
        self.failed_seeds: dict[int, str] = {}
        self._losses = health.Losses(1.0 if plan.source is None else plan.source.max_dropped)
        self._trouble: envs.gym_env.gym_pool.Failure | None = None
        self._warned = False
        self._told: str | None = None  # why it cannot be saved at present
        self._saver = Saver(checkpoints_of(folder))
        self._loggers: list[RunWriter | Logger] = []
        self._evaluator: Evaluator | None = None

    def begin(self, state: TrainState) -> TrainState:
        """Found the run's folder; what a kill during the start left there is removed."""
        if self.plan.init_from is not None:
            if is_remote(self.plan.init_from) and self.plan.trust.whose:
                what = f"starts from {self.plan.init_from}, and only its files ask to fetch that"
                raise UsageError(f"{self.folder} {what}; begin it anew with --init-from.")
            state = start_from(state, self.plan.init_from)
        if (problem := obstacle(self.folder)) is not None:
            raise TrainingError(problem)
        with writing(self.folder):
            empty(self.folder)
            self._bound = self.plan.saved()
            self._saver.save(0, state, {"wall_seconds": 0.0, BOUND: self._bound})
            self.plan.save(self.folder, versions())  # last: a folder with a config has a checkpoint
        return state

    def load(self, like: TrainState, name: str) -> tuple[TrainState, float]:
        """The state of a checkpoint, and the seconds that the run had taken by then."""
        config = read_config(self.folder)
        state, meta = self._saver.load(like, name)
        refuse_others(self.folder, config, meta.get(BOUND))
        with writing(self.folder):
            self._saver.show_best()  # a kill may have come before it was written
        self.failed_seeds = failed_seeds(meta)
        self._bound = config | {"steps": self.plan.steps}
        if config["steps"] != self.plan.steps:
            with writing(self.folder):
                write_sealed(self.folder / "versions.json", versions())
                write_sealed(self.folder / CONFIG, self._bound)
        return state, float(meta["wall_seconds"])

    @contextmanager
    def logging(self, resumed_at: int | None, tensorboard: bool, loggers: Sequence[str]) -> Iterator[None]:
        """Take rows until the end of the block; those of a resumed run first go back to its checkpoint."""
        with ExitStack() as stack:
            with writing(self.folder):
                sound = [seed for seed in self.plan.seeds if seed not in self.failed_seeds]
                self._writer = stack.enter_context(RunWriter(self.folder, resumed_at, tensorboard, sound))
                self._loggers = [self._writer]
                for name in loggers:
                    self._loggers.append(TABLE[name](self.folder, self.plan))
                    stack.callback(self._loggers[-1].close)
            if self.plan.eval_every:
                self._evaluator = Evaluator(self.plan)
                stack.callback(self._evaluator.close)
            yield

    def is_due(self, iteration: int) -> bool:
        """Whether the policies are to be evaluated after this iteration."""
        return self._evaluator is not None and not self.failed and self._evaluator.is_due(iteration)

    def evaluate(self, iteration: int, agents: PyTree) -> list[Row]:
        """What ``write`` adds to the rows, and perhaps new best policies."""
        if self._evaluator is None:
            return []
        rows = self._evaluator(agents, iteration)
        self._saver.best = better(self._saver.best, self.plan, iteration, agents, rows)
        return rows

    def write(
        self,
        iteration: int,
        metrics: Metrics,
        seconds: float,
        evaluated: list[Row],
        trouble: envs.gym_env.gym_pool.Failure | None = None,
    ) -> list[Row]:
        """Log an iteration; returns its rows, none of failed seeds. ``trouble``: the environment's last failure."""
        if self.failed or self._refused(self._failed_now(metrics, iteration)):
            return []
        rows = rows_of(self.plan, iteration, metrics, seconds)
        if self._evaluator is not None:
            nothing = [dict.fromkeys(self._evaluator.columns)] * len(rows)
            rows = [row | found for row, found in zip(rows, evaluated or nothing, strict=True)]
        rows = [row for row in rows if row["seed"] not in self.failed_seeds]
        for logger in self._loggers:
            logger.write(rows)
        self._trouble = trouble or self._trouble
        if "dropped_episodes" in metrics:
            self._losses.add(rows)
            self._lost(self._losses.too_many())
        return rows

    def save(self, iteration: int, state: TrainState, seconds: float, last: bool = False) -> str | None:
        """Save the run; returns what is to be told. A save that fails is tried again at the next, but for the last."""
        if self.failed:
            return None
        failed = {FAILED_SEEDS: {str(seed): text for seed, text in self.failed_seeds.items()}}
        meta = {"wall_seconds": seconds, BOUND: self._bound} | (failed if self.failed_seeds else {})
        try:
            problem = self._moved()
            if problem is None:
                self._writer.sync()
                self._saver.save(iteration, state, meta)
        except OSError as error:
            return self._unsaved(error, last)
        if problem is not None:
            self._stop(Unsaved(problem))
            return None
        before, self._told = self._told, None
        return None if before is None else f"{self.folder}: saved again, nothing is missing."

    @property
    def unsaved(self) -> bool:
        """Whether the last save failed and is to be tried again."""
        return self._told is not None and not self.failed

    def finish(self, iteration: int, seconds: float, more: dict[str, Any]) -> None:
        """Write ``summary.json``, the last of all files, with ``more`` in it."""
        if self.failed:
            return
        steps = iteration * self.plan.settings.batch_size
        with writing(self.folder):
            frame = read_metrics(self.folder)
            if frame.empty:
                return self._stop(TrainingError(f"{self.folder} has no rows any more that could be summed up."))
            if self._lost(health.none_finished(frame)):
                return
            summary = summarise(frame, self.plan.cost_limits, seconds, steps, self.failed_seeds)
            best = {} if self._saver.best is None else {"best": self._saver.best.records}
            lost = {} if self.plan.source is None else {"dropped_episodes": health.lost_by_kind(frame)}
            write_sealed(self.folder / "summary.json", summary | best | lost | more)

    def _moved(self) -> str | None:
        """Why nothing can be saved here any more, so that training on is of no use."""
        if not self._writer.is_in_place():
            return (
                f"{self.folder} was moved or deleted while it trained, so that nothing more can be saved in it. "
                f"Go on where it is now: cppo train --resume ITS_NEW_PLACE"
            )
        other = taken_over(self.folder)
        return other and f"{self.folder} was taken over by {other}; this process has stopped training it."

    def _unsaved(self, error: OSError, last: bool) -> str | None:
        if last:
            self._stop(
                Unsaved(
                    f"the end of training could not be saved in {self.folder} ({reason(error)}). What was saved before "
                    f"is intact: make space and go on with: cppo train --resume {self.folder}"
                )
            )
            return None
        before, self._told = self._told, reason(error)
        if self._told == before:
            return None
        return (
            f"{self.folder} cannot be saved ({self._told}). Training goes on, and saving is tried again; "
            "what was saved before is intact."
        )

    def _stop(self, error: TrainingError) -> None:
        self.failed = True
        self.fail(self.folder, error)

    def _failed_now(self, metrics: Metrics, iteration: int) -> str | None:
        """Note the seeds that bad numbers stop; why the run fails, where none is left."""
        before = set(self.failed_seeds)
        self.failed_seeds = health.failures(self.plan, metrics, iteration) | self.failed_seeds
        new = [seed for seed in self.plan.seeds if seed in self.failed_seeds and seed not in before]
        if len(self.failed_seeds) == len(self.plan.seeds):
            return self.failed_seeds[new[0]]
        for seed in new:
            log.warning("%s The other seeds go on.", self.failed_seeds[seed])
        negative = None if self._warned else health.negative_cost(self.plan, metrics, iteration)
        if negative is not None:
            self._warned = True
            log.warning("%s", negative)
        return None

    def _lost(self, problem: str | None) -> bool:
        """Fail where too many episodes are lost, with what the environment said last."""
        if problem is not None:
            error = TrainingError(f"{problem}.")
            self._stop(error if self._trouble is None else self._trouble.told(problem, TrainingError))
        return self.failed

    def _refused(self, problem: str | None) -> bool:
        # A failed member's lanes are computed on, unseen: dropping them would compile the program anew.
        if problem is not None:
            self._stop(TrainingError(problem))
        return self.failed


def refuse_others(folder: Path, config: dict[str, Any], bound: dict[str, Any] | None) -> None:
    """Refuse a run whose settings are not (any more) those of its checkpoint; the number of steps is no setting."""
    found = differences(config, bound or config)
    if found:
        path = folder / CONFIG
        raise UsageError(
            f"{path} is not what the checkpoint was trained with: {'; '.join(found[:5])}. Put that back (cppo check "
            f"{folder} --repair does), or start a variation: cppo train --config {path} --init-from {folder}"
        )


def differences(config: dict[str, Any], bound: dict[str, Any]) -> list[str]:
    """In words, what of a run's settings its checkpoint has otherwise."""
    here, there = (one | one.get("settings", {}) | {"settings": None, "steps": None} for one in (config, bound))
    return [
        f"{name} is {here.get(name)!r}, there {there.get(name)!r}"
        for name in {**here, **there}
        if here.get(name) != there.get(name)
    ]


def failed_seeds(meta: dict[str, Any]) -> dict[int, str]:
    """Seeds that had failed when a checkpoint with this ``meta`` was saved, with why."""
    return {int(seed): text for seed, text in meta.get(FAILED_SEEDS, {}).items()}


def rows_of(plan: Plan, iteration: int, metrics: Metrics, seconds: float) -> list[Row]:
    """One flat record for each seed; a quantity with an axis of constraints gets a column for each."""
    names = plan.spec.cost_names
    rows = []
    for lane, seed in enumerate(plan.seeds):
        row: Row = {"iteration": iteration, "steps": iteration * plan.settings.batch_size, "seed": seed}
        values = {name: np.asarray(value)[lane] for name, value in metrics.items() if _logged(name, value)}
        waiting = bool(values.pop("waiting"))
        recovering = values.pop("recovering", np.asarray(False))
        row["mode"] = "waiting" if waiting else "recovery" if np.any(recovering) else "normal"
        for name, value in values.items():
            if value.ndim == 0:
                unknown = np.isnan(value) if name.startswith(MEASURE) else waiting and name in ("return", "length")
                row[name] = None if unknown else value.item()
            elif len(names) == 1:
                row[name] = None if waiting else value[0].item()
            else:
                row |= {f"{name}.{cost}": None if waiting else x.item() for cost, x in zip(names, value, strict=True)}
        row["seconds"] = seconds
        rows.append(row)
    return rows


def _logged(name: str, value: Any) -> bool:
    """Whether a quantity gets a column: not what is for ``health`` alone, and kinds of losses where there were any."""
    return not name.startswith("_") and (name not in health.KINDS or bool(np.any(value)))


def start_from(state: TrainState, source: str | Path) -> TrainState:
    """Policy, normaliser and critics of a trained run in place of fresh ones; lane i takes the source's lane i mod n.

    Each is taken whole or, where it does not fit, not at all; the policy has to fit.
    """
    source = located(source)
    model = source / checkpoint.MODEL
    arrays, _ = checkpoint.load(model if model.is_file() else checkpoint.latest(checkpoints_of(source)))
    slim = not any(checkpoint.OPTIMISER in name for name in arrays)  # its optimisers begin anew
    fresh = checkpoint.named_arrays(state)
    lanes = next(iter(fresh.values())).shape[0]
    for part in ("agent.policy", "agent.normaliser", "agent.value", "agent.cost_value"):
        names = [name for name in fresh if name.startswith(part)]
        names = [name for name in names if not (slim and checkpoint.OPTIMISER in name)]
        if all(name in arrays and arrays[name].shape[1:] == fresh[name].shape[1:] for name in names):
            fresh |= {name: arrays[name][np.arange(lanes) % arrays[name].shape[0]] for name in names}
        elif part == "agent.policy":
            raise UsageError(f"the policy in {source} does not fit this environment and network; train from scratch.")
    return checkpoint.restore(fresh, state)
