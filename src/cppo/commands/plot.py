"""``cppo plot``: learning curves of runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console

from cppo.commands.stage import tell_stage
from cppo.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from cppo.runs.run import Run

console = Console()
MOST = 2000  # iterations that are drawn: more than a figure has dots, from longer runs one in so many


@dataclass
class Plot:
    """Draw the learning curves of one or several runs, and for a single run the diagnostics of its updates."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs on one environment."""
    checkpoint: str | None = None
    """Draw up to this checkpoint: a name, best or last (default)."""
    out: Path | None = None
    """Where to write the curves (default: curves.png in the first run's folder)."""

    def __call__(self) -> None:
        from cppo.reports.curves import learning_curves
        from cppo.reports.diagnostics import diagnostics
        from cppo.reports.series import thinned
        from cppo.runs.run import Run

        if not self.runs:
            raise UsageError("name at least one run, for example: cppo plot runs/demo")
        runs = [Run(folder, checkpoint=self.checkpoint) for folder in self.runs]
        rows = [thinned(self._rows(run, several=len(runs) > 1), MOST) for run in runs]
        out = self.out or runs[0].folder / "curves.png"
        envs = list(dict.fromkeys(run.plan.env for run in runs))
        where = [f" on {run.plan.env}" if len(envs) > 1 else "" for run in runs]
        ends = [f" ({run.folder.name})" if len(runs) > 1 else "" for run in runs]
        names = [f"{run.plan.algo}{on}{end}" for run, on, end in zip(runs, where, ends, strict=True)]
        named = list(zip(names, rows, strict=True))
        learning_curves(named, runs[0].plan.cost_limits, out, envs[0] if len(envs) == 1 else "")
        console.print(f"Wrote {out}", highlight=False, markup=False)
        if len(runs) == 1:
            second = out.with_name(out.stem + "-diagnostics" + out.suffix)
            diagnostics(named[0][1], runs[0].plan.cost_limits, second, f"{names[0]} on {envs[0]}")
            console.print(f"Wrote {second}", highlight=False, markup=False)

    def _rows(self, run: Run, several: bool) -> pd.DataFrame:
        """What is drawn of a run; curves need no checkpoint, so that a damaged one is only told of."""
        from cppo.runs.checkpoint import CheckpointError

        rows = run.metrics()
        try:
            tell_stage(run, several=several)
            rows = rows if self.checkpoint is None else rows.loc[rows["steps"] <= run.steps]
        except CheckpointError as error:
            console.print(str(error), highlight=False, markup=False, soft_wrap=True)
        if rows.empty:
            raise UsageError(f"{run.folder} has no finished iteration to draw yet; see how it goes with: cppo watch")
        return rows
