"""Whether a run is one consistent thing, and the way back to the last state in which it was.

A run is its settings, its rows and its checkpoints; each says by a checksum whether it is as it was written, a
checkpoint holds the settings that it was trained with, and rows reach every checkpoint. ``repair`` goes back to the
newest checkpoint for which all of that holds. It deletes nothing: what it takes away lies in ``damaged-1`` afterwards.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cppo import files
from cppo.errors import UsageError
from cppo.runs import checkpoint, record
from cppo.runs.checkpoint import BEST, checkpoints_of
from cppo.runs.folder import ERROR, writing
from cppo.runs.lock import owned
from cppo.runs.member import BOUND, differences, failed_seeds
from cppo.runs.metrics import METRICS
from cppo.runs.plan import CONFIG, load_plan, read_config
from cppo.runs.record import REPAIRED, Line, Lost
from cppo.runs.run import MODEL, failure, read_summary
from cppo.runs.saving import read_segment
from cppo.runs.sealed import read_sealed, write_sealed

SUMMARY, VERSIONS = "summary.json", "versions.json"


@dataclass
class Found:
    """What ``check`` saw. ``problems`` are lines for people, each of one file."""

    folder: Path
    problems: list[str] = field(default_factory=list)
    bad: set[str] = field(default_factory=set)  # files, by their path in the folder, that are not as they were written
    config: dict[str, Any] | None = None  # as the run began
    saved: dict[str, dict[str, Any]] = field(default_factory=dict)  # what sound checkpoints say of themselves, by name
    good: dict[int, list[Line]] = field(default_factory=dict)  # sound rows of each seed
    whole: int | None = None  # rows are whole up to this iteration; None: all are

    @property
    def back(self) -> str | None:
        """The newest sound checkpoint whose rows are all there; else, rows being lost, the newest sound one."""
        names = sorted(self.saved, key=lambda name: self.saved[name]["iteration"])
        reached = [name for name in names if self.whole is None or self.saved[name]["iteration"] <= self.whole]
        return (reached or names or [None])[-1]

    @property
    def told(self) -> str:
        """In a sentence, how much is good."""
        if not self.problems:
            return f"{self.folder}: good, {len(self.saved)} checkpoints and {sum(map(len, self.good.values()))} rows."
        if self.back is None:
            return f"{self.folder}: damaged, and no checkpoint is good."
        iteration = self.saved[self.back]["iteration"]
        rows = "" if self.whole is None or iteration <= self.whole else f", but rows only up to {self.whole}"
        return f"{self.folder}: damaged; good up to iteration {iteration} ({self.back}){rows}."


def check(folder: Path) -> Found:
    """Read everything that the run's result follows from."""
    found = Found(Path(folder))
    _check_checkpoints(found)
    _check_config(found)
    _check_rows(found)
    _check_ends(found)
    return found


def _note(found: Found, file: str, problem: object) -> None:
    found.bad.add(file)
    text = str(problem)
    found.problems.append(text if file in text else f"{found.folder / file}: {text}")


def _check_checkpoints(found: Found) -> None:
    try:
        where = checkpoints_of(found.folder)
    except UsageError as problem:
        return _note(found, "checkpoints", problem)
    for path in checkpoint.by_iteration(where):
        try:
            _, meta = checkpoint.read_verified(path)
            for segment in meta.get("replay", []):
                read_segment(where, segment)
            if meta["iteration"] != checkpoint.iteration_of(path):
                raise checkpoint.Unusable(f"it is of iteration {meta['iteration']}")
            found.saved[path.name] = meta
        except (checkpoint.Unusable, TypeError, LookupError) as problem:
            _note(found, f"checkpoints/{path.name}", problem)
    if (where / BEST).is_file():
        try:
            checkpoint.read_verified(where / BEST)
        except checkpoint.Unusable as problem:
            _note(found, f"checkpoints/{BEST}", problem)
    if not found.saved:
        _check_exported(found)


