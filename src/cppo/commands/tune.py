"""``cppo tune``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from cppo.commands.gymnasium_options import GymnasiumOptions
from cppo.commands.shared_options import CostLimit, Seed, Several, Steps


@dataclass
class Tune:
    """Search for settings that keep the limit and earn most; the same command goes on with a stopped search.

    Example: cppo tune --env PointCircle --trials 30 --set-space kl=0.005:0.05:log policy_rate=1e-4:3e-3:log
    """

    algo: str = "cppo"
    """Name of the algorithm."""
    env: str = "PointCircle"
    """Name of the environment."""
    trials: int = 20
    """Trials in all, those of earlier calls included."""
    set_space: Several = field(default_factory=list)
    """What to search: name=low:high, name=low:high:log or name=a|b|c."""
    set: Several = field(default_factory=list)
    """Settings that stay fixed, name=value."""
    steps: Steps = None
    seeds: int = 2
    """Seeds of a trial; all must keep the limits."""
    seed: Seed = 0
    cost_limit: CostLimit = None
    out: Path = Path("runs/tune")
    """Folder of the search."""
    gymnasium: Annotated[GymnasiumOptions, tyro.conf.arg(name="")] = field(default_factory=GymnasiumOptions)
    """For Gymnasium environments:"""

    def __call__(self) -> None:
        from cppo.settings import parse_assignments
        from cppo.study.tune import parse_space, set_line, tune

        space = parse_space(self.set_space, self.algo)
        ranked = tune(
            self.algo,
            self.gymnasium.environment(self.env),
            space,
            trials=self.trials,
            steps=self.steps,
            seeds=self.seeds,
            seed=self.seed,
            cost_limit=self.cost_limit,
            settings=parse_assignments(self.set),
            out=self.out,
        )
        console = Console()
        table = Table(title=f"{self.algo} on {self.env}: best trials", box=SIMPLE_HEAD)
        for name in ("trial", "return", "worst cost", *space):
            table.add_column(name, justify="right")
        for trial in ranked[:10]:
            earned = "given up" if trial.earned is None else f"{trial.earned:.2f}"
            over = trial.violation or 0.0
            cost = f"[{'green' if over <= 0 else 'red'}]{over:+.0%}[/] of limit"
            values = (f"{x:.4g}" if isinstance(x, float) else str(x) for x in trial.settings.values())
            table.add_row(str(trial.number), earned, cost, *values)
        console.print(table)
        if not ranked:
            console.print("No trial came to an end.")
        elif ranked[0].earned is None or (ranked[0].violation or 0.0) > 0:
            console.print("No trial kept its limits: widen the space, or train longer.")
        else:
            console.print(f"Best settings: {set_line(ranked[0])}", highlight=False, soft_wrap=True)
