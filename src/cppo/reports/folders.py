"""Which runs a folder holds: those that a study asked for, or the folders of runs that lie in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from cppo import files
from cppo.runs.metrics import METRICS, has_rows, read_metrics
from cppo.runs.plan import CONFIG, Plan, load_plan
from cppo.runs.run import failure, finished_steps, seed_failure
from cppo.runs.sealed import read_sealed
from cppo.settings import as_dict
from cppo.types import UsageError

MANIFEST = "study.json"  # what was asked of a study; ``cppo.study.execute`` writes it
MANIFEST_FORMAT = 1
Key = tuple[str, str, str]  # environment, algorithm, variant


@dataclass
class Entry:
    """One seed of one run that was asked for."""

    env: str
    algo: str
    variant: str
    seed: int
    folder: Path | None  # None: the run could not be
    steps: int | None = None  # asked for by the study; else the run's plan says
    error: str | None = None

    @property
    def key(self) -> Key:
        return self.env, self.algo, self.variant

    @property
    def which(self) -> dict[str, Any]:
        return {"env": self.env, "algo": self.algo, "variant": self.variant, "seed": self.seed}

    @property
    def place(self) -> Path:
        assert self.folder is not None
        return self.folder

    @cached_property
    def plan(self) -> Plan:
        return load_plan(self.place)

    @property
    def problem(self) -> str | None:
        """Why there is no such run, or why it stopped."""
        if self.error or self.folder is None:
            return self.error
        return failure(self.folder) or seed_failure(self.folder, self.seed)

    @property
    def asked(self) -> int:
        """Environment steps that were last asked for, by the study or by the run's own plan, in whole batches."""
        batch = self.plan.settings.batch_size
        return -(-(self.steps or self.plan.steps) // batch) * batch

    @property
    def finished(self) -> bool:
        started = self.folder is not None and (self.folder / CONFIG).is_file()
        done = started and finished_steps(self.place) >= self.asked
        return done and seed_failure(self.place, self.seed) is None

    def covered(self, steps: int | None) -> int:
        """Environment steps that count: those asked for of a finished run, or the last logged ones up to ``steps``.

        0 where the run has not made them. It may have logged more while it is extended.
        """
        if steps is None:
            return self.asked if self.finished else 0
        if self.folder is None or not has_rows(self.folder):
            return 0
        frame = metrics_of(self.folder)
        logged = frame.loc[frame["seed"] == self.seed, "steps"].to_numpy()
        return int(logged[logged <= steps].max(initial=0)) if logged.max(initial=0) >= steps else 0


def has_runs(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() or bool(_folders(folder))


def entries(folder: Path) -> tuple[list[Entry], str, str]:
    """One entry for each run and seed, with the study's name and title."""
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder)
        found = []
        for run in manifest["runs"]:
            place = folder / "runs" / run["id"] if run["id"] else None
            which = (run["env"], run["algo"], run["variant"], run["seed"])
            found.append(Entry(*which, place, run.get("steps"), run.get("error")))
        return found, manifest["name"], manifest["title"]
    found = []
    for place in _folders(folder):
        plan = load_plan(place)
        found += [Entry(plan.env, plan.algo, "", seed, place) for seed in plan.seeds]
    # Runs that differ in their settings, or have a seed twice, are told apart by the folders' names.
    several = _several(found)
    for entry in found:
        entry.variant = entry.place.name if entry.key in several else ""
    return found, folder.resolve().name, ""


def run_folders(folder: Path) -> list[Path]:
    """Every folder in which a run was begun, whatever of it is left: ``folder``, or those in it or in its ``runs``."""
    place = files.unlinked(folder / "runs") if (folder / MANIFEST).is_file() else folder
    return [folder] if _was_run(folder) else sorted(path for path in place.glob("*/") if _was_run(path))


def _was_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in (CONFIG, METRICS, "checkpoints")) and not folder.is_symlink()


def metrics_of(run: Path) -> pd.DataFrame:
    """The rows of a run, whose seeds are asked for one after the other."""
    about = (run / METRICS).stat() if (run / METRICS).is_file() else None
    return _metrics_of(run, about and (about.st_mtime_ns, about.st_size))


@lru_cache(maxsize=1)
def _metrics_of(run: Path, about: Any) -> pd.DataFrame:
    return read_metrics(run)


def finished_runs(folder: Path) -> dict[Key, list[tuple[int, Path]]]:
    """Finished runs by environment, algorithm and variant: seeds with their folders."""
    found: dict[Key, list[tuple[int, Path]]] = {}
    for entry in entries(folder)[0]:
        if entry.finished:
            found.setdefault(entry.key, []).append((entry.seed, entry.place))
    return found


def read_manifest(folder: Path) -> dict[str, Any]:
    """What was asked of the study in ``folder``."""
    again = "move it away, and give the study's command again, which writes it anew."
    content = read_sealed(folder / MANIFEST, f"To see what is good: cppo check {folder}; or {again}")
    texts, runs = (content.get("name"), content.get("title")), content.get("runs")
    whole = isinstance(runs, list) and all(map(_is_entry, runs)) and all(isinstance(text, str) for text in texts)
    if content.get("format") != MANIFEST_FORMAT or not whole:
        raise UsageError(f"{folder / MANIFEST} is no list of a study's runs; restore it, or {again}")
    for entry in content["runs"]:
        if entry["id"] is not None:
            files.inside(folder / "runs", entry["id"])
    return content


def _is_entry(entry: Any) -> bool:
    """Whether something read from a file can be a run that a study asked for."""
    if not isinstance(entry, dict) or not {"env", "algo", "variant", "seed", "id"} <= set(entry):
        return False
    steps, error = entry.get("steps"), entry.get("error")
    texts = all(isinstance(entry[name], str) for name in ("env", "algo", "variant"))
    numbers = type(entry["seed"]) is int and (steps is None or (type(steps) is int and steps > 0))
    return texts and numbers and (error is None or isinstance(error, str))


def _several(found: list[Entry]) -> set[Key]:
    """Keys whose runs are not seeds of one thing."""
    seen: dict[Key, tuple[list[int], list[Any]]] = {}
    for entry in found:
        seeds, settings = seen.setdefault(entry.key, ([], []))
        seeds.append(entry.seed)
        own = as_dict(entry.plan.settings)
        if own not in settings:
            settings.append(own)
    return {key for key, (seeds, settings) in seen.items() if len(set(seeds)) < len(seeds) or len(settings) > 1}


def _folders(folder: Path) -> list[Path]:
    if (folder / CONFIG).is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
