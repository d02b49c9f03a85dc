"""A run as a folder for the Hugging Face Hub: model card, parameters, settings and metrics, no training state.

``cppo.load`` opens such a folder like any run; ``push`` and ``pull`` move it, with the
optional package huggingface_hub.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jax

from cppo import checkpoint, log
from cppo import plan as plans
from cppo.run import MODEL, Run
from cppo.types import UsageError

COPIED = (plans.FILE, "versions.json", "summary.json", log.METRICS)


def write(run: Run, folder: Path) -> Path:
    """Write the folder; an earlier export there is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        if (run.folder / name).is_file():
            shutil.copyfile(run.folder / name, folder / name)
    _, agents = run.agents
    source, iteration = run.parameters_file(), run.iteration()
    saved = checkpoint.save(folder, iteration, {"agent": jax.device_get(agents)}, {"source": source.name})
    saved.replace(folder / MODEL)
    (folder / "README.md").write_text(card(run))
    return folder


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
        "`config.json` holds every setting, `metrics.jsonl` the training curves, `versions.json` the software.",
        "",
    ]
    return "\n".join(lines)


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


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(x)}" for name, x in value.items())
    return "unknown" if value is None else f"{value:.2f}"


def push(folder: Path, repository: str) -> str:
    """Upload an exported folder to ``user/name`` and return its address."""
    api = _library().HfApi()
    api.create_repo(repository, exist_ok=True)
    api.upload_folder(repo_id=repository, folder_path=str(folder))
    return f"https://huggingface.co/{repository}"


def pull(repository: str) -> Path:
    """Download ``user/name`` (or find it in the cache) and return its folder."""
    return Path(_library().snapshot_download(repository))


def _library() -> Any:
    try:
        import huggingface_hub  # pyright: ignore[reportMissingImports]  (optional)
    except ImportError:
        raise UsageError("the Hugging Face Hub needs a package: pip install 'cppo[hub]'") from None
    return huggingface_hub
