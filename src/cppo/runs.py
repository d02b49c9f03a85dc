"""One run of many: begun, gone on with or taken as it is, whatever its folder needs.

``ensure`` is all that a comparison or a study has to call for each of its runs: called again after a crash, a kill or
Ctrl-C it goes on where it was, and a finished run costs nothing.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Literal

from cppo import log
from cppo import plan as plans
from cppo.plan import Plan
from cppo.run import Run
from cppo.settings import as_dict
from cppo.train import begin, resume
from cppo.types import UsageError

State = Literal["new", "stopped", "finished"]


def state(plan: Plan, folder: Path) -> State:
    """What is left to do for ``plan`` in ``folder``; a ``UsageError`` where another run stands there."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return "new"
    if not (folder / plans.FILE).is_file():
        raise UsageError(f"{folder} exists and is not a run of cppo; choose another --out.")
    saved = plans.load(folder)
    differences = _differences(saved, plan)
    if differences:
        raise UsageError(
            f"{folder} holds another run: {'; '.join(differences)}. Choose another --out, or remove that folder."
        )
    if saved.steps == plan.steps and _steps_done(folder) == plan.iterations * plan.settings.batch_size:
        return "finished"
    metrics = folder / log.METRICS
    # The first checkpoint comes before the first line of metrics: without either nothing is lost by starting again.
    begun = any((folder / "checkpoints").glob("checkpoint-*.safetensors")) or (
        metrics.is_file() and metrics.stat().st_size > 0
    )
    return "stopped" if begun else "new"


def ensure(plan: Plan, folder: str | Path, **options: Any) -> Run:
    """The finished run of ``plan`` in ``folder``: trained, gone on with, or opened.

    A run that was planned for fewer steps is extended. ``options`` are those of ``train.begin``.
    """
    folder = Path(folder)
    match state(plan, folder):
        case "finished":
            return Run(folder)
        case "stopped":
            return resume(folder, steps=plan.steps, **options)
        case "new":
            shutil.rmtree(folder, ignore_errors=True)
            return begin(plan, folder, **options)


def _steps_done(folder: Path) -> int | None:
    """Environment steps of each seed in the summary, which is written last of all."""
    try:
        return json.loads((folder / "summary.json").read_text())["steps"]
    except FileNotFoundError:
        return None


def _differences(saved: Plan, wanted: Plan) -> list[str]:
    """In words, everything that would make the result of ``saved`` another than that of ``wanted``."""
    pairs = {
        name: (getattr(saved, name), getattr(wanted, name)) for name in ("algo", "env", "backend", "seeds", "init_from")
    }
    if saved.algo == wanted.algo:
        theirs, ours = as_dict(saved.settings), as_dict(wanted.settings)
        pairs |= {name: (theirs[name], ours[name]) for name in ours}
    if saved.steps > wanted.steps:
        pairs["steps"] = (saved.steps, wanted.steps)
    return [f"{name} is {there!r} there, {here!r} here" for name, (there, here) in pairs.items() if there != here]
