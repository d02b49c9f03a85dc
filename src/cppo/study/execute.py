"""A study from start to end: which runs are left, in which groups, until when.

A stopped study goes on where it was; a finished run is never repeated; a failing run is recorded and the others go on.
The study's folder holds ``study.json`` (what was asked for) and ``runs/ID`` (ordinary run folders).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from cppo import files
from cppo.errors import Unsaved, UsageError
from cppo.reports.folders import MANIFEST, MANIFEST_FORMAT, read_manifest
from cppo.runs.engine import Stop, train_group
from cppo.runs.folder import ERROR
from cppo.runs.group import section_key, world_key
from cppo.runs.options import Options
from cppo.runs.run import failure, is_finished, is_open, record_failure
from cppo.runs.sealed import write_sealed
from cppo.runs.signals import Heeded
from cppo.runs.start import Planned
from cppo.study.definition import Study, StudyRun

LANES = 4  # on a CPU, where a few small networks stay in its caches (docs/studies.md has the figures)


@dataclass(frozen=True)
class StudyOptions(Options):
    """How to run a study; nothing here changes a result beyond rounding."""

    lockstep: bool | None = None  # all algorithms of one environment in one batch of worlds; None: on a GPU only
    lanes: int = 0  # most runs in a group; 0: ``LANES`` on a CPU, elsewhere no bound
    retry: bool = False  # try failed runs again
    tensorboard: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rules:
            raise UsageError("stop_when is for single runs: a study's runs are compared over the same steps.")


@dataclass(frozen=True)
class Progress:
    """Where a study stands: runs by id."""

    finished: list[StudyRun]
    unfinished: list[StudyRun]
    failed: list[tuple[StudyRun, str]]
    signal: int | None = None  # that stopped it


def execute(
    study: Study,
    folder: Path,
    options: StudyOptions | None = None,
    spread: Callable[..., None] | None = None,
    whole: Study | None = None,
) -> Progress:
    """Run what is left of ``study`` in ``folder``. ``spread`` runs groups elsewhere (``cppo.study.distributed``).

    ``whole`` is the study of which this is a part: earlier runs that it does not ask for (any more) leave the manifest.
    """
    options = options or StudyOptions()
    runs = study.runs()
    refused = _refused(runs)
    if runs and len(refused) == len(runs):
        raise UsageError(f"no run of study {study.name} is possible: {refused[0][1]}")
    refused_runs = [run for run, _ in refused]
    possible = [run for run in runs if run not in refused_runs]
    _refuse_ambiguous(study, possible)
    left = write_manifest(study, folder, possible, refused, whole)
    if left and options.show is not False:
        print(
            f"{left} earlier runs that the study no longer asks for stay in {folder / 'runs'}, but not in its reports."
        )
    if options.retry:
        for run in possible:
            (run_folder(folder, run) / ERROR).unlink(missing_ok=True)  # it goes on from its last checkpoint
    groups = list(pending(possible, folder, options))
    with Heeded(busy=True) as signals:

        def stop() -> bool:
            return signals.asked() or options.late()

        if spread is not None:
            spread(groups, options.deadline, options, stop)
        else:
            for number, members in enumerate(groups):
                if stop():
                    break
                run_members(members, stop, options, f"group {number + 1} of {len(groups)}: ")
    return dataclasses.replace(progress(folder, runs), signal=signals.number)


def run_members(members: Sequence[Planned], stop: Stop, options: Options, prefix: str = "") -> None:
    """Train a group; where it fails as a whole, each of its runs alone, so that only the guilty one is lost."""
    try:
        train_group(members, options, stop, prefix)
    except Unsaved:
        raise  # nor could the next
    except Exception as error:
        if len(members) == 1:
            record_failure(members[0][1], error)
            return
        for member in members:
            if not stop() and is_open(*member):
                run_members([member], stop, options, prefix)


def pending(runs: Sequence[StudyRun], folder: Path, options: StudyOptions) -> Iterator[list[Planned]]:
    """Groups of runs still to be trained, in the study's order.

    Groups follow from the study alone, not from how far it has come, so that a run always has the same company, but for
    runs that failed.
    """
    grouped: dict[Any, dict[str, Planned]] = {}
    for run in runs:
        plan = run.plan
        together = plan.backend == "warp" if options.lockstep is None else options.lockstep
        key = world_key(plan) if together and plan.backend != "jax" else section_key(plan)
        grouped.setdefault((key, plan.iterations), {})[run.id] = (plan, run_folder(folder, run))
    for group in grouped.values():
        members = list(group.values())
        on_cpu = jax.default_backend() == "cpu" and not options.lockstep
        size = options.lanes or (LANES if on_cpu else len(members))
        for first in range(0, len(members), size):
            part = members[first : first + size]
            left = [member for member in part if is_open(*member)]
            if left:
                yield left


def progress(folder: Path, runs: Sequence[StudyRun]) -> Progress:
    refused = _refused(runs)
    finished, unfinished, failed = [], [], list(refused)
    for run in runs:
        if any(run is other for other, _ in refused):
            continue
        place = run_folder(folder, run)
        problem = failure(place)
        if is_finished(run.plan, place):
            finished.append(run)
        elif problem is not None:
            failed.append((run, problem))
        else:
            unfinished.append(run)
    return Progress(finished, unfinished, failed)


def run_folder(folder: Path, run: StudyRun) -> Path:
    return files.unlinked(files.unlinked(folder / "runs") / run.id)


def write_manifest(
    study: Study,
    folder: Path,
    runs: Sequence[StudyRun],
    refused: Sequence[tuple[StudyRun, str]],
    whole: Study | None = None,
) -> int:
    """What was asked for, added to what was asked for before (a study may be run in parts).

    Returns how many earlier runs are no longer asked for.
    """
    had: dict[tuple[Any, ...], dict[str, Any]] = {}
    if (folder / MANIFEST).is_file():
        before = read_manifest(folder)
        if before["name"] != study.name:
            raise UsageError(f"{folder} holds the study {before['name']!r}; choose another --out for {study.name!r}.")
        # What could not be is told anew.
        had = {tuple(entry[name] for name in _WHICH): entry for entry in before["runs"] if entry["id"]}
    now: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in runs:
        key = (run.env, run.algo, run.variant, run.seed)
        now[key] = {**dict(zip(_WHICH, key, strict=True)), "id": run.id, "steps": run.plan.steps}
    for run, problem in refused:
        key = (run.env, run.algo, run.variant, run.seed)
        now[key] = {**dict(zip(_WHICH, key, strict=True)), "id": None, "steps": run.steps, "error": problem}
    kept = {key: entry for key, entry in had.items() if key in now or whole is None or _asks_for(whole, entry)}
    entries = {**kept, **now}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{folder} is a file; choose another --out, a folder.") from None
    content = {"format": MANIFEST_FORMAT, "name": study.name, "title": study.title, "runs": list(entries.values())}
    write_sealed(folder / MANIFEST, content)
    return sum(key not in entries or entries[key]["id"] != entry["id"] for key, entry in had.items())


def _asks_for(study: Study, entry: dict[str, Any]) -> bool:
    """Whether the entry is a run of ``study``, its seed aside: a study may have been run with more seeds."""
    same = [run for run in study.runs() if all(getattr(run, name) == entry[name] for name in _WHICH[:3])]
    try:
        return any(dataclasses.replace(run, seed=entry["seed"]).id == entry["id"] for run in same[:1])
    except UsageError:
        return False


_WHICH = ("env", "algo", "variant", "seed")


def _refuse_ambiguous(study: Study, runs: Sequence[StudyRun]) -> None:
    """Two runs that a report could not tell apart."""
    ids: dict[tuple[Any, ...], str] = {}
    for run in runs:
        if ids.setdefault((run.env, run.algo, run.variant, run.seed), run.id) != run.id:
            raise UsageError(
                f"study {study.name} asks for {run.label} with different settings in two parts; "
                "write them as variants, for example variants = { slow = { kl = 0.005 } }."
            )


def _refused(runs: Sequence[StudyRun]) -> list[tuple[StudyRun, str]]:
    """Runs that cannot be, and why."""
    found = []
    for run in runs:
        try:
            run.id  # noqa: B018 (checks the plan)
        except UsageError as error:
            found.append((run, str(error)))
    return found
