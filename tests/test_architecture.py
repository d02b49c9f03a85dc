"""The house keeps its shape: arrows between rooms, sizes of files and functions, where AntCircle is named, the pages.

Sources are read, not imported. ``docs/architecture.md`` explains the rooms.
"""

import ast
import hashlib
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "cppo"
FILES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}
PAGES = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "docs").rglob("*.md"))}
ROOT_PAGES = {name: ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")}

# What the modules of a room may import; a room is a folder of src/cppo, or a file that lies beside the folders.
ROOMS = {
    "settings": set(),
    "maths": {"settings"},
    "networks": {"maths"},
    "envs": set(),
    "presets": {"envs"},
    "algos": {"maths", "networks", "settings"},
    "runs": {"algos", "envs", "presets", "maths", "networks", "settings"},
    "policies": {"runs", "algos", "envs", "maths", "networks", "settings"},
    "reports": {"policies", "runs", "algos", "envs", "settings"},
    "study": {"reports", "runs", "algos", "envs", "presets", "settings"},
    "commands": {"study", "reports", "policies", "runs", "algos", "envs", "presets", "settings"},
}
BELOW = {"errors", "types", "imports", "files"}  # open to every room
FRONT = {"__init__", "__main__"}  # they show what the rooms hold
READERS = ("policies", "reports")  # they read saved runs and start nothing
STARTERS = {"runs.engine", "runs.group", "runs.training", "study.execute"}
NAMES_ANT_CIRCLE = re.compile(
    r"envs/ant_circle/|envs/(\w+/)?registry\.py|presets\.py|study/builtin\.py|reports/published\.py"
)
MOST_LINES, MOST_FUNCTION_LINES, MOST_POSITIONAL = 350, 60, 7
MOST_WORDS = {"README.md": 900, "docs/results.md": 900}
MOST_WORDS_ELSEWHERE = 2000  # docs/history is exempt: it keeps what was measured


def room(module: str) -> str:
    """``runs`` for ``runs/engine.py`` or ``runs.engine``, ``types`` for ``types.py``."""
    return re.split(r"[/.]", module, maxsplit=1)[0]


def imported(name: str) -> set[str]:
    """What a file imports of cppo, anywhere in it, as dotted names without ``cppo.``."""
    package = ["cppo", *name.split("/")[:-1]]
    found = set()
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return {module.removeprefix("cppo.") for module in found if module.startswith("cppo.")}


def functions(name: str):
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def arrows() -> set[str]:
    """Imports that a module's room does not allow."""
    found = set()
    for name in FILES:
        here = room(name)
        allowed = ROOMS.keys() if here in FRONT else ROOMS.get(here, set())
        found |= {
            f"{name} imports {room(module)}"
            for module in imported(name)
            if room(module) not in BELOW | {here, *allowed}
        }
    return found


def starts() -> set[str]:
    """What reads saved runs, and reaches for what starts them."""
    readers = [name for name in FILES if room(name) in READERS]
    return {
        f"{name} imports {starter}"
        for name in readers
        for starter in STARTERS
        if any(f"{module}.".startswith(f"{starter}.") for module in imported(name))
    }


def long_files() -> set[str]:
    return {name for name, path in FILES.items() if len(path.read_text().splitlines()) > MOST_LINES}


def long_functions() -> set[str]:
    size = lambda node: node.end_lineno - node.lineno + 1  # noqa: E731
    return {f"{name}: {node.name}" for name in FILES for node in functions(name) if size(node) > MOST_FUNCTION_LINES}


def wide_functions() -> set[str]:
    """Functions with many parameters that may be given by position; ``self`` is none."""
    wide = set()
    for name in FILES:
        for node in functions(name):
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            if len(names) - (names[:1] in (["self"], ["cls"])) > MOST_POSITIONAL:
                wide.add(f"{name}: {node.name}")
    return wide


def untyped() -> set[str]:
    """Functions and methods whose signature leaves a type out; what stands inside another function may."""
    found = set()
    for name, tree in TREES.items():
        outer = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
        for node in (node for place in outer for node in place.body if isinstance(node, ast.FunctionDef)):
            own = node.args
            given = [*own.posonlyargs, *own.args, *own.kwonlyargs, *(a for a in (own.vararg, own.kwarg) if a)]
            bare = [a.arg for a in given if a.annotation is None and a.arg not in ("self", "cls")]
            if bare or (node.returns is None and node.name != "__init__"):
                found.add(f"{name}: {node.name}")
    return found


def named_elsewhere() -> set[str]:
    """Files that name AntCircle and are none of the few that may: a new MuJoCo task is one folder and one row."""
    naming = {name for name, path in FILES.items() if re.search("AntCircle|ant_circle", path.read_text())}
    return {name for name in naming if not NAMES_ANT_CIRCLE.match(name)}


RULES = (arrows, starts, long_files, long_functions, wide_functions, untyped, named_elsewhere)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_its_rules(rule):
    assert sorted(rule()) == []


def test_every_module_is_in_a_room_and_rooms_form_no_circle():
    assert {room(name) for name in FILES} <= ROOMS.keys() | BELOW | FRONT
    tuple(TopologicalSorter(ROOMS).static_order())


def test_the_page_shows_the_same_arrows():
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    shown = {name: set(re.findall(r"`(\w+)`", may)) for name, may in rows}
    assert shown == ROOMS | {name: set() for name in BELOW}


def prose(text: str) -> list[str]:
    """Lines of a page outside code, tables and generated parts, without the targets of links."""
    text = re.sub(r"<!-- (?:study|comparison|field):.*?<!-- end[^>]*-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "    "))]
    return [re.sub(r"\]\([^)]*\)", "]", line) for line in lines]


@pytest.mark.parametrize("name", [*ROOT_PAGES, *PAGES])
def test_pages_keep_to_their_length(name):
    text = (ROOT / name).read_text()
    assert [line for line in prose(text) if len(line) > 120] == []
    if not name.startswith("docs/history/"):
        words = sum(bool(re.search(r"\w", word)) for word in text.split())
        assert words <= MOST_WORDS.get(name, MOST_WORDS_ELSEWHERE)


def sentences(text: str) -> list[str]:
    """Of the prose, code and formulas counted as a word; an entry of a list begins one."""
    lines = ["" if re.match("[#!<]", line) else re.sub(r"^\s*([-*>]|\d+\.)\s+", "\n", line) for line in prose(text)]
    paragraphs = re.split(r"\n\s*\n", re.sub(r"`[^`]*`|\$[^$]*\$", "code", "\n".join(lines)))
    found = [part for paragraph in paragraphs for part in re.split(r"(?<=[.!?:])\s+(?=[\W\dA-Z])", paragraph)]
    return [sentence for sentence in found if len(sentence.split()) > 2]


@pytest.mark.parametrize("name", [*ROOT_PAGES, *PAGES])
def test_sentences_have_twenty_words_on_average(name):
    lengths = [len(sentence.split()) for sentence in sentences((ROOT / name).read_text())]
    assert sum(lengths) <= 20 * len(lengths)


@pytest.mark.parametrize("name", PAGES)
def test_pages_begin_with_what_a_reader_can_do_afterwards(name):
    title, _, rest = (ROOT / name).read_text().partition("\n\n")
    assert title.startswith("# ") and rest.startswith("After this page you can ")


def test_no_picture_is_kept_twice():
    pictures = [path for folder in ("docs", "results") for path in (ROOT / folder).rglob("*.png")]
    by_content: dict[str, list[str]] = {}
    for path in pictures:
        name = path.relative_to(ROOT).as_posix()
        by_content.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), []).append(name)
    assert [same for same in by_content.values() if len(same) > 1] == []
