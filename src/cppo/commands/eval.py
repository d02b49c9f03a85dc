"""``cppo eval``: saved policies on fresh episodes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cppo.commands.gymnasium_options import GymnasiumOptions
from cppo.commands.stage import tell_stage
from cppo.errors import UsageError

console = Console()


@dataclass
class Eval:
    """Evaluate the saved policies of a run on fresh episodes, with deterministic and with sampled actions."""

    run: tyro.conf.Positional[Path]
    """Folder of the run, or a policy that comes with cppo: pretrained:PointGoal1."""
    episodes: int = 100
    """Episodes for each policy and kind of action."""
    seed: int = 1_000_000
    """Seed of the episodes."""
    checkpoint: str | None = None
    """Whose policy: the name of a checkpoint, best (feasible, from evaluations while training) or last (default)."""
    json: bool = False
    """Print JSON in place of a table."""
    env: str | None = None
    """Evaluate in this environment instead of the one trained on; observations and actions must agree."""
    num_envs: int = 50
    """Worlds that run side by side."""
    trust: bool = False
    """Run code that only the run's files name: environment, encoder, algorithm, interpreter (SECURITY.md)."""
    gymnasium: Annotated[GymnasiumOptions, tyro.conf.arg(name="")] = field(default_factory=GymnasiumOptions)
    """For Gymnasium environments:"""

    def __call__(self) -> None:
        from cppo.policies.evaluate import evaluate
        from cppo.runs.run import Run

        if self.env is None and self.gymnasium != GymnasiumOptions():
            raise UsageError("options such as --cost go with --env NAME; a run knows its own environment.")
        run = Run(self.run, checkpoint=self.checkpoint, trust=self.trust)
        tell_stage(run, self.json)
        env = None if self.env is None else self.gymnasium.environment(self.env)
        result = evaluate(run, self.episodes, self.seed, self.num_envs, env=env)
        if self.json:
            print(json.dumps(result, indent=2))
            return
        title = f"{result['algo']} on {result['env']}: {self.episodes} episodes each, mean ± 95% interval"
        table = Table(title=escape(title))
        for name in ("seed", "actions", "return", *(f"{c} (limit {d:g})" for c, d in result["cost_limits"].items())):
            table.add_column(escape(name), justify="right")
        measures = list(dict.fromkeys(name for row in result["policies"] for name in row.get("task", {})))
        for name in ("within limit", "worst tenth", "episodes over", *measures):
            table.add_column(escape(name))
        for row in result["policies"]:
            costs = [_interval(row["cost"][name]) for name in result["cost_limits"]]
            mark = "[green]yes[/]" if row["feasible"] else "[red]no[/]"
            said = [_interval(row["task"][name]) if name in row["task"] else "-" for name in measures]
            worst = ", ".join(f"{row['cost'][name]['worst_tenth']:.2f}" for name in result["cost_limits"])
            over = ", ".join(f"{row['cost'][name]['over']:.0%}" for name in result["cost_limits"])
            table.add_row(str(row["seed"]), row["actions"], _interval(row["return"]), *costs, mark, worst, over, *said)
        console.print(table)


def _interval(value: dict[str, float]) -> str:
    return f"{value['mean']:.2f} ± {value['half_width']:.2f}"
