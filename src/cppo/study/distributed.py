"""A study's groups spread over the machines of a Ray cluster.

A group is one task. When its worker or node dies, Ray starts the task again elsewhere, and the group goes on from its
runs' checkpoints. That needs the study's folder on a file system that all nodes see under the same path, and the same
version of this package on all of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cppo.study.definition import StudyRun
from cppo.study.execute import Member, Options, run_members
from cppo.types import UsageError

LOCAL = "local"


class Cluster:
    """Runs groups as tasks; ``address`` is ``local`` (start a Ray on this machine), ``auto`` or a cluster's address."""

    def __init__(self, address: str = LOCAL, cpus: float = 1.0, gpus: float | None = None):
        """``cpus`` and ``gpus`` are what each group asks of its node (default: one GPU where the cluster has any)."""
        try:
            import ray
        except ImportError:
            raise UsageError("--ray needs Ray: pip install 'cppo[ray]'") from None
        self.ray, self.cpus = ray, cpus
        if not ray.is_initialized():
            how: dict[str, Any] = {} if address == LOCAL else {"address": address}
            try:
                ray.init(logging_level="warning", log_to_driver=False, **how)
            except ConnectionError as error:
                raise UsageError(f"no Ray cluster at {address!r} ({error}); --ray local starts one here.") from None
        available = ray.cluster_resources().get("GPU", 0.0)
        self.gpus = (1.0 if available else 0.0) if gpus is None else gpus

    def __call__(self, groups: Sequence[Sequence[Member]], deadline: float | None, options: Options) -> None:
        """Run all groups and wait for them; a group whose task cannot be saved leaves its runs unfinished."""
        ray = self.ray
        # Retried without end: nodes may die as often as they like, failures of runs are recorded and never raised.
        task = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=-1)(_run_group)
        waiting = [
            task.remote([(_recipe(plan), str(folder.resolve())) for plan, folder in members], deadline, options)
            for members in groups
        ]
        try:
            while waiting:
                done, waiting = ray.wait(waiting, timeout=1.0)
                for one in done:
                    ray.get(one)
        except KeyboardInterrupt:
            for one in waiting:
                ray.cancel(one, force=True)
            raise


def _recipe(plan: Any) -> dict[str, Any]:
    """What a worker needs to make the plan anew: plain values travel between versions better than objects."""
    from cppo.settings import as_dict

    return {
        "env": plan.env,
        "algo": plan.algo,
        "seed": plan.seeds[0],
        "steps": plan.steps,
        "settings": as_dict(plan.settings),
        "backend": plan.backend,
    }


def _run_group(recipes: list[tuple[dict[str, Any], str]], deadline: float | None, options: Options) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    members = [(StudyRun(variant="", **recipe).plan, Path(folder)) for recipe, folder in recipes]

    def stop() -> bool:
        return deadline is not None and time.time() >= deadline

    run_members(members, stop, options)
