"""A study's groups spread over the machines of a Ray cluster.

A group is one task. When its worker or node dies, the task starts again elsewhere and the group goes on from its runs'
checkpoints, as often as it takes while it makes headway. Without headway its runs are tried one by one, and a run that
always kills its process is recorded as failed. All that needs the study's folder on a file system that all nodes see
under the same path, and the same version of this package on all of them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cppo.errors import Unsaved, UsageError
from cppo.runs.checkpoint import by_iteration, checkpoints_of
from cppo.runs.options import Options
from cppo.runs.run import is_open, record_failure
from cppo.runs.start import Planned
from cppo.study.definition import StudyRun
from cppo.study.execute import run_members

LOCAL = "local"
FAILURES = 5  # of a task without a new checkpoint in between, after which it is given up


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
                ray.init(logging_level=logging.WARNING, log_to_driver=False, **how)
            except ConnectionError as error:
                raise UsageError(f"no Ray cluster at {address!r} ({error}); --ray local starts one here.") from None
        available = ray.cluster_resources().get("GPU", 0.0)
        self.gpus = (1.0 if available else 0.0) if gpus is None else gpus

    def __call__(
        self,
        groups: Sequence[Sequence[Planned]],
        deadline: float | None,
        options: Options,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        """Run all groups until they end, or until ``stop`` says so; then they go on from their checkpoints later."""
        # Ray itself retries nothing: it would do so for ever where a task runs out of memory.
        task = self.ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=0)(_run_group)

        def start(attempt: _Attempt) -> Any:
            recipes = [(_recipe(plan), str(folder.resolve())) for plan, folder in attempt.members]
            return task.remote(recipes, deadline, options)

        waiting: dict[Any, _Attempt] = {}
        todo = [_Attempt(members, _newest(members)) for members in groups]
        try:
            while (todo or waiting) and not _interrupted(stop, deadline):
                waiting |= {start(attempt): attempt for attempt in todo}
                done, _ = self.ray.wait(list(waiting), timeout=1.0)
                todo = [again for one in done for again in self._after(one, waiting.pop(one))]
        finally:
            for one in waiting:
                self.ray.cancel(one, force=True)

    def _after(self, task: Any, attempt: _Attempt) -> list[_Attempt]:
        """What is to be tried next, now that ``task`` has ended."""
        try:
            self.ray.get(task)
        except self.ray.exceptions.RayTaskError as error:  # it would be raised again
            if isinstance(error.cause, Unsaved):
                raise error.cause from None
            return _apart(attempt.members, error.cause)
        except self.ray.exceptions.RayError as error:  # its process or its node is gone
            failures = 1 if _newest(attempt.members) > attempt.began else attempt.failures + 1
            if failures == FAILURES:
                return _apart(attempt.members, error)
            left = _left(attempt.members)
            return [_Attempt(left, _newest(left), failures)] if left else []
        return []


class _Attempt(NamedTuple):
    members: Sequence[Planned]
    began: list[str]  # newest checkpoints at its start
    failures: int = 0  # since the last checkpoint


def _apart(members: Sequence[Planned], error: BaseException) -> list[_Attempt]:
    """Each run of a lost group by itself, so that only the guilty one is recorded as failed."""
    if len(members) > 1:
        return [_Attempt([member], _newest([member])) for member in _left(members)]
    for _, folder in _left(members):
        record_failure(folder, error)
    return []


def _left(members: Sequence[Planned]) -> list[Planned]:
    return [member for member in members if is_open(*member)]


def _newest(members: Sequence[Planned]) -> list[str]:
    """Names of the newest checkpoints, which grow as the runs come further."""
    files = [by_iteration(checkpoints_of(folder)) for _, folder in members]
    return [found[-1].name if found else "" for found in files]


def _interrupted(stop: Callable[[], bool] | None, deadline: float | None) -> bool:
    """Whether to stop at once: at the deadline the tasks save and end by themselves."""
    return stop is not None and stop() and (deadline is None or time.time() < deadline)


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
