"""One group of a study's runs, trained together: start, go on from the last checkpoints, stop, finish.

Each run keeps an ordinary run's folder, which ``cppo train --resume``, ``eval`` and ``plot`` take. All members are
saved at the same iterations; after a kill between two of those saves the group starts from the newest checkpoint that
all of them have, so that its result is that of an undisturbed study, bit for bit (but
for environments whose episodes cannot be saved: those start afresh). A finished run is never taken back to an earlier
checkpoint, and a run that another process is training is left to it.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from cppo import envs, log, timing
from cppo import plan as plans
from cppo.claim import claim
from cppo.display import Display
from cppo.plan import Plan
from cppo.saving import Saver
from cppo.study.lockstep import GroupState, Lockstep
from cppo.train import checkpoints_of, refuse_nonfinite, refuse_nonfinite_signals, rows_of, use_compilation_cache
from cppo.types import TrainingError

ERROR = "error.json"
Stop = Callable[[], bool]


def is_finished(plan: Plan, folder: Path) -> bool:
    """Whether the run has as many steps as the plan wants."""
    return finished_steps(folder) >= plan.iterations * plan.settings.batch_size


def finished_steps(folder: Path) -> int:
    """Environment steps that the run's summary covers; 0 where it has none."""
    try:
        return json.loads((folder / "summary.json").read_text())["steps"]
    except (OSError, ValueError):
        return 0


def failure(folder: Path) -> str | None:
    """Why the run failed, if it did."""
    try:
        return json.loads((folder / ERROR).read_text())["error"]
    except (OSError, ValueError):
        return None


def record_failure(folder: Path, error: BaseException) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kind = "" if isinstance(error, ValueError | RuntimeError) and str(error) else f"{type(error).__name__}: "
    log.write_json(folder / ERROR, {"error": f"{kind}{error}"})


def train_group(
    members: Sequence[tuple[Plan, Path]],
    stop: Stop,
    *,
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = False,
    show: bool | None = None,
    title: str = "",
) -> None:
    """Train all members to their end, or until ``stop`` says so; then they are saved and go on at the next call.

    A member that fails (NaN in its rewards or its policy) is recorded in its folder; the others go on.
    """
    use_compilation_cache()
    with ExitStack() as stack:
        mine = [member for member in members if stack.enter_context(claim(member[1]))]
        if len(mine) < len(members) and show is not False:
            print(
                f"{len(members) - len(mine)} of {len(members)} runs are being trained by another process: left to it."
            )
        mine = [member for member in mine if not is_finished(*member)]  # another process may just have been at it
        for part, done in _by_start(mine):
            if not stop():
                _Group(part, done, tensorboard).train(stop, checkpoint_seconds, show, title)


