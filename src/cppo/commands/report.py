"""``cppo report``: a study's page, figures and tables."""

from __future__ import annotations

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
    measure: bool = False
    """First time updates and follow recovery updates by epoch on the saved runs: some minutes, kept for later."""
    steps: int | None = None
    """Report on the first so many environment steps of every run that has made them, finished or not."""
    page: bool = True
    """Write the page (--no-page: figures and tables only)."""

    def __call__(self) -> None:
        from cppo.study import figures, report, results, tables

        if self.measure:
            from cppo.study import measure

            console.print(f"Wrote {measure.write(self.folder)}", highlight=False, soft_wrap=True)
        beside = self.folder if self.folder.is_dir() else self.folder.parent
        out = self.out or beside / ("report" if self.steps is None else f"report-{self.steps}")
        record = results.load(self.folder, self.steps)
        out.mkdir(parents=True, exist_ok=True)
        written = [results.save(record, out), *figures.write(record, out)]
        if self.out is None:
            figures.remove_others(out, written)
        written.append(tables.write(record, out))
        if self.page:
            written.append(report.write(self.folder, out, self.episodes, self.steps))
        for path in written:
            console.print(f"Wrote {path}", highlight=False, soft_wrap=True)
