"""The way of a new user: an empty directory, a built wheel, then the pages' commands word for word.

The new environment borrows the packages that are installed here, so that pip has only the wheel to install;
``CPPO_FULL_INSTALL=1`` makes it fetch everything. Steps are fewer than on the pages, by the number that the pages offer
to those in a hurry; other commands that would take longer are listed in ``SHORTER``, with what is added to each.
"""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICK = "--steps 20000"
SHORTER = {
    "cppo compare --env PointCircle --algos cppo,cpo,ppo_lag": f"{QUICK} --seeds 1",
    "cppo study paper --stop-after 25m": "--only PointCircle --algos cppo --seeds 1 --steps 5000",
    "cppo tune --env PointCircle --set-space kl=0.005:0.05:log": "--trials 2 --seeds 1 --steps 5000",
    "cppo train --env HalfCheetah-v5 --cost my_costs:speed --cost-limit 50": "--steps 2000 --seeds 1 "
    "--set batch_size=1000 num_envs=2",
    "cppo train --env PointCircle --seeds 4 --out runs/first": QUICK,
    "cppo train --env PointCircle --set recovery=false": f"{QUICK} --seeds 1",
    "cppo watch runs": "--once",
}
BORROW = f"""python - <<'EOF'
import pathlib, sysconfig
place = pathlib.Path(sysconfig.get_path("purelib")) / "borrowed.pth"
place.write_text({sysconfig.get_path("purelib")!r})
EOF
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, content) of the page's fenced blocks that are to be typed or run, in order."""
    found = re.findall(r"^```(sh|python)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [(language, body) for language, body in found]


def follow(script: str, folder: Path) -> str:
    """Run the lines in one shell that stops at the first failure; what they said."""
    keep = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    keep |= {"COLUMNS": "80", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{keep['PATH']}"}
    done = subprocess.run(["bash", "-ex"], input=script, cwd=folder, env=keep, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


def installed(lines: str, wheel: Path) -> str:
    """The tutorial's installation with the wheel for the checkout, from borrowed packages unless told otherwise."""
    assert "pip install /path/to/cppo\n" in lines
    borrow = "" if os.environ.get("CPPO_FULL_INSTALL") else BORROW
    return lines.replace("pip install /path/to/cppo\n", f"{borrow}pip install -q {shlex.quote(str(wheel))}\n")


def as_shell(language: str, body: str) -> str:
    return f"python - <<'EOF'\n{body}EOF\n" if language == "python" else body


@pytest.mark.slow
def test_the_tutorial_from_an_empty_directory(wheel, tmp_path):
    page = ROOT / "docs" / "tutorial.md"
    assert f"`{QUICK}`" in page.read_text()
    (_, install), *rest = blocks(page)
    script = installed(install, wheel) + "".join(as_shell(*block) for block in rest)
    said = follow(script.replace("--steps 200000", QUICK), tmp_path)
    assert str(tmp_path) in follow(". .venv/bin/activate\npython -c 'import cppo; print(cppo.__file__)'", tmp_path)
    for words in (
        "PointCircle",
        "Saved in runs/first",
        "although the update promised not to",
        "cost of three episodes",
    ):
        assert words in said
    assert re.search(r"Expected cost within the limit is (not )?certified", said)
    assert (tmp_path / "runs/first/curves-diagnostics.png").stat().st_size > 10_000


@pytest.mark.slow
def test_an_algorithm_of_ones_own_from_the_wheel(wheel, tmp_path):
    (_, code), (_, commands) = blocks(ROOT / "docs" / "adding-an-algorithm.md")
    (tmp_path / "soft.py").write_text(code)
    said = follow(installed(blocks(ROOT / "docs" / "tutorial.md")[0][1], wheel) + commands, tmp_path)
    assert "24,000" in said
    assert "soft:SOFT on ProbeBox: 50 episodes each" in said


@pytest.mark.slow
def test_the_readme_from_an_empty_directory(wheel, tmp_path):
    text = (ROOT / "README.md").read_text()
    assert f"`{QUICK}`" in text
    (cost,) = re.findall(r"`my_costs.py` in the working directory holds\s+`([^`]*)`", text)
    (tmp_path / "my_costs.py").write_text(cost)
    lines = [line for language, body in blocks(ROOT / "README.md") if language == "sh" for line in body.splitlines()]
    lines = [line.split("#")[0].strip() for line in lines if line.startswith("cppo ")]
    assert set(SHORTER) <= set(lines)
    typed = [f"{line} {SHORTER.get(line, '')}" for line in lines]
    extras = "pip install -q 'cppo[gymnasium,export,tune,video]'"  # one line for the four that the page names
    install = installed(blocks(ROOT / "docs" / "tutorial.md")[0][1], wheel)
    python = [as_shell(*block) for block in blocks(ROOT / "README.md") if block[0] == "python"]
    follow(install + "\n".join([extras, *typed, *python]), tmp_path)
    for file in ("runs/first/policy.onnx", "runs/first/curves.png", "runs/study-paper/report/index.html"):
        assert (tmp_path / file).is_file()
    assert list((tmp_path / "runs" / "first").glob("*.mp4"))
