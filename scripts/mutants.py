"""Do the tests bite? Each row of mutants.toml breaks one line of the code; its tests must fail on a copy that is so
broken.

    python scripts/mutants.py [--only NAME] [--jobs 2] [--list]

First the copy without a fault has to pass all named tests; then every mutant is reported as killed or SURVIVED. Exit
code 1 if one survives, or if its tests did not run at all.

A mutant's text is a part of one line and stands exactly once in ``src/``, in whichever file; ``tests/test_mutants.py``
holds the table to that, so that whoever changes such a line brings the row along.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("src", "tests", "conftest.py", "pyproject.toml")
PATIENCE = 600.0  # seconds after which a mutant's tests that do not end count as failed
PASSED, FAILED = 0, 1  # pytest's exit codes; any other means that the tests did not run


class Mutant(NamedTuple):
    name: str
    text: str
    replacement: str
    tests: tuple[str, ...]  # the first to fail kills it


def table() -> list[Mutant]:
    rows = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text())["mutant"]
    return [Mutant(row["name"], row["text"], row["replacement"], tuple(row["tests"])) for row in rows]


def site(row: Mutant, root: Path = ROOT) -> Path:
    """The one file whose text the mutant changes."""
    files = [path for path in sorted((root / "src").rglob("*.py")) for _ in range(path.read_text().count(row.text))]
    if len(files) != 1:
        raise SystemExit(f"{row.name}: its text stands {len(files)} times in src/, not once: {row.text!r}")
    return files[0]


def apply(row: Mutant, root: Path) -> None:
    path = site(row, root)
    path.write_text(path.read_text().replace(row.text, row.replacement))


def copy_tree(to: Path) -> Path:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, to / name)
    return to


def run_tests(root: Path, tests: Sequence[str], cache: Path, patience: float | None = None) -> tuple[int, str]:
    """pytest's exit code on ``root`` and what it said."""
    environment = {"JAX_COMPILATION_CACHE_DIR": str(cache)} | os.environ
    environment |= {"PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return FAILED, f"no end within {patience:g} s"
    return done.returncode, done.stdout + done.stderr


def verdict(row: Mutant, cache: Path) -> str:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = copy_tree(Path(folder))
        apply(row, root)
        code, said = run_tests(root, row.tests, cache, PATIENCE)
    found = {PASSED: "SURVIVED", FAILED: "killed"}.get(code, "DID NOT RUN")
    print(f"{found:12}{time.monotonic() - began:6.1f} s  {row.name}", flush=True)
    if found == "DID NOT RUN":
        print(said, flush=True)
    return found


def passes_unbroken(rows: Sequence[Mutant], jobs: int, cache: Path) -> bool:
    tests = sorted({test for row in rows for test in row.tests})
    shares = [share for share in (tests[job::jobs] for job in range(jobs)) if share]
    with tempfile.TemporaryDirectory(prefix="unbroken-") as folder, ThreadPoolExecutor(jobs) as pool:
        root = copy_tree(Path(folder))
        results = list(pool.map(lambda share: run_tests(root, share, cache), shares))
    for code, said in results:
        if code != PASSED:
            print(said)
    return all(code == PASSED for code, _ in results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these mutants alone")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--list", action="store_true", help="name them and what kills them")
    arguments = parser.parse_args()
    rows = table()
    unknown = set(arguments.only or ()) - {row.name for row in rows}
    if unknown:
        parser.error(f"no mutant is called {', '.join(sorted(unknown))}; --list names them.")
    rows = [row for row in rows if not arguments.only or row.name in arguments.only]
    for row in rows:
        site(row)
        if arguments.list:
            print(f"{row.name:46}{' '.join(row.tests)}")
    if arguments.list:
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-xla-") as cache:
        if not passes_unbroken(rows, arguments.jobs, Path(cache)):
            print("The code as it is does not pass these tests: mend that first.")
            return 1
        with ThreadPoolExecutor(arguments.jobs) as pool:
            found = list(pool.map(lambda row: verdict(row, Path(cache)), rows))
    print(f"{found.count('killed')} of {len(found)} mutants killed.")
    return 0 if set(found) == {"killed"} else 1


if __name__ == "__main__":
    sys.exit(main())