def _check_exported(found: Found) -> None:
    """A run for the Hub has one file of parameters, and nothing to go on from."""
    try:
        if not (found.folder / MODEL).is_file():
            raise checkpoint.Unusable("there is no good checkpoint")
        checkpoint.read_verified(found.folder / MODEL)
    except checkpoint.Unusable as problem:
        _note(found, "checkpoints", problem)


def _check_config(found: Found) -> None:
    """The settings, beside those of the newest sound checkpoint that holds them."""
    bound = [meta[BOUND] for _, meta in sorted(found.saved.items()) if isinstance(meta.get(BOUND), dict)]
    found.config = bound[-1] if bound else None
    try:
        config = read_config(found.folder)
        load_plan(found.folder)
        other = differences(config, found.config or config)
        if other:
            return _note(found, CONFIG, f"{'; '.join(other[:5])} in the checkpoints")
        found.config = config
    except UsageError as problem:
        _note(found, CONFIG, problem)


def _check_rows(found: Found) -> None:
    path = found.folder / METRICS
    newest = max((meta["iteration"] for meta in found.saved.values()), default=0)
    if not path.is_file():
        if newest:
            found.whole = 0
            _note(found, METRICS, "it is missing")
        return
    try:
        lost = record.lost_in(found.folder)
    except UsageError as problem:
        lost = frozenset()
        _note(found, REPAIRED, problem)
    unreadable: list[Line] = []  # perhaps the tail of an interrupted write
    for line in record.lines(path, lost=lost):
        if line.row is None:
            unreadable.append(line)
            continue
        for wrong in (*unreadable, *([line] if line.problem else [])):
            if len(found.problems) < 20:
                found.problems.append(f"{path}: line {wrong.number} {wrong.problem}")
            found.bad.add(METRICS)
        unreadable = []
        if not (line.problem or "").startswith("is out of place"):
            found.good.setdefault(line.row["seed"], []).append(line)
    _check_reach(found, newest, lost)


def _check_reach(found: Found, newest: int, lost: frozenset[Lost]) -> None:
    """How far the rows of every seed go without a gap, and whether that is as far as the checkpoints."""
    seeds = found.config["seeds"] if found.config is not None else list(found.good)
    failed = set().union(*(failed_seeds(meta) for meta in found.saved.values()))
    reached = {}
    for seed in seeds:
        at = 0
        for line in found.good.get(seed, []):
            assert line.row is not None
            iteration = line.row["iteration"]
            if iteration == at + 1 or (seed, at + 1, iteration - 1) in lost:
                at = iteration
        reached[seed] = record.beyond(seed, at, lost)
    sound = [at for seed, at in reached.items() if seed not in failed]
    if sound and min(sound) < newest:
        found.whole = min(sound)
        if METRICS not in found.bad:
            _note(found, METRICS, f"it ends at iteration {min(sound)}, but a checkpoint is of iteration {newest}")
    elif METRICS in found.bad:
        found.whole = min(reached.values(), default=0)


def _check_ends(found: Found) -> None:
    """What says how the run ended, which must not say more than the rows do."""
    for file, read in ((ERROR, lambda: failure(found.folder)), (VERSIONS, lambda: _versions(found.folder))):
        try:
            read()
        except UsageError as problem:
            _note(found, file, problem)
    try:
        summary = read_summary(found.folder)
    except UsageError as problem:
        return _note(found, SUMMARY, problem)
    rows = [line.row["steps"] for lines in found.good.values() for line in lines if line.row is not None]
    end = max(rows, default=0)
    if summary is not None and summary["steps"] > end:
        _note(found, SUMMARY, f"it covers {summary['steps']:,} steps, but the rows end at {end:,}")


def _versions(folder: Path) -> dict[str, Any]:
    return read_sealed(folder / VERSIONS, record.advice(folder))


def repair(folder: Path) -> list[str]:
    """Go back to the last consistent state; returns what was done, in lines. Nothing is deleted."""
    with owned(folder), writing(folder):
        found = check(folder)
        if not found.problems:
            return []
        back = found.back
        if back is None or found.config is None:
            what = "checkpoint" if back is None else "copy of its settings (earlier versions kept none in checkpoints)"
            raise UsageError(f"{folder} cannot be repaired: there is no good {what}. Its files stay as they are.")
        return _go_back(found, back)