class _Group:
    def __init__(self, members: Sequence[tuple[Plan, Path]], done: int, tensorboard: bool):
        self.plans = [plan for plan, _ in members]
        self.folders = [folder for _, folder in members]
        self.done = done
        self.lockstep = Lockstep(self.plans)
        self.alive = [True] * len(self.plans)
        self.savers = [Saver(checkpoints_of(folder)) for folder in self.folders]
        self.state, self.seconds = self._restore(self.lockstep.start())
        self.writers = [
            log.RunWriter(folder, resume_iteration=done or None, tensorboard=tensorboard) for folder in self.folders
        ]

    def _restore(self, fresh: GroupState) -> tuple[GroupState, float]:
        if self.done == 0:
            versions = log.versions()
            states = self.lockstep.split(fresh)
            for plan, folder, saver, state in zip(self.plans, self.folders, self.savers, states, strict=True):
                if folder.exists():
                    _refuse_progress(folder)
                    shutil.rmtree(folder)  # what a kill during the start left
                folder.mkdir(parents=True)
                plan.save(folder, versions)
                saver.save(0, state, {"wall_seconds": 0.0})
            return fresh, 0.0
        states, seconds = [], 0.0
        starts = self.lockstep.split(fresh)
        resumable = self.lockstep.env.resumable
        others = starts if resumable else self.lockstep.split(self.lockstep.start(restart=self.done))
        for index, (plan, folder, like) in enumerate(zip(self.plans, self.folders, starts, strict=True)):
            state, meta = self.savers[index].load(like, checkpoint_name(self.done))
            if not resumable:  # episodes start afresh, everything else goes on
                worlds = others[index].worlds._replace(window=state.worlds.window)
                state = state._replace(host_env=others[index].host_env, worlds=worlds)
            states.append(state)
            seconds = max(seconds, float(meta["wall_seconds"]))
            if plans.load(folder).steps != plan.steps:
                plan.save(folder, log.versions())
        return self.lockstep.join(states), seconds

    def train(self, stop: Stop, checkpoint_seconds: float, show: bool | None, title: str) -> None:
        began = last_saved = time.monotonic()
        total = self.plans[0].iterations
        first = 0.0

        def elapsed() -> float:
            return self.seconds + time.monotonic() - began

        with self._display(show, title) as display:
            try:
                for iteration in range(self.done + 1, total + 1):
                    self.state, metrics = self.lockstep.iterate(self.state)
                    if iteration == self.done + 1:
                        first = time.monotonic() - began
                        self.lockstep.restart_clocks()
                    display.update(self._write(iteration, metrics, elapsed()), elapsed())
                    stopping = stop()
                    if iteration == total or stopping or time.monotonic() - last_saved >= checkpoint_seconds:
                        self._save(iteration, elapsed())
                        last_saved = time.monotonic()
                    if not any(self.alive) or (stopping and iteration < total):
                        return
            finally:
                envs.close(self.lockstep.env)
                for writer in self.writers:
                    writer.close()
                parts = self.lockstep.seconds()
                if show is not False and any(parts.values()):
                    rest = time.monotonic() - began - first - sum(parts.values())
                    print(timing.shares(parts | {timing.WORDS["other"]: max(0.0, rest)}, first))
        for plan, folder, alive in zip(self.plans, self.folders, self.alive, strict=True):
            if alive:
                steps = total * self.lockstep.batch_size
                summary = log.summarise(log.read_metrics(folder), plan.cost_limits, elapsed(), steps)
                log.write_json(folder / "summary.json", summary)

    def _write(self, iteration: int, metrics: list[Any], seconds: float) -> list[log.Row]:
        shown = []
        for index, (plan, found) in enumerate(zip(self.plans, metrics, strict=True)):
            if not self.alive[index]:
                continue
            try:
                refuse_nonfinite_signals(plan, found, iteration)
            except TrainingError as error:
                self._fail(index, error)
                continue
            rows = rows_of(plan, self.lockstep.batch_size, iteration, found, seconds)
            self.writers[index].write(rows)
            shown += [{**row, "seed": self._labels[index]} for row in rows]
        return shown

    def _save(self, iteration: int, seconds: float) -> None:
        for index, state in enumerate(self.lockstep.split(self.state)):
            if not self.alive[index]:
                continue
            try:
                refuse_nonfinite(state, iteration)
            except TrainingError as error:
                self._fail(index, error)
                continue
            self.writers[index].sync()
            self.savers[index].save(iteration, state, {"wall_seconds": seconds})

    def _fail(self, index: int, error: TrainingError) -> None:
        # Its lane is computed on, unseen: dropping it would compile the program anew.
        self.alive[index] = False
        record_failure(self.folders[index], error)

    @property
    def _labels(self) -> list[str]:
        """What tells the runs apart: the seed, with several algorithms their names, with variants the id's end."""
        several = len({plan.algo for plan in self.plans}) > 1
        labels = [f"{plan.algo} {plan.seeds[0]}" if several else f"{plan.seeds[0]}" for plan in self.plans]
        if len(set(labels)) == len(labels):
            return labels
        return [f"{label} {folder.name[-4:]}" for label, folder in zip(labels, self.folders, strict=True)]

    def _display(self, show: bool | None, title: str) -> Display:
        first = self.plans[0]
        limits = first.cost_limits if all(plan.cost_limits == first.cost_limits for plan in self.plans) else {}
        console = Console(quiet=True) if show is False else None
        labels: list[Any] = self._labels
        return Display(title or f"{first.algo} on {first.env}", first.steps, labels, limits, show, console)


def checkpoint_name(iteration: int) -> str:
    return f"checkpoint-{iteration:08d}.safetensors"


def _by_start(members: Sequence[tuple[Plan, Path]]) -> list[tuple[list[tuple[Plan, Path]], int]]:
    """The members with the iteration to start from: all together where a kill separated them by one save only."""
    saved = [_saved_iterations(folder) for _, folder in members]
    if members and (together := _common_start(members, saved)) is not None:
        return [(list(members), together)]
    apart: dict[int, list[tuple[Plan, Path]]] = {}
    for member, found in zip(members, saved, strict=True):
        apart.setdefault(found[-1], []).append(member)
    return [(part, done) for done, part in sorted(apart.items())]


def _common_start(members: Sequence[tuple[Plan, Path]], saved: Sequence[list[int]]) -> int | None:
    """The newest checkpoint that all have, if those that are ahead of it are so by the save that a kill cut short."""
    common = set.intersection(*(set(found[-2:]) for found in saved))
    if not common:
        return None
    start = max(common)
    ahead = {found[-1] for found in saved if found[-1] > start}
    begun = all((folder / plans.FILE).is_file() for _, folder in members)
    undone = any(finished_steps(folder) > start * plan.settings.batch_size for plan, folder in members)
    return start if not ahead or (len(ahead) == 1 and begun and not undone) else None


def _saved_iterations(folder: Path) -> list[int]:
    """Iterations of a run's checkpoints in order; [0] for a run that has not begun."""
    found = sorted(int(path.stem.split("-")[1]) for path in checkpoints_of(folder).glob("checkpoint-*.safetensors"))
    return found if found and (folder / plans.FILE).is_file() else [0]


def _refuse_progress(folder: Path) -> None:
    """A folder that begins anew must hold nothing worth keeping."""
    if any(checkpoints_of(folder).glob("checkpoint-*[1-9]*.safetensors")) or (folder / "summary.json").is_file():
        raise TrainingError(f"{folder} holds a run without its {plans.FILE}; put that back, or move the folder away.")
