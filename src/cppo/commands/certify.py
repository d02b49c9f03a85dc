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

from cppo.commands.stage import tell_stage

console = Console()


@dataclass
class CertifyCommand:
    """Bound, with confidence, a policy's expected cost and its chance of exceeding the limit, from fresh episodes.

    Example: cppo certify runs/demo --episodes 1000
    """

    run: tyro.conf.Positional[Path]
    """Folder of the run, or a policy that comes with cppo: pretrained:PointGoal1."""
    episodes: int = 1000
    """Fresh episodes."""
    confidence: float = 0.95
    """Probability with which the certificate holds."""
    trained_seed: int | None = None
    """Whose policy (default: the run's best seed)."""
    deterministic: bool = False
    """Take the most likely actions instead of sampling as in training."""
    among: int = 1
    """Policies that are certified to keep the best of them, this one included: the confidence is shared among them."""
    seed: int | None = None
    """Seed of the episodes (default: a stream of the policy's own, at which nothing else looks)."""
    largest_step_cost: float = 1.0
    """Upper end of the cost of one step, which bounds an episode's cost."""
    checkpoint: str | None = None
    """Whose policy: the name of a checkpoint, best (feasible, from evaluations while training) or last (default)."""
    json: bool = False
    """Print JSON in place of a table."""
    trust: bool = False
    """Run code that only the run's files name: environment, encoder, algorithm, interpreter (SECURITY.md)."""

    def __call__(self) -> None:
        from cppo.policies.certify import certify
        from cppo.runs.run import Run

        run = Run(self.run, checkpoint=self.checkpoint, trust=self.trust)
        tell_stage(run, self.json)
        found = certify(
            run,
            self.episodes,
            self.confidence,
            trained_seed=self.trained_seed,
            deterministic=self.deterministic,
            among=self.among,
            seed=self.seed,
            largest_step_cost=self.largest_step_cost,
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
        verdict = "[green]is certified[/]" if found["certified"] else "[red]is not certified[/]"
        words = f"Expected cost within the limit {verdict} with confidence {found['confidence']:.4g} (betting bound"
        words += f", the best of {found['among']} policies)" if found["among"] > 1 else ")"
        console.print(f"{words}. Stream of episodes: {found['stream']}.", highlight=False)
        for assumption in found["assumptions"]:
            console.print(f"Assumption: {assumption}.", style="dim", highlight=False, markup=False)
