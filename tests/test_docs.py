"""README and docs: every Python block runs, every command is understood, every link leads somewhere, the site builds.

A block that cannot run alone says so, and why, in a comment just above it: ``<!-- not run alone: … -->``. It is
reported as skipped with that reason. The pages that build on each other's files are followed in ``test_new_user.py``.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cppo.commands import cli

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [
    README,
    *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PYTHON_BLOCK = re.compile(r"(?:<!-- not run alone: (?P<reason>[^>]*) -->\n)?```python\n(?P<code>.*?)```", re.DOTALL)


def blocks():
    for page in PAGES:
        for number, found in enumerate(PYTHON_BLOCK.finditer(page.read_text())):
            marks = pytest.mark.skip(reason=found["reason"]) if found["reason"] else ()
            yield pytest.param(found["code"], id=f"{page.name}-{number}", marks=marks)


def commands():
    """Each line ``cppo …`` of a shell block, without its comment."""
    for page in PAGES:
        lines = "\n".join(_fenced(page)).splitlines()
        for number, line in enumerate(line for line in lines if line.startswith("cppo ")):
            yield pytest.param(shlex.split(line, comments=True)[1:], id=f"{page.name}-{number}")


def _fenced(page):
    """Contents of the page's fenced blocks without a language, or with a shell's; fences are read in pairs."""
    for fence, body in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        if fence in ("", "sh", "console"):
            yield body


@pytest.mark.parametrize("block", blocks())
def test_code_blocks_run(block, tmp_path):
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", commands())
def test_commands_exist_with_these_options(words):
    assert type(cli.parse(words)) is cli.COMMANDS[words[0]]


def test_every_command_is_in_the_readme():
    named = {line.split()[1] for body in _fenced(README) for line in body.splitlines() if line.startswith("cppo ")}
    assert named == set(cli.COMMANDS)


def test_every_page_is_found_from_the_readme():
    """A page of docs/ is named there itself, one of docs/history/ in a page of docs/."""
    text = README.read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"](docs/{page.name})" not in text] == []
    named = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    assert [page.name for page in (ROOT / "docs/history").glob("*.md") if f"](history/{page.name})" not in named] == []


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links to them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_exist(page):
    for target in re.findall(r"\]\((?!http)([^)]+)\)", page.read_text()):
        place, _, heading = target.partition("#")
        found = page.parent / place if place else page
        assert found.exists(), f"{page.name} names {target}, which is missing"
        assert not heading or heading in anchors(found), f"{page.name} names {target}, which has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_exist(page):
    named = re.findall(r"`((?:src|tests|scripts|benchmarks|examples|docs|results)/[\w./-]*)", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_tests_that_pages_name_exist():
    """In a table ``test_levels.py::test_vases…`` begins the name of a test, ``::test_pillars…`` one of that file."""
    files = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    missing, seen = [], 0
    for page in PAGES:
        for cell in re.findall(r"^\|.*\| (.*) \|$", page.read_text(), re.MULTILINE):
            file = ""
            for module, name in re.findall(r"`(test_\w+\.py)?(?:::(test_\w+)…?)?`", cell):
                file, seen = module or file, seen + bool(module or name)
                if (module or name) and f"def {name}" not in files.get(file, ""):
                    missing.append(f"{file}::{name}")
    assert missing == [] and seen > 20


def test_the_site_builds_strictly_and_fetches_nothing(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.glob("*.html"))
    assert {"index.html", "tutorial.html", "api.html"} <= {page.name for page in pages}
    for page in pages:
        loaded = re.findall(r"""<(?:script|img|link)[^>]*?(?:src|href)="?(https?://[^">\s]+)""", page.read_text())
        assert not loaded, f"{page.name} loads {loaded}"
    assert "cppo.resume" in (tmp_path / "api.html").read_text()


def test_an_algorithm_of_ones_own_by_import_path(tmp_path, monkeypatch):
    """The page's complete example, saved as it says, trains and is loaded again through the name given."""
    page = (ROOT / "docs" / "adding-an-algorithm.md").read_text()
    (tmp_path / "soft.py").write_text(PYTHON_BLOCK.search(page)["code"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import cppo

    small = {"hidden": (8,), "value_epochs": 2, "value_minibatches": 2, "policy_rate": 2e-3, "price": 50.0}
    run = cppo.train("soft:SOFT", "ProbeBox", steps=12_000, seeds=2, settings=small, show=False, tensorboard=False)
    assert run.folder.name == "ProbeBox-soft-SOFT-1"
    again = cppo.load(run.folder)
    assert again.plan.settings.price == 50.0
    assert again.policy(seed=1).act([[0.0]]).shape == (1, 1)
    late = again.metrics().query("steps > 8000")["cost"].mean()
    assert late == pytest.approx(3.0, abs=0.4), "the best policy earns and costs 3 an episode; untrained ones 5"
    with pytest.raises(cppo.UsageError, match="is a type; it must be"):
        cppo.train("soft:SoftSettings", "ProbeBox")
