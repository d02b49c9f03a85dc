"""``cppo compare``: several algorithms on one environment, one table, one figure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from cppo.commands.shared_options import Backend, CheckpointSeconds, CostLimit, Seed, Several, Steps
from cppo.commands.words import names


@dataclass
class Compare:
    """Train several algorithms on an environment and rank them in one table and one figure.

    Each is an ordinary run in OUT/ALGORITHM. The same command again goes on where it was stopped.

    Example: cppo compare --env PointCircle --algos cppo,cpo,ppo_lag,trpo_lag --seeds 4
    """

    env: str = "PointCircle"
    """Name of the environment (see: cppo envs)."""
    algos: str = "cppo,cpo,ppo_lag,trpo_lag"
    """Names of the algorithms, separated by commas (see: cppo algos)."""
    set: Several = field(default_factory=list)
    """Settings of an algorithm, ALGORITHM.name=value."""
    steps: Steps = None
    seeds: int = 4
    """How many seeds of each algorithm."""
    seed: Seed = 0
    cost_limit: CostLimit = None
    backend: Backend = "auto"
    out: Path | None = None
    """Folder of the comparison (default: runs/compare-ENV)."""
    checkpoint_seconds: CheckpointSeconds = 30.0
    tensorboard: bool = True
    """Write TensorBoard files."""

    def __call__(self) -> None:
        from cppo.study.compare import compare, read_settings

        console = Console()
        tell = lambda words: console.print(words, highlight=False)  # noqa: E731
        try:
            result = compare(
                self.env,
                names(self.algos),
                settings=read_settings(self.set),
                steps=self.steps,
                seeds=self.seeds,
                seed=self.seed,
                cost_limit=self.cost_limit,
                backend=self.backend,
                out=self.out,
                tell=tell,
                checkpoint_seconds=self.checkpoint_seconds,
                tensorboard=self.tensorboard,
            )
        except KeyboardInterrupt:
            tell("The comparison goes on where it was when you give the same command again.")
            raise
        figure = result.save()
        console.print(result.table())
        tell(f"Wrote {figure}; the runs are in {result.folder}.")
