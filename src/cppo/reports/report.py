"""``cppo report``: one page that needs no network, and the figures beside it."""

from __future__ import annotations

import html
import json
import math
from importlib import resources
from pathlib import Path
from typing import Any

from cppo.study import replay, results
from cppo.study.results import Record

SCRIPTS = ("charts.js", "replay.js", "main.js")


def write(folder: Path, out: Path, episodes: int = 2, steps: int | None = None) -> Path:
    """The page of the study in ``folder``, written to ``out/index.html``, its record beside it."""
    record = results.load(folder, steps)
    out.mkdir(parents=True, exist_ok=True)
    results.save(record, out)
    replays = record_episodes(folder, record, episodes) if episodes else []
    page = out / "index.html"
    page.write_text(render(record, replays), encoding="utf-8")
    return page


def record_episodes(folder: Path, record: Record, episodes: int) -> list[Record]:
    """Episodes of each algorithm's median seed, and of ``no recovery``; variants beyond that would crowd the page.

    A run that cannot be replayed here has an ``error`` in place of its ``episodes``.
    """
    found = []
    for (env, algo, variant), runs in results.run_folders(folder).items():
        if not replay.can_replay(env) or variant not in ("", "no recovery"):
            continue
        groups = [g for g in record["groups"] if (g["env"], g["algo"], g["variant"]) == (env, algo, variant)]
        if not groups or (seed := _median_seed(groups[0])) not in dict(runs):
            continue  # cut at a number of steps that this run has not made
        group, place = groups[0], dict(runs)[seed]
        limit = sum(group["cost_limits"].values())
        about = {"env": env, "algo": algo, "variant": variant, "seed": seed, "limit": limit}
        found.append({**about, **_episodes(place, seed, episodes, group["steps"])})
    return found


def _episodes(place: Path, seed: int, episodes: int, steps: int) -> Record:
    try:
        return {"episodes": replay.of_run(place, seed, episodes, steps)}
    except Exception as error:  # whatever it is, the rest of the page is worth having
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"No replay of {place}: {reason}")
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
        "rows": results.summaries(record),
        "improvements": results.improvements(record),
        "pathRows": results.path_summaries(record),
        "replays": replays,
    }
    # "</" would end the script element that holds the data.
    data = json.dumps(_finite(payload), separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    parts = {
        "title": html.escape(record["title"] or f"Study {record['name']}"),
        "style": _asset("style.css"),
        "script": "\n".join(_asset(name) for name in SCRIPTS),
        "data": data,
    }
    page = _asset("page.html")
    for name, text in parts.items():
        page = page.replace("{{" + name + "}}", text)
    return page


def _asset(name: str) -> str:
    return resources.files("cppo.study").joinpath("page", name).read_text(encoding="utf-8")


def _finite(value: Any) -> Any:
    """``value`` with what JSON lacks as null."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
