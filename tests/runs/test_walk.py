"""A walk of ``cppo train`` passes the files that the page of the architecture names, and no more than 25."""

import re
import sys
import threading
from pathlib import Path

import pytest
from test_architecture import FILES, ROOT, imported

from cppo.commands.cli import main

MOST = 25
PAGE = (ROOT / "docs" / "architecture.md").read_text().split("## A walk of `cppo train`")[1].split("\n## ")[0]
WALKED, LOOKED_UP = (
    re.findall(r"`((?!tests)[\w/]+(?:\.py|/))`", part) for part in PAGE.split("Some 50 more", maxsplit=1)
)
OPTIMIZED = 1  # of the code of functions, not of classes and modules


def imports(name: str) -> set[str]:
    """Files that a file imports, or names in a row of a table."""
    modules = {module.replace(".", "/") for module in imported(name)}
    modules |= {path.rpartition("/")[0] for path in modules}  # a name in a module
    rows = re.findall(r"\w+(?:\.\w+)+", FILES[name].read_text())
    modules |= {f"{name.split('/')[0]}/{row.replace('.', '/')}" for row in rows}
    return {file for module in modules for file in (f"{module}.py", f"{module}/__init__.py") if file in FILES}


def test_each_file_of_the_walk_is_named_by_one_before_it():
    assert len(WALKED) == len(set(WALKED)) <= MOST and set(WALKED) <= FILES.keys()
    seen: set[str] = set()
    for file in WALKED:
        assert not seen or file in seen, f"nothing before it leads to {file}"
        seen |= {file} | imports(file)


def test_what_is_looked_up_exists():
    for name in LOOKED_UP:
        assert any(file == name or (name.endswith("/") and file.startswith(name)) for file in FILES), name


@pytest.mark.slow
def test_what_runs_is_on_the_page(tmp_path):
    ran: set[str] = set()

    def see(frame, event, argument):
        if event == "call" and frame.f_code.co_flags & OPTIMIZED:
            ran.add(frame.f_code.co_filename)

    sizes = ["batch_size=2000", "num_envs=2", "hidden=8", "min_episodes=1", "value_epochs=1", "epochs=1"]
    words = ["train", "--env", "PointGoal1", "--seeds", "1", "--steps", "4000", "--out", str(tmp_path / "run")]
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        main([*words, "--set", *sizes])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    source = Path(sys.modules["cppo"].__file__ or "").parent
    found = {Path(name).relative_to(source).as_posix() for name in ran if name.startswith(f"{source}/")}
    assert set(WALKED) <= found
    strange = {name for name in found - set(WALKED) if not name.startswith(tuple(LOOKED_UP))}
    asked = {"envs/probes.py", "runs/evaluation.py"}  # while they are imported
    assert strange <= asked
