"""``cppo train``: train an algorithm, or go on with a stopped run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape

from cppo.commands import words
from cppo.commands.gymnasium_options import GymnasiumOptions
from cppo.commands.shared_options import Backend, CheckpointSeconds, CostLimit, Seed, Several, Steps
from cppo.errors import UsageError

if TYPE_CHECKING:
    from cppo.runs.run import Run

console = Console()
# Options that describe a new run, and say nothing to one that goes on.
NEW_RUN = {"algo", "env", "seeds", "seed", "out", "cost_limit", "backend", "set", "init_from", "overwrite", "config"}
NEW_RUN |= {"eval_every", "eval_episodes"}
NEW_RUN |= {field.name for field in fields(GymnasiumOptions)}


@dataclass
class Train:
    """Train an algorithm on an environment, or go on with a stopped run.

    Example: cppo train --env PointCircle --seeds 4 --out runs/first --set switch=0.9
    """

    algo: str = "cppo"
    """Name of the algorithm (see: cppo algos), or the import path of a row of your own: module:ROW."""
    env: str = "PointCircle"
    """Name of the environment (see: cppo envs), or a Gymnasium one: Name-v0, module:Name-v0, module:Class."""
    steps: Steps = None
    seeds: int = 4
    """How many seeds to train at once."""
    seed: Seed = 0
    out: Path | None = None
    """Folder of the new run (default: runs/ENV-ALGO-N)."""
    cost_limit: CostLimit = None
    backend: Backend = "auto"
    gymnasium: Annotated[GymnasiumOptions, tyro.conf.arg(name="")] = field(default_factory=GymnasiumOptions)
    """For Gymnasium environments:"""
    set: Several = field(default_factory=list)
    """Settings of the algorithm, name=value (see: cppo algos NAME)."""
    resume: Path | None = None
    """Go on with the run in this folder; everything else is taken from it."""
    checkpoint: str | None = None
    """With --resume: the name of the checkpoint to start from (default: the newest)."""
    init_from: Path | None = None
    """Start from the trained policy of this run, or from one that comes with cppo: pretrained:PointGoal1."""
    config: Path | None = None
    """Take options from this file: TOML, or the config.json of a run. What is typed beside it wins."""
    trust: bool = False
    """Run code that only a file names, that of --config or of the run to --resume (SECURITY.md)."""
    overwrite: bool = False
    """Replace a run that stands at --out."""
    checkpoint_seconds: CheckpointSeconds = 30.0
    tensorboard: bool = True
    """Write TensorBoard files."""
    logger: str = ""
    """Log elsewhere, too: csv, wandb or csv,wandb."""
    eval_every: int = 0
    """Evaluate after so many steps of each seed, and keep the best feasible policy (0: never)."""
    eval_episodes: int = 20
    """Episodes of each policy and kind of action in such an evaluation."""
    stop_after: str | None = None
    """Save and stop after this time, for example 3h55m; --resume goes on."""
    stop_when: Several = field(default_factory=list)
    """Stop when all of this holds for every seed: feasible, return=20, stalled=200000 (steps without progress)."""
    typed: list[str] = field(default_factory=list, init=False, repr=False)  # the words of the command line

    def __call__(self) -> None:
        from cppo.runs.options import seconds_of
        from cppo.runs.outcome import summary_table
        from cppo.runs.timing import sentence
        from cppo.runs.training import resume, train
        from cppo.settings import parse_assignments

        options: dict[str, Any] = dict(
            checkpoint_seconds=self.checkpoint_seconds,
            tensorboard=self.tensorboard,
            loggers=words.names(self.logger),
            stop_after=None if self.stop_after is None else seconds_of(self.stop_after),
            stop_when=self.stop_when,
        )
        if self.resume is not None:
            self._refuse_ignored(self.resume)
            run = resume(self.resume, steps=self.steps, name=self.checkpoint, trust=self.trust, **options)
        else:
            if self.checkpoint is not None:
                raise UsageError("--checkpoint goes with --resume RUN: it names the checkpoint to go on from.")
            run = train(
                self.algo,
                self.gymnasium.environment(self.env),
                steps=self.steps,
                seeds=self.seeds,
                seed=self.seed,
                out=self.out,
                cost_limit=self.cost_limit,
                backend=self.backend,
                settings=parse_assignments(self.set),
                init_from=self.init_from,
                overwrite=self.overwrite,
                eval_every=self.eval_every,
                eval_episodes=self.eval_episodes,
                **options,
            )
        if not run.is_summed_up:  # its time was over
            return
        console.print(summary_table(run.summary, escape(f"{run.plan.algo} on {run.plan.env}")))
        for seed, problem in run.failed_seeds.items():
            console.print(f"Seed {seed} failed: {problem}", style="red", highlight=False, markup=False)
        console.print(sentence(run.summary["time"]), highlight=False)
        _tell_goal(run)
        again = f"cppo train --config {run.folder}/config.json"
        console.print(f"Saved in {run.folder}. See it with: cppo plot {run.folder}", highlight=False, markup=False)
        console.print(f"Repeat it with: {again}", highlight=False, markup=False, soft_wrap=True)

    def _refuse_ignored(self, run: Path) -> None:
        """A run goes on as it was begun: what describes a new one would do nothing."""
        given = words.given(self.typed)
        ignored = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(given & NEW_RUN))
        if ignored:
            base = [] if "config" in given else ["--config", f"{run}/config.json"]
            rest = words.without("--checkpoint", words.without("--resume", self.typed))
            variation = shlex.join(["cppo", "train", *base, "--init-from", str(run), *rest])
            raise UsageError(
                f"--resume goes on with {run} as it is and would ignore {ignored}. Leave that out, or start a "
                f"variation from its policy: {variation}"
            )


def _tell_goal(run: Run) -> None:
    """Why it stopped before its end, and which policy was the best."""
    if "stopped" in run.summary:
        steps = f"{run.summary['steps']:,} of {run.plan.steps:,} steps"
        console.print(f"Stopped after {steps}: {run.summary['stopped']}.", highlight=False, markup=False)
    found = [record for record in run.summary.get("best", []) if record["feasible"]]
    if found:
        best = max(found, key=lambda record: record["return"])
        costs = ", ".join(f"{name} at most {bound:.4g}" for name, bound in best["cost_at_most"].items())
        console.print(
            f"Best feasible policy: seed {best['seed']} after {best['steps']:,} steps, return {best['return']:.4g}, "
            f"{costs} (95%). See it with: cppo eval {run.folder} --checkpoint best",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    elif run.plan.eval_every:
        console.print("No policy was within its limit by the upper bound when evaluated.", highlight=False)
