"""Options that several commands have, with what each says of itself."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import UseAppendAction, arg

_LIMIT = "Limit on the mean undiscounted cost of an episode, one for each constraint (default: the environment's)."

Several = Annotated[list[str], UseAppendAction]
Steps = Annotated[int | None, arg(help="Environment steps of each seed (default: the environment's own number).")]
Seed = Annotated[int, arg(help="The first seed.")]
CostLimit = Annotated[tuple[float, ...] | None, arg(help=_LIMIT)]
Backend = Annotated[str, arg(help="Where the environment runs: auto, jax, threads or warp.")]
CheckpointSeconds = Annotated[float, arg(help="Seconds between two checkpoints (0: after every iteration).")]
