"""Where a result comes from: the code's commit and digest, its constants, software and machine.

The commit is that of the checkout which the package lies in. A copy without ``.git`` is told it: ``CPPO_COMMIT`` holds
the commit that was copied, with ``-modified`` behind it where more was. ``code``, a digest of the package's files, says
whether two runs had the same code, and whether a commit is the one it was said to be.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax

COMMIT = "CPPO_COMMIT"
PACKAGE = Path(__file__).parents[1]
_CONSTANTS = ("cppo.algos", "cppo.maths", "cppo.networks", "cppo.runs.episodes")  # modules whose numbers form results
_MODIFIED = "-modified"


def versions() -> dict[str, Any]:
    """What a result may depend on beside the settings."""
    packages = ("jax", "jaxlib", "numpy", "equinox", "optax", "mujoco")
    return {
        "cppo": _package_version("cppo") or "unknown",
        **commit(PACKAGE),
        "installed": _is_installed(),
        "code": digest(PACKAGE),
        "constants": constants(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cpu_count": os.cpu_count(),
        "device": jax.local_devices()[0].device_kind,
        **{name: _package_version(name) for name in packages},
    }


def commit(package: Path) -> dict[str, Any]:
    """Commit of the checkout that tracks ``package``, and whether any file in it is otherwise than committed.

    ``ls-files`` is asked first because an installed copy may lie in a virtual environment inside another repository,
    whose commit would say nothing about this code.
    """
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        told = os.environ.get(COMMIT)
        known = {"git_commit": told and told.removesuffix(_MODIFIED)}
        return known | {"git_modified": told.endswith(_MODIFIED) if told else None}
    changes = _git(package, "status", "--porcelain", "--", ".")
    return {"git_commit": _git(package, "rev-parse", "HEAD"), "git_modified": bool(changes)}


@lru_cache
def digest(package: Path) -> str:
    """Of all source files below ``package``, by name and content."""
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{path.relative_to(package).as_posix()} {content}\n".encode())
    return found.hexdigest()[:16]


def constants() -> dict[str, Any]:
    """Numbers that the code of methods keeps beside their settings, such as the factor of a line search."""
    from cppo.runs import learner  # noqa: F401 (whatever forms results is imported then)

    found = {}
    for module in sorted(name for name in sys.modules if name.startswith(_CONSTANTS)):
        for name, value in vars(sys.modules[module]).items():
            if re.fullmatch(r"_?[A-Z][A-Z0-9_]+", name) and _is_number(value):
                found[f"{module.removeprefix('cppo.')}.{name}"] = value
    return found


def problems(versions: Sequence[dict[str, Any]]) -> list[str]:
    """Why results of runs with these versions could not be had again from one commit; none where they could.

    A package that pip installed whole is known by its version.
    """
    found = []
    if any(one.get("git_modified") for one in versions):
        found.append("made with a modified tree")
    if any(not one.get("git_commit") and not one.get("installed") for one in versions):
        found.append("the code's commit is not known")
    if len({(one.get("git_commit"), one.get("cppo"), one.get("code")) for one in versions}) > 1:
        found.append("runs of several commits")
    return found


def is_kept_by_git(folder: Path) -> bool:
    """Whether what is written to ``folder`` would come into a commit: it lies in a checkout that does not ignore it.

    The index is not asked: the folder may be a stranger's, and git starts programs that a checkout names to read it.
    """
    folder = folder.absolute()
    here = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    inside = _git(here, "rev-parse", "--is-inside-work-tree") == "true"
    return inside and _git(here, "check-ignore", "--no-index", "-q", str(folder)) is None


def _is_number(value: Any) -> bool:
    numbers = value if isinstance(value, tuple) else (value,)
    return bool(numbers) and all(type(one) in (int, float) for one in numbers)


def _is_installed() -> bool:
    """Whether pip copied the package where it is, as a whole; an editable install points to a checkout."""
    try:
        files = importlib.metadata.files("cppo") or []
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(Path(str(file.locate())).resolve() == PACKAGE / "__init__.py" for file in files)


def _package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    """What the processor calls itself."""
    try:
        named = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        named = None
    return named[1] if named else platform.processor()


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
