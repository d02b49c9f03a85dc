"""``cppo check``: whether a run, or every run of a study, is as it was written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from cppo.errors import TrainingError, UsageError, shown

console = Console()


@dataclass
class Check:
    """Say whether a run or a study is whole: what is damaged, and up to where it is good. Starts and trains nothing.

    Example: cppo check runs/first --repair
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a run, of a study, or of several runs."""
    repair: bool = False
    """Go back to the last consistent state; what is taken away is kept in the folder damaged-N."""

    def __call__(self) -> None:
        from cppo.reports.folders import MANIFEST, read_manifest, run_folders
        from cppo.runs import check

        runs, problems = run_folders(self.folder), []
        if (self.folder / MANIFEST).is_file():
            try:
                read_manifest(self.folder)
            except UsageError as error:
                problems.append(str(error))
        if not runs and not problems:
            raise UsageError(f"{self.folder} holds no run; name the folder of a run or a study, such as runs/first.")
        damaged = 0
        for run in runs:
            found = check.check(run)
            damaged += bool(found.problems)
            self._say(found.told, *found.problems)
            if found.problems and self.repair:
                self._say(*(f"{run}: {line}" for line in check.repair(run)))
        self._say(*problems)
        if problems or (damaged and not self.repair):
            what = f"{damaged} of {len(runs)} runs damaged" if damaged else "the study's list of runs is damaged"
            more = "" if self.repair or not damaged else f" Go back to what is good: cppo check {self.folder} --repair"
            raise TrainingError(f"{what}.{more}")

    def _say(self, *lines: str) -> None:
        for line in lines:
            console.print(shown(line), highlight=False, markup=False, soft_wrap=True)
