"""``cppo export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from cppo.commands.stage import tell_stage
from cppo.errors import UsageError


@dataclass
class Export:
    """Write a trained policy for use elsewhere (docs/take-it-along.md).

    Example: cppo export runs/first --format onnx
    """

    run: tyro.conf.Positional[Path]
    """Folder of the run, or a policy that comes with cppo: pretrained:PointGoal1."""
    format: str = "onnx"
    """onnx, stablehlo (for JAX and other XLA runtimes) or hub (a Hugging Face folder with a model card)."""
    out: Path | None = None
    """Where to write (default: in the run's folder)."""
    seed_index: int | None = None
    """Which of the run's policies, counted from 0 (default: the feasible one with the highest return)."""
    checkpoint: str | None = None
    """Whose policy: the name of a checkpoint, best (feasible, from evaluations while training) or last (default)."""
    cost_critic: bool = False
    """onnx: also give the expected future cost of each constraint."""
    push: str | None = None
    """hub: upload to this repository, user/name."""
    trust: bool = False
    """Run code that only the run's files name: environment, encoder, algorithm, interpreter (SECURITY.md)."""

    def __call__(self) -> None:
        from cppo.policies.export import export
        from cppo.runs.run import Run

        console = Console()
        run, seed = Run(self.run, checkpoint=self.checkpoint, trust=self.trust), None
        tell_stage(run)
        if self.seed_index is not None:
            if not 0 <= self.seed_index < len(run.plan.seeds):
                raise UsageError(f"seed_index is {self.seed_index}; this run has 0 to {len(run.plan.seeds) - 1}.")
            seed = run.plan.seeds[self.seed_index]
        if self.push is not None and self.format != "hub":
            raise UsageError("--push needs --format hub.")
        written = export(run, self.format, self.out, seed=seed, cost_critic=self.cost_critic)
        console.print(f"Wrote {written}", highlight=False, soft_wrap=True, markup=False)
        if run.plan.settings.hold > 1:
            console.print(f"Each action is to be held for {run.plan.settings.hold} steps of the environment.")
        if self.push is not None:
            from cppo.policies.export import hub

            console.print(f"Pushed to {hub.push(written, self.push)}", highlight=False, soft_wrap=True)
