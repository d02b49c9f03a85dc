"""The table of mutants fits the code: each breaks one line that exists, and names tests that exist."""

import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
assert _spec is not None and _spec.loader is not None
mutants = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(mutants)
TABLE = mutants.table()


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_mutant_breaks_one_line_and_names_its_tests(row):
    path = mutants.site(row)
    broken = path.read_text().replace(row.text, row.replacement)
    assert "\n" not in row.text and ast.dump(ast.parse(broken)) != ast.dump(ast.parse(path.read_text()))
    assert row.tests
    for test in row.tests:
        file, name = test.split("::")
        assert f"def {name.split('[')[0]}(" in (ROOT / file).read_text(), test


def test_names_are_unique():
    assert len({row.name for row in TABLE}) == len(TABLE)
