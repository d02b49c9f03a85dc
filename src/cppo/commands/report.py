"""``cppo report``: a study's page, figures and tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

console = Console()


@dataclass
class ReportCommand:
    """Write the report of a study: one HTML page that needs no network, figures as PNG and SVG, tables.

    Example: cppo report runs/study-paper
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a study, of a run, of several runs, or of a saved results.json."""
    out: Path | None = None
    """Where to write (default: report in that folder, with --steps report-STEPS)."""
    episodes: int = 2
    """Episodes to record of each algorithm for the replay (0: none)."""
    checkpoint: str | None = None
    """Whose episodes: the name of a checkpoint, best or last (default)."""
    measure: bool = False
    """First time updates and follow recovery updates by epoch on the saved runs: some minutes, kept for later."""
    score: int = 0
    """First play so many fresh episodes of every final policy: their worst tenth, the share over the limit."""
    steps: int | None = None
    """Report on the first so many environment steps of every run that has made them, finished or not."""
    page: bool = True
    """Write the page (--no-page: figures and tables only)."""
    draft: bool = False
    """Write into a repository, marked, what no one commit would give again."""

    def __call__(self) -> None:
        from cppo import files
        from cppo.reports import figures, report, tables
        from cppo.reports import records as results

        if self.measure:
            from cppo.reports import measure
            from cppo.runs.engine import use_compilation_cache

            use_compilation_cache()
            console.print(f"Wrote {measure.write(self.folder)}", highlight=False, soft_wrap=True, markup=False)
        if self.score:
            from cppo.reports import scores

            console.print(
                f"Wrote {scores.write(self.folder, self.score)}", highlight=False, soft_wrap=True, markup=False
            )
        beside = self.folder if self.folder.is_dir() else self.folder.parent
        record = results.load(self.folder, self.steps)
        if self.out is not None and not self.draft:
            results.refuse_draft(record, self.folder, self.out)
        self._tell_stages()
        out = self.out or files.subfolder(beside, "report" if self.steps is None else f"report-{self.steps}")
        out.mkdir(parents=True, exist_ok=True)
        with results.believed(self.folder):
            written = [*figures.write(record, out), tables.write(record, out)]
            written.append(results.save(record, out))
        if self.out is None:
            figures.remove_others(out, written)
        if self.page:
            written.append(report.write(self.folder, out, self.episodes, self.steps, self.checkpoint))
        for path in written:
            console.print(f"Wrote {path}", highlight=False, soft_wrap=True, markup=False)

    def _tell_stages(self) -> None:
        """How far the policies are: runs that stand at the same stage in one line."""
        from cppo.reports.folders import finished_runs
        from cppo.runs.run import Run

        folders = {place for group in finished_runs(self.folder).values() for _, place in group}
        stages = Counter(Run(place, checkpoint=self.checkpoint).stage for place in sorted(folders))
        for stage, number in stages.items():
            several = f"{number} run{'s' * (number > 1)}: " if len(folders) > 1 else ""
            console.print(f"{several}{stage}", highlight=False, soft_wrap=True)
