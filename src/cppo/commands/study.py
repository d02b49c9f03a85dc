"""``cppo study``: run a study, or what is left of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cppo.commands.shared_options import CheckpointSeconds
from cppo.commands.words import names
from cppo.errors import TrainingError, UsageError
from cppo.runs.lock import is_claimed
from cppo.runs.signals import ending

if TYPE_CHECKING:
    from cppo.study.definition import StudyRun
    from cppo.study.execute import Progress

Positional = tyro.conf.Positional
console = Console()


@dataclass
class StudyCommand:
    """Run a study: paper (Figure 3), ablation (Figure 4 and the paper's claims), limits, or your own file.

    Stop it whenever you like; the same command goes on where it was. Example: cppo study paper --only PointCircle
    --algos cppo,cpo --seeds 2 --stop-after 25m
    """

    name: Positional[str]
    """paper, ablation, limits, or a .toml or .py file (docs/studies.md)."""
    only: str | None = None
    """Only these environments, separated by commas."""
    algos: str | None = None
    """Only these algorithms, separated by commas."""
    seeds: int | None = None
    """How many seeds."""
    steps: int | None = None
    """Environment steps of each seed; more than before goes on with finished runs."""
    stop_after: str | None = None
    """Save and stop after this time, for example 25m, 1h30m or 90s; the same command goes on."""
    budget: str | None = None
    """The older name of --stop-after."""
    out: Path | None = None
    """Folder of the study (default: runs/study-NAME)."""
    list: bool = False
    """Only list the runs and where they stand."""
    backend: str | None = None
    """Where the environments run: auto, jax, threads or warp."""
    lockstep: bool = False
    """All algorithms of one environment in one batch of worlds (the backend warp does so unless --apart)."""
    apart: bool = False
    """Each algorithm by itself, also on a GPU."""
    lanes: int = 0
    """Most runs that train together in one program (0: 4 on a CPU, elsewhere no bound)."""
    retry: bool = False
    """Try failed runs again."""
    ray: str | None = None
    """Spread runs over a Ray cluster at this address; --ray alone starts one on this machine."""
    checkpoint_seconds: CheckpointSeconds = 30.0
    tensorboard: bool = False
    """Write TensorBoard files."""

    def __call__(self) -> None:
        from cppo.runs.options import seconds_of
        from cppo.study import builtin, execute

        if self.lanes < 0:
            raise UsageError(
                f"--lanes is {self.lanes}; it must be at least 0, for example --lanes 4 (0 lets cppo choose)."
            )
        whole = builtin.get(self.name).cut(backend=self.backend)
        study = whole.cut(names(self.only), names(self.algos), self.seeds, self.steps)
        folder = self.out or Path("runs") / f"study-{study.name}"
        if self.list:
            self._print(execute.progress(folder, study.runs()), True)
            return
        time = self.stop_after or self.budget
        options = execute.StudyOptions(
            stop_after=None if time is None else seconds_of(time, "--stop-after" if self.stop_after else "--budget"),
            lockstep=False if self.apart else self.lockstep or None,
            lanes=self.lanes,
            retry=self.retry,
            checkpoint_seconds=self.checkpoint_seconds,
            tensorboard=self.tensorboard,
        )
        spread = None
        if self.ray is not None:
            from cppo.study.distributed import Cluster

            spread = Cluster(self.ray)
        done = execute.execute(study, folder, options, spread, whole)
        self._print(done, False)
        elsewhere = sum(is_claimed(execute.run_folder(folder, run)) for run in done.unfinished)
        if elsewhere:
            console.print(f"{elsewhere} runs are being trained by another process.", highlight=False)
        if len(done.unfinished) > elsewhere:
            console.print("Stopped and saved. Go on with the same command.", highlight=False)
        if done.finished:
            console.print(f"See it with: cppo report {folder}", highlight=False, soft_wrap=True, markup=False)
        if done.signal is not None:
            raise ending(done.signal)
        if done.failed:
            raise TrainingError(_advice([run for run, _ in done.failed], _total(done)))

    def _print(self, done: Progress, every: bool) -> None:
        where = [(run, "finished") for run in done.finished] + [(run, "to do") for run in done.unfinished]
        counts = Counter((run.env, run.algo, run.variant, word) for run, word in where)
        failed = Counter((run.env, run.algo, run.variant) for run, _ in done.failed)
        table = Table(box=SIMPLE_HEAD, title=f"{len(done.finished)} of {_total(done)} runs finished")
        for heading in ("environment", "algorithm", "variant"):
            table.add_column(heading)
        for heading in ("finished", "to do", "failed"):
            table.add_column(heading, justify="right")
        for key in dict.fromkeys([(run.env, run.algo, run.variant) for run, _ in [*where, *done.failed]]):
            numbers = [counts[(*key, "finished")], counts[(*key, "to do")], failed[key]]
            table.add_row(*map(escape, key), *(str(number) if number else "-" for number in numbers))
        console.print(table)
        for run, problem in done.failed:
            word = "failed" if _can_run(run) else "cannot run"
            console.print(f"[red]{word}:[/] {escape(run.label)}: {escape(problem)}", highlight=False, soft_wrap=True)


def _advice(failed: Sequence[StudyRun], total: int) -> str:
    """What to do about runs without a result."""
    tried = sum(map(_can_run, failed))
    words = []
    if tried:
        words.append(f"{tried} of {total} runs failed; try them again with --retry.")
    if tried < len(failed):
        words.append(f"{len(failed) - tried} of {total} runs cannot run as they are; change them in the study.")
    return " ".join(words)


def _can_run(run: StudyRun) -> bool:
    try:
        return run.plan is not None
    except UsageError:
        return False


def _total(done: Progress) -> int:
    return len(done.finished) + len(done.unfinished) + len(done.failed)
