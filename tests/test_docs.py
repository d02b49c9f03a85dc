"""README and docs: every Python block runs, every command is understood, every link leads somewhere, the site builds.

A block that cannot run alone says so, and why, in a comment just above it: ``<!-- not run alone: … -->``. It is
reported as skipped with that reason. The pages that build on each other's files are followed in ``test_new_user.py``.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from cppo import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON_BLOCK = re.compile(r"(?:<!-- not run alone: (?P<reason>[^>]*) -->\n)?```python\n(?P<code>.*?)```", re.DOTALL)


@pytest.fixture
def quick_compilation():
    """Compiling takes longer than running."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


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
    named = {line.split()[1] for body in _fenced(PAGES[0]) for line in body.splitlines() if line.startswith("cppo ")}
    assert named == set(cli.COMMANDS)


def test_every_page_is_in_the_readme():
    text = PAGES[0].read_text()
    assert [page.name for page in PAGES[1:] if f"](docs/{page.name})" not in text] == []


def test_links_and_pictures_exist():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} names {target}, which is missing"


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


def test_an_algorithm_of_ones_own_by_import_path(tmp_path, monkeypatch, quick_compilation):
    """The page's complete example, saved as it says, trains and is loaded again through the name given."""
    page = (ROOT / "docs" / "adding-an-algorithm.md").read_text()
    (tmp_path / "p3o.py").write_text(PYTHON_BLOCK.search(page)["code"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import cppo

    small = {"hidden": (8,), "value_epochs": 2, "value_minibatches": 2, "policy_rate": 2e-3, "price": 2.0}
    run = cppo.train("p3o:P3O", "ProbeBox", steps=12_000, seeds=2, settings=small, show=False, tensorboard=False)
    assert run.folder.name == "ProbeBox-p3o-P3O-1"
    again = cppo.load(run.folder)
    assert again.plan.settings.price == 2.0
    assert again.policy(seed=1).act([[0.0]]).shape == (1, 1)
    late = again.metrics().query("steps > 8000")["cost"].mean()
    assert late == pytest.approx(3.0, abs=0.4), "the best policy earns and costs 3 an episode; untrained ones 5"
    with pytest.raises(cppo.UsageError, match="is a type; it must be"):
        cppo.train("p3o:P3OSettings", "ProbeBox")
