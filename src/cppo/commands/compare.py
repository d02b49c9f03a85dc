"""``cppo compare``: several algorithms on one environment, one table, one figure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console


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
    steps: int | None = None
    """Environment steps of each seed (default: the paper's number for the environment)."""
    seeds: int = 4
    """How many seeds of each algorithm."""
    seed: int = 0
    """The first seed."""
    out: Path | None = None
    """Folder of the comparison (default: runs/compare-ENV)."""
    cost_limit: tuple[float, ...] | None = None
    """Limit on the mean undiscounted cost of an episode, one for each constraint (default: the environment's)."""
    backend: str = "auto"
    """Where the environment runs: auto, jax, threads or warp."""
    set: Annotated[list[str], tyro.conf.UseAppendAction] = field(default_factory=list)
    """Settings of an algorithm, ALGORITHM.name=value."""
    checkpoint_seconds: float = 30.0
    """Seconds between two checkpoints (0: after every iteration)."""
    tensorboard: bool = True
    """Write TensorBoard files."""

    def __call__(self) -> None:
        from cppo.study.compare import compare, read_settings

        console = Console()
        tell = lambda words: console.print(words, highlight=False)  # noqa: E731
        try:
            result = compare(
                self.env,
                [name.strip() for name in self.algos.split(",") if name.strip()],
                steps=self.steps,
                seeds=self.seeds,
                seed=self.seed,
                out=self.out,
                cost_limit=self.cost_limit,
                backend=self.backend,
                settings=read_settings(self.set),
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
