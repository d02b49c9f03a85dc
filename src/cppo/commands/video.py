"""``cppo video``: a film of a trained policy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from cppo.commands.stage import tell_stage
from cppo.errors import UsageError


@dataclass
class Video:
    """Film a trained policy: the world, the lidar, and return and cost so far.

    Example: cppo video runs/first --seed-index 2 --out push.mp4
    """

    run: tyro.conf.Positional[Path]
    """Folder of the run, or a policy that comes with cppo: pretrained:PointGoal1."""
    seed_index: int | None = None
    """Which seed's policy, counted from 0 (default: the feasible one with the highest return)."""
    checkpoint: str | None = None
    """Whose policy: the name of a checkpoint, best (feasible, from evaluations while training) or last (default)."""
    episodes: int = 1
    """Episodes to film."""
    out: Path | None = None
    """The file, .mp4 or .gif (default: video.mp4 in the run's folder; of a pretrained one, in this)."""
    deterministic: bool = True
    """Take the most likely actions (--no-deterministic: sample them, as in training)."""
    renderer: str = "auto"
    """mujoco, top (drawn from above, works everywhere) or auto (mujoco where it works)."""
    episode_seed: int = 0
    """Seed of the episodes."""
    trust: bool = False
    """Run code that only the run's files name: environment, encoder, algorithm, interpreter (SECURITY.md)."""

    def __call__(self) -> None:
        from cppo.policies.video import film
        from cppo.runs.run import Run

        run = Run(self.run, checkpoint=self.checkpoint, trust=self.trust)
        tell_stage(run)
        seeds = run.plan.seeds
        if self.seed_index is not None and not 0 <= self.seed_index < len(seeds):
            raise UsageError(f"--seed-index {self.seed_index}: this run has {len(seeds)} seeds, 0 to {len(seeds) - 1}.")
        out = film(
            run,
            self.out or run.output("video.mp4"),
            seed=None if self.seed_index is None else seeds[self.seed_index],
            episodes=self.episodes,
            deterministic=self.deterministic,
            renderer=self.renderer,
            episode_seed=self.episode_seed,
        )
        print(f"Wrote {out}")