def _go_back(found: Found, back: str) -> list[str]:
    folder, done, target = found.folder, [], found.saved[back]["iteration"]
    assert found.config is not None
    files.unlinked(folder / METRICS)
    away = _new_folder(folder)
    if CONFIG in found.bad:
        _move(folder, CONFIG, away)
        write_sealed(folder / CONFIG, found.config)
        done.append(f"{CONFIG} is again what {back} was trained with")
    for name in sorted({*found.bad, SUMMARY, ERROR} - {CONFIG, METRICS, "checkpoints"}):
        beyond = name not in (SUMMARY, ERROR) or name in found.bad or METRICS in found.bad or found.whole is not None
        if beyond and (folder / name).exists():
            _move(folder, name, away)
            done.append(f"{name} was moved to {away.name}")
    if VERSIONS in found.bad:
        write_sealed(folder / VERSIONS, {})  # nothing else knows them
    for name, meta in found.saved.items():
        if meta["iteration"] > target:
            _move(folder, f"checkpoints/{name}", away)
            done.append(f"checkpoints/{name} was moved to {away.name}")
    _keep_segments(found, back, away)
    if METRICS in found.bad:
        done.append(_sound_rows(found, back, away))
    return [*done, f"go on from iteration {target} with: cppo train --resume {folder}"]


def _sound_rows(found: Found, back: str, away: Path) -> str:
    """Rows up to the checkpoint ``back``; those that nothing brings back are noted, so that they are told of once."""
    failed = failed_seeds(found.saved[back])
    target, kept = found.saved[back]["iteration"], []
    lost = set(record.lost_in(found.folder) if REPAIRED not in found.bad else ())
    for seed in found.config["seeds"] if found.config else sorted(found.good):
        at = 0
        for line in found.good.get(seed, []):
            assert line.row is not None
            if line.row["iteration"] > target:
                break
            lost |= {(seed, at + 1, line.row["iteration"] - 1)} if line.row["iteration"] > at + 1 else set()
            at = line.row["iteration"]
            kept.append((line.row["iteration"], line.number, line.text))
        if at < target and seed not in failed:
            lost.add((seed, at + 1, target))
    path = found.folder / METRICS
    if path.exists():
        files.also_called(path, _beside(away, METRICS))
    if lost:
        write_sealed(found.folder / REPAIRED, {"lost": sorted(lost)})
    files.write_atomically(path, b"".join(text + b"\n" for _, _, text in sorted(kept)))
    gone = f"; {sum(last - first + 1 for _, first, last in lost)} rows are lost for good" if lost else ""
    return f"{METRICS} has its {len(kept)} sound rows up to iteration {target}{gone}; before it is in {away.name}"


def _keep_segments(found: Found, back: str, away: Path) -> None:
    """Parts of a replay that only checkpoints name which were taken away: they would go at the next save."""
    target = found.saved[back]["iteration"]
    kept = [meta for meta in found.saved.values() if meta["iteration"] <= target]
    named = {segment["file"] for meta in kept for segment in meta.get("replay", [])}
    for path in sorted(checkpoints_of(found.folder).glob("replay-*.safetensors")):
        if path.name not in named:
            _move(found.folder, f"checkpoints/{path.name}", away)


def _move(folder: Path, name: str, away: Path) -> None:
    os.replace(folder / name, _beside(away, name))


def _beside(away: Path, name: str) -> Path:
    inner = away
    for part in Path(name).parts[:-1]:
        inner = files.subfolder(inner, part)
    return inner / Path(name).name


def _new_folder(folder: Path) -> Path:
    number = 1
    while (folder / f"damaged-{number}").exists() or (folder / f"damaged-{number}").is_symlink():
        number += 1
    return files.subfolder(folder, f"damaged-{number}")
