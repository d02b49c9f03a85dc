"""``cppo certify``: what can be promised of a saved policy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

console = Console()


@dataclass
class CertifyCommand:
    """Bound, with confidence, a policy's expected cost and its chance of exceeding the limit, from fresh episodes.

    Example: cppo certify runs/demo --episodes 1000
    """

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    episodes: int = 1000
    """Fresh episodes."""
    confidence: float = 0.95
    """Probability with which each bound holds."""
    trained_seed: int | None = None
    """Whose policy (default: the run's best seed)."""
    deterministic: bool = False
    """Take the most likely actions instead of sampling as in training."""
    seed: int = 2_000_000
    """Seed of the episodes."""
    largest_step_cost: float = 1.0
    """Upper end of the cost of one step, which bounds an episode's cost."""
    json: bool = False
    """Print JSON in place of a table."""

    def __call__(self) -> None:
        from cppo.certify import certify

        found = certify(
            self.run,
            self.episodes,
            self.confidence,
            self.trained_seed,
            self.deterministic,
            self.seed,
            self.largest_step_cost,
        )
        if self.json:
            print(json.dumps(found, indent=2))
            return
        words = f"{found['algo']} on {found['env']}, seed {found['seed']}, {found['actions']} actions"
        words += f": {found['episodes']} episodes, mean return {found['return']:.2f}"
        console.print(words, highlight=False, markup=False)
        for name, row in found["constraints"].items():
            title = f"{name}: mean {row['mean']:.3g}, limit {row['limit']:g}, worst episode {row['worst']:g}"
            table = Table(title=escape(title), box=SIMPLE_HEAD, title_justify="left")
            table.add_column(f"with confidence {found['confidence']:.4g}")
            table.add_column("at most", justify="right")
            table.add_column("bound")
            for bound, value in row["expected_cost_at_most"].items():
                table.add_row("expected cost of an episode", f"{value:.3f}", bound)
            for bound, value in row["exceedance_at_most"].items():
                text = f"P(cost > limit), {row['episodes_over']} of {found['episodes']} seen"
                table.add_row(text, f"{value:.2%}", bound)
            console.print(table)
            verdict = "[green]is certified[/]" if row["certified"] else "[red]is not certified[/]"
            console.print(f"Expected cost within the limit {verdict} (by the betting bound).", highlight=False)
        for assumption in found["assumptions"]:
            console.print(f"Assumption: {assumption}.", style="dim", highlight=False, markup=False)
