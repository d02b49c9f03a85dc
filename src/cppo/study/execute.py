"""A study from start to end: which runs are left, in which groups, until when.

A stopped study goes on where it was; a finished run is never repeated; a failing run is recorded and the others go on.
The study's folder holds ``study.json`` (what was asked for) and ``runs/ID`` (ordinary run folders).
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from cppo import log
from cppo.plan import Plan
from cppo.study.definition import Study, StudyRun
from cppo.study.groups import ERROR, Stop, failure, is_finished, record_failure, train_group
from cppo.study.lockstep import section_key, world_key
from cppo.train import stop_on_interrupt
from cppo.types import UsageError

MANIFEST = "study.json"
FORMAT = 1
Member = tuple[Plan, Path]
LANES = 4  # on a CPU, where a few small networks stay in its caches (docs/studies.md has the figures)


@dataclass(frozen=True)
class Options:
    """How to run a study; nothing here changes a result beyond rounding."""

    budget: float | None = None  # seconds; then stop at a checkpoint
    lockstep: bool | None = None  # all algorithms of one environment in one batch of worlds; None: on a GPU only
    lanes: int = 0  # most runs in a group; 0: ``LANES`` on a CPU, elsewhere no bound
    retry: bool = False  # try failed runs again
    checkpoint_seconds: float = 30.0
    tensorboard: bool = False
    show: bool | None = None


@dataclass(frozen=True)
class Outcome:
    """Where a study stands: runs by id."""

    finished: list[StudyRun]
    unfinished: list[StudyRun]
    failed: list[tuple[StudyRun, str]]


def execute(
    study: Study,
    folder: Path,
    options: Options | None = None,
    spread: Callable[..., None] | None = None,
    whole: Study | None = None,
) -> Outcome:
    """Run what is left of ``study`` in ``folder``. ``spread`` runs groups elsewhere (``cppo.study.distributed``).

    ``whole`` is the study of which this is a part: earlier runs that it does not ask for (any more) leave the manifest.
    """
    options = options or Options()
    deadline = None if options.budget is None else time.time() + options.budget
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
    with stop_on_interrupt() as interrupted:

        def stop() -> bool:
            return interrupted.is_set() or (deadline is not None and time.time() >= deadline)

        if spread is not None:
            spread(groups, deadline, options, stop)
        else:
            for number, members in enumerate(groups):
                if stop():
                    break
                run_members(members, stop, options, f"group {number + 1} of {len(groups)}: ")
    return outcome(folder, runs)


def run_members(members: Sequence[Member], stop: Stop, options: Options, prefix: str = "") -> None:
    """Train a group; where it fails as a whole, each of its runs alone, so that only the guilty one is lost."""
    how: dict[str, Any] = dict(
        checkpoint_seconds=options.checkpoint_seconds, tensorboard=options.tensorboard, show=options.show
    )
    try:
        train_group(members, stop, title=prefix + describe(members), **how)
    except Exception as error:
        if len(members) == 1:
            record_failure(members[0][1], error)
            return
        for member in members:
            if not stop() and not is_finished(*member) and failure(member[1]) is None:
                run_members([member], stop, options, prefix)


def describe(members: Sequence[Member]) -> str:
    """A title for people: ``cppo on PointCircle``."""
    algorithms = list(dict.fromkeys(plan.algo for plan, _ in members))
    return f"{', '.join(algorithms)} on {members[0][0].env}"


def pending(runs: Sequence[StudyRun], folder: Path, options: Options) -> Iterator[list[Member]]:
    """Groups of runs still to be trained, in the study's order.

    Groups follow from the study alone, not from how far it has come, so that a run always has the same company, but for
    runs that failed.
    """
    grouped: dict[Any, dict[str, Member]] = {}
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
            left = [member for member in part if not is_finished(*member) and failure(member[1]) is None]
            if left:
                yield left


def outcome(folder: Path, runs: Sequence[StudyRun]) -> Outcome:
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
    return Outcome(finished, unfinished, failed)


def run_folder(folder: Path, run: StudyRun) -> Path:
    return folder / "runs" / run.id


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
    content = {"format": FORMAT, "name": study.name, "title": study.title, "runs": list(entries.values())}
    log.write_json(folder / MANIFEST, content)
    return sum(key not in entries or entries[key]["id"] != entry["id"] for key, entry in had.items())


def read_manifest(folder: Path) -> dict[str, Any]:
    """What was asked of the study in ``folder``."""
    content = log.read_json(folder / MANIFEST)
    if content.get("format") != FORMAT or "runs" not in content:
        raise UsageError(
            f"{folder / MANIFEST} is no list of a study's runs; move the folder away, or restore the file."
        )
    return content


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


def seconds_of(text: str) -> float:
    """``25m``, ``1h30m``, ``90s`` or ``90`` in seconds.

    >>> seconds_of("1h30m")
    5400.0
    """
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if not match or not any(match.groups()):
        raise UsageError(f"--budget {text!r}: write for example 25m, 1h30m or 90s.")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + seconds


__all__ = ["ERROR", "Options", "Outcome", "execute", "pending", "run_members", "seconds_of"]
