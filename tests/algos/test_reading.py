"""Algorithms stay short to read, and apart from each other."""

import ast
from pathlib import Path

import pytest
from algos import reading

from cppo import algos

SOURCE = Path(algos.__file__).parents[1]
SHARED = {"on_policy", "off_policy"}


@pytest.mark.parametrize("name", list(algos.TABLE))
def test_one_update_takes_five_files_and_three_hundred_lines(name):
    read = reading.follow(name)
    assert {"runs/engine.py", "runs/group.py", "runs/learner.py"} < set(read.control)
    assert any(file.startswith("maths/") for file in read.mathematics)
    assert len(read.control) <= 5, read.control
    assert sum(read.control.values()) <= 300, read.control


def imported(path: Path) -> set[str]:
    """Modules that a file imports, as dotted names."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def test_no_algorithm_imports_another():
    files = [path for path in (SOURCE / "algos").glob("*.py") if path.stem != "__init__"]
    methods = {f"cppo.algos.{path.stem}" for path in files if path.stem not in SHARED}
    assert len(methods) >= 6
    for path in files:
        assert not imported(path) & methods, path.name


def test_mathematics_knows_no_algorithm():
    for path in (SOURCE / "maths").glob("*.py"):
        assert not any(name.startswith("cppo.algos") for name in imported(path)), path.name
