"""``cppo report``: one page that needs no network, and the figures beside it."""

from __future__ import annotations

import html
import json
import re
from importlib import resources
from pathlib import Path

from cppo import files
from cppo.errors import shown
from cppo.reports import playback as replay
from cppo.reports import records as results
from cppo.reports.folders import finished_runs
from cppo.reports.records import Record
from cppo.reports.summaries import improvements, path_summaries, summaries
from cppo.runs.sealed import plain

SCRIPTS = ("charts.js", "replay.js", "main.js")


def write(folder: Path, out: Path, episodes: int = 2, steps: int | None = None, checkpoint: str | None = None) -> Path:
    """The page of the study in ``folder``, written to ``out/index.html``, its record beside it.

    ``checkpoint`` names the policies whose episodes it plays back (default: those of the last step).
    """
    record = results.load(folder, steps)
    out.mkdir(parents=True, exist_ok=True)
    results.save(record, out)
    replays = record_episodes(folder, record, episodes, checkpoint) if episodes else []
    return files.write_text(out / "index.html", render(record, replays))


def record_episodes(folder: Path, record: Record, episodes: int, checkpoint: str | None = None) -> list[Record]:
    """Episodes of each algorithm's median seed, and of ``no recovery``; variants beyond that would crowd the page.

    A run that cannot be replayed here has an ``error`` in place of its ``episodes``.
    """
    found = []
    for (env, algo, variant), runs in finished_runs(folder).items():
        if not replay.can_replay(env) or variant not in ("", "no recovery"):
            continue
        groups = [g for g in record["groups"] if (g["env"], g["algo"], g["variant"]) == (env, algo, variant)]
        if not groups or (seed := _median_seed(groups[0])) not in dict(runs):
            continue  # cut at a number of steps that this run has not made
        group, place = groups[0], dict(runs)[seed]
        limit = sum(group["cost_limits"].values())
        about = {"env": env, "algo": algo, "variant": variant, "seed": seed, "limit": limit}
        found.append({**about, **_episodes(place, seed, episodes, group["steps"], checkpoint)})
    return found


def _episodes(place: Path, seed: int, episodes: int, steps: int, checkpoint: str | None) -> Record:
    try:
        return {"episodes": replay.of_run(place, seed, episodes, steps, checkpoint)}
    except Exception as error:  # whatever it is, the rest of the page is worth having
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        print(shown(f"No replay of {place}: {reason}"))
        return {"error": reason}


def _median_seed(group: Record) -> int:
    ordered = sorted(
        group["seeds"], key=lambda seed: seed["final_return"] if seed["final_return"] is not None else -1e9
    )
    return ordered[len(ordered) // 2]["seed"]


def render(record: Record, replays: list[Record]) -> str:
    """The page as text."""
    payload = {
        **record,
        "rows": summaries(record),
        "improvements": improvements(record),
        "pathRows": path_summaries(record),
        "replays": replays,
    }
    # "</" would end the script element that holds the data, and "<!--" change what ends it.
    data = json.dumps(plain(payload), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    parts = {
        "title": html.escape(record["title"] or f"Study {record['name']}"),
        "style": _asset("style.css"),
        "script": "\n".join(_asset(name) for name in SCRIPTS),
        "data": data,
    }
    # In one go: what stands in a part is text, even where it looks like the place of another one.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return resources.files("cppo.reports").joinpath("page", name).read_text(encoding="utf-8")
