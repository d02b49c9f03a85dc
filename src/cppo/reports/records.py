"""What a study found, as one small JSON record from which every figure and table is made.

``digest`` reads run folders; ``load`` takes the record where it lies already (``results/`` of this repository).
Whatever depends on the machine's speed stands under ``timing`` and ``measured``. A record that no one commit would give
again is a ``draft``, and says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cppo.errors import reason_of
from cppo.reports import scores
from cppo.reports.folders import MANIFEST, Entry, Key, entries, has_runs, metrics_of
from cppo.reports.seeds import condensed
from cppo.runs import provenance
from cppo.runs.metrics import summarise
from cppo.runs.run import finished_steps
from cppo.runs.sealed import read_json, write_json
from cppo.settings import as_dict
from cppo.types import UsageError

FILE = "results.json"
MEASURED = "measured.json"  # what ``measure`` adds to a study's folder
FORMAT = 1

Record = dict[str, Any]


def load(folder: Path, steps: int | None = None) -> Record:
    """The record of a study's folder, of any folder of runs, or one that was saved; ``steps`` as in ``digest``."""
    folder = Path(folder)
    if _of_runs(folder):
        return digest(folder, steps)
    path = folder if folder.is_file() else folder / FILE
    if not path.is_file():
        raise UsageError(f"{folder} holds no study, no runs and no {FILE}; name the folder that cppo study wrote.")
    if steps is not None:
        raise UsageError(f"{path} is a finished record; --steps needs the folder of the runs themselves.")
    record = read_json(path)
    if record.get("format") != FORMAT or "groups" not in record:
        raise UsageError(f"{path} is no record of format {FORMAT}, which cppo report writes as {FILE}.")
    with believed(folder):
        return record | _draft(record["versions"])


def _of_runs(folder: Path) -> bool:
    """Whether a folder's record is made from the runs in it."""
    return (folder / MANIFEST).is_file() or (not (folder / FILE).is_file() and has_runs(folder))


def refuse_draft(record: Record, runs: Path, out: Path) -> None:
    """Refuse to make a record for a repository from runs that no one commit would give again."""
    if "draft" in record and _of_runs(Path(runs)) and provenance.is_kept_by_git(out):
        raise UsageError(
            f"{out} would hold a record that nobody can make again ({'; '.join(record['draft'])}). Run the study anew "
            f"from one clean commit (a copy without .git: set {provenance.COMMIT}), or write elsewhere, or mark it: "
            "--draft."
        )


def _draft(versions: list[Record]) -> Record:
    found = provenance.problems(versions)
    return {"draft": found} if found else {}


def _saved(folder: Path) -> Path | None:
    """The record's file; None where there are runs to make it of."""
    path = folder if folder.is_file() else folder / FILE
    return None if _of_runs(folder) else path


@contextmanager
def believed(folder: Path) -> Iterator[None]:
    """Work with a record, of which a file may have given all or what was measured: anybody may have written that."""
    try:
        yield
    except UsageError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        path = _saved(folder) or folder / MEASURED
        if not path.is_file():
            raise
        raise UsageError(f"{path} is no record that cppo writes ({reason_of(error)}).") from error


def save(record: Record, folder: Path) -> Path:
    """Keep the record; it is long, so without spaces."""
    write_json(folder / FILE, record, compact=True)
    return folder / FILE


def digest(folder: Path, steps: int | None = None) -> Record:
    """Everything worth keeping of the finished runs in ``folder``, failed and unfinished ones listed.

    Runs of one environment are compared at the same number of steps: that of the shortest of them. With ``steps``, the
    first so many environment steps of every run that has made them, finished or not.
    """
    if steps is not None and steps < 1:
        raise UsageError(f"--steps is {steps}; it must be at least 1, for example --steps 100000.")
    found, name, title = entries(folder)
    made: dict[str, list[tuple[Entry, int]]] = {}
    unfinished, failed, versions = [], [], []
    for entry in found:
        if covered := entry.covered(steps):
            made.setdefault(entry.env, []).append((entry, covered))
            software = read_json(entry.place / "versions.json")
            if software not in versions:
                versions.append(software)
        if (problem := entry.problem) and not entry.finished:
            failed.append({**entry.which, "error": problem})
        elif not covered:
            unfinished.append(entry.which)
    groups: dict[Key, Record] = {}
    played, longer = scores.read(folder), {}
    for env, runs in made.items():
        least, most = (extreme(covered for _, covered in runs) for extreme in (min, max))
        longer |= {env: most} if most > least else {}
        for entry, _ in runs:
            if problem := _add(groups, entry, least, played):
                failed.append({**entry.which, "error": f"left out: {problem}"})
    measured = folder / MEASURED
    return {
        "format": FORMAT,
        "name": name,
        "title": title,
        "groups": list(groups.values()),
        "longer": longer,
        "unfinished": unfinished,
        "failed": failed,
        "versions": versions,
        **_draft(versions),
        **({"measured": read_json(measured)} if measured.is_file() else {}),
    }


def _add(groups: dict[Key, Record], entry: Entry, steps: int, played: list[Record]) -> str | None:
    """Take the first ``steps`` of a run into its group, or say why it is left out: the group has its first seed's
    settings."""
    plan = entry.plan
    about = {
        "env": plan.env,
        "algo": plan.algo,
        "variant": entry.variant,
        "backend": plan.backend,
        "steps": steps,
        "episode_length": plan.spec.episode_length,
        "cost_limits": plan.cost_limits,
        "settings": as_dict(plan.settings),
    }
    group = groups.get(entry.key, {**about, "seeds": []})
    mine, theirs = ({"backend": one["backend"], **one["settings"]} for one in (about, group))
    other = [name for name, value in mine.items() if theirs.get(name) != value]
    if other:
        words = ", ".join(f"{name} {mine[name]}, not {theirs.get(name)}" for name in other)
        return f"it has other settings than the first seed ({words})"
    frame = metrics_of(entry.place)
    frame = frame.loc[(frame["seed"] == entry.seed) & (frame["steps"] <= steps)]
    if frame.empty:
        return f"one batch of it is longer than the {steps:,} steps of another run"
    if steps == finished_steps(entry.place):
        summaries = read_json(entry.place / "summary.json")
    else:
        summaries = summarise(frame, plan.cost_limits, float(frame["seconds"].iloc[-1]), steps)
    summary = next(row for row in summaries["seeds"] if row["seed"] == entry.seed)
    episodes = scores.of(played, entry.key, entry.seed, steps)
    group["seeds"].append(condensed(frame, summary, plan.cost_limits) | ({"episodes": episodes} if episodes else {}))
    groups[entry.key] = group
    return None
