"""A run as a folder for the Hugging Face Hub: model card, parameters, settings and metrics, no training state.

``cppo.load`` opens such a folder like any run, also on the Hub (``runs/hub.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from cppo import files
from cppo.runs import checkpoint
from cppo.runs.checkpoint import MODEL
from cppo.runs.hub import library
from cppo.runs.metrics import METRICS
from cppo.runs.plan import CONFIG
from cppo.runs.run import Run

COPIED = (CONFIG, "versions.json", "summary.json", METRICS)


def write(run: Run, folder: Path) -> Path:
    """Write the folder; an earlier export there is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        if (run.folder / name).is_file():
            files.write_atomically(folder / name, _content(run.folder / name))
    _, agents = run.agents
    source, iteration = run.parameters_file(), run.iteration()
    saved = checkpoint.save(folder, iteration, {"agent": jax.device_get(agents)}, {"source": source.name})
    saved.replace(folder / MODEL)
    files.write_text(folder / "README.md", card(run))
    return folder


def _content(path: Path) -> bytes:
    """A file to be published. One that is a link may be anything of the user's, but for the Hub's own in its cache."""
    if path.is_symlink() and path.resolve().parent != path.parent.resolve().parents[1] / "blobs":
        files.unlinked(path)
    return files.read(path, most=path.stat().st_size)


def card(run: Run) -> str:
    """The model card: what was trained on what, how well it keeps its limits, how to use it."""
    plan = run.plan
    limits = ", ".join(f"{name} ≤ {limit:g}" for name, limit in plan.cost_limits.items())
    rows = run.summary["seeds"] if (run.folder / "summary.json").is_file() else []
    lines = [
        "---",
        "library_name: cppo",
        "license: mit",
        "tags:",
        *(f"- {tag}" for tag in ("reinforcement-learning", "safe-reinforcement-learning", "constrained", plan.algo)),
        *_model_index(run, rows),
        "---",
        "",
        f"# {plan.algo} on {plan.env}",
        "",
        f"{len(plan.seeds)} policies (seeds {', '.join(map(str, plan.seeds))}), trained for {plan.steps:,} steps each "
        f"within the limits {limits} on the mean undiscounted cost of an episode.",
        "",
    ]
    if rows:
        lines += ["| seed | return | cost | within its limit |", "|---|---|---|---|"]
        for row in rows:
            mark = "yes" if row["feasible"] else "no"
            lines.append(f"| {row['seed']} | {_text(row['final_return'])} | {_text(row['final_cost'])} | {mark} |")
        lines += ["", "Means over the last tenth of training, under the sampling policy.", ""]
    lines += [
        "```python",
        "import cppo",
        "",
        'run = cppo.load("PATH OF THIS FOLDER")  # or cppo.load("hf://USER/NAME")',
        "action = run.act(obs)",
        "```",
        "",
        *_of_hold(plan.settings.hold),
        "`config.json` holds every setting, `metrics.jsonl` the training curves, `versions.json` the software.",
        "",
    ]
    return "\n".join(lines)


def _of_hold(hold: int) -> list[str]:
    return [f"Each action is to be held for {hold} steps of the environment.", ""] if hold > 1 else []


def _model_index(run: Run, rows: list[dict[str, Any]]) -> list[str]:
    if not rows or run.summary["final_return"] is None:
        return []
    plan = run.plan
    return [
        "model-index:",
        f"- name: {plan.algo}",
        "  results:",
        "  - task:",
        "      type: reinforcement-learning",
        "    dataset:",
        f"      name: {plan.env!r}",
        f"      type: {plan.env!r}",
        "    metrics:",
        "    - type: mean_reward",
        f"      value: {run.summary['final_return']:.4g}",
        "      name: mean return",
        "    - type: feasible",
        f"      value: {run.summary['feasible']:.4g}",
        "      name: share of seeds within their limits",
    ]


def _text(value: Mapping | float | None) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(x)}" for name, x in value.items())
    return "unknown" if value is None else f"{value:.2f}"


def push(folder: Path, repository: str) -> str:
    """Upload an exported folder to ``user/name`` and return its address."""
    api = library().HfApi()
    api.create_repo(repository, exist_ok=True)
    api.upload_folder(repo_id=repository, folder_path=str(folder))
    return f"https://huggingface.co/{repository}"
