"""Tables of studies in the docs are those of the records beside them."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
specification = importlib.util.spec_from_file_location("study_page", ROOT / "scripts" / "study_page.py")
assert specification and specification.loader
study_page = importlib.util.module_from_spec(specification)
specification.loader.exec_module(study_page)


def test_pages_agree_with_the_records_that_are_there():
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text()
        for folder in re.findall(r"<!-- study: (\S+) -->", text):
            known = (ROOT / folder / "results.json").is_file()
            assert study_page.filled(text, folder, study_page.content(ROOT / folder) if known else "") == text


def test_the_tables_of_a_record_come_between_the_marks():
    text = study_page.content(ROOT / "results" / "point_circle")
    assert "### PointCircle, 200,000 steps" in text and not re.search("^## ", text, re.MULTILINE)
    marks = "a\n<!-- study: x -->\nold\n<!-- end of study -->\nb\n"
    assert study_page.filled(marks, "x", "new\n") == marks.replace("old", "new")
    assert study_page.filled(marks, "y", "new\n") == marks
