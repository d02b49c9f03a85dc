"""A run's folder before it is begun, and while it cannot be written.

A run is begun by its ``config.json``, the last file that a start writes. A kill before that leaves files that hold no
result; they are removed when the same command is given again. Anything else in a folder is left alone.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cppo.errors import Unsaved, UsageError
from cppo.runs import checkpoint
from cppo.runs.checkpoint import checkpoints_of
from cppo.runs.lock import OWNER
from cppo.runs.metrics import METRICS, has_rows
from cppo.runs.plan import CONFIG, Plan
from cppo.runs.pretrained import SCHEME

ERROR = "error.json"
_WRITTEN = {CONFIG, METRICS, OWNER, ERROR, "versions.json", "metrics.csv", "checkpoints", "tensorboard", "wandb"}


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Tell a full or protected disk in one line."""
    try:
        yield
    except OSError as error:
        raise Unsaved(
            f"cannot write in {folder} ({reason(error)}). What was saved is intact: make space, or make the folder "
            "writable, and give the same command again."
        ) from None


def reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def obstacle(folder: Path) -> str | None:
    """Why no run may be begun in ``folder``: what lies there beyond checkpoint 0 and what follows from it."""
    if not folder.exists():
        return None
    saved = checkpoint.by_iteration(checkpoints_of(folder))
    further = len(saved) > 1 or (saved and saved[0].name != checkpoint.name_of(0))
    if further or (folder / "summary.json").is_file() or (not saved and has_rows(folder)):
        lost = "checkpoints" if (folder / CONFIG).is_file() else CONFIG
        return f"{folder} holds a run without its {lost}; put that back, or move the folder away."
    strange = [path.name for path in folder.iterdir() if path.name not in _WRITTEN and ".partial" not in path.name]
    return f"{folder} holds {min(strange)}, which is of no run that begins; move it away." if strange else None


def is_blank(folder: Path) -> bool:
    """Whether nothing of a run was saved here, so that it may begin without a further word."""
    return not folder.exists() or (folder.is_dir() and obstacle(folder) is None and not has_rows(folder))


def empty(folder: Path) -> None:
    """Remove what is in a folder that is ours, its config last: a kill in between leaves what can be emptied again."""
    with writing(folder):
        folder.mkdir(exist_ok=True)
        found = [path for path in folder.iterdir() if path.name != OWNER]
        for path in sorted(found, key=lambda path: path.name == CONFIG):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def new_folder(plan: Plan, out: str | Path | None) -> Path:
    """Where the run of ``plan`` goes."""
    return Path(out) if out is not None else _unused(Path("runs") / _as_file_name(f"{plan.env}-{plan.algo}"))


def refuse_run(folder: Path, overwrite: bool) -> None:
    """Refuse a folder for a new run where something stands already, but a run that may be overwritten."""
    if is_blank(folder):
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file; choose another --out, a folder.")
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{folder} exists and is not a run of cppo; choose another --out.")
    if not overwrite:
        raise UsageError(f"{folder} holds a run already. Go on with --resume {folder}, or add --overwrite.")


def refuse_nothing(folder: Path) -> None:
    """Refuse to go on with what is no run, and in a folder where a start was cut short before it saved anything."""
    if str(folder).startswith(SCHEME):
        raise UsageError(f"{folder} is a policy and no run to go on with; start a run from it: --init-from {folder}.")
    if folder.is_dir() and not (folder / CONFIG).is_file() and is_blank(folder):
        raise UsageError(f"nothing was saved in {folder} yet; give the command again that began the run there.")


def _as_file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def _unused(folder: Path) -> Path:
    number = 1
    while (candidate := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    return candidate
