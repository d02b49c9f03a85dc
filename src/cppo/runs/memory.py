"""Whether what is asked for fits into memory: better refused at once, with numbers, than killed by the system later."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import jax

from cppo.errors import UsageError
from cppo.runs.plan import Plan

NUMBER = 4  # bytes
BESIDE = 6  # numbers of a step beside observations, action and costs: reward, ends, log-probability, values, advantages


def needed(plans: Sequence[Plan]) -> int:
    """Bytes that batches and replays alone take. Training needs some times as much, so this is the least."""
    total = 0
    for plan in plans:
        spec, values = plan.spec_seen, plan.settings
        step = 2 * math.prod(spec.obs_shape) + math.prod(spec.action.shape) + spec.num_costs + BESIDE
        steps = values.batch_size // values.hold + getattr(values, "replay_size", 0)
        total += NUMBER * step * steps * len(plan.seeds)
    return total


def available() -> int | None:
    """Bytes that this process may have: the GPU's where one is, else the machine's, or less where a limit is set."""
    device = jax.local_devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return of_machine()


def of_machine() -> int | None:
    found = []
    with suppress(ValueError, OSError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(ValueError, OSError):  # of a container
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(found, default=None)


def refuse(plans: Sequence[Plan]) -> None:
    """Refuse plans whose batches do not fit."""
    need, have = needed(plans), available()
    if have is None or need <= have:
        return
    seeds, values = sum(len(plan.seeds) for plan in plans), plans[0].settings
    raise UsageError(
        f"{seeds} seeds with batches of {values.batch_size:,} steps in {values.num_envs:,} worlds need at least "
        f"{need / 1e9:.3g} GB of memory; there are {have / 1e9:.3g} GB. Train fewer seeds at a time, or smaller "
        "batches: --seeds … --set batch_size=… num_envs=…"
    )
