"""cppo opens no connection by itself: nothing in it can but what is named here, and it trains without a network."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEAKS = {"socket", "ssl", "http", "urllib", "ftplib", "smtplib", "requests", "httpx", "aiohttp", "websockets"}
SPEAKS |= {"asyncio", "huggingface_hub", "wandb", "ray", "xmlrpc", "telnetlib", "socketserver"}
ALLOWED = {
    "runs/lock.py": {"socket"},  # the machine's name
    "runs/signals.py": {"socket"},  # a pair within the process
    "runs/hub.py": {"huggingface_hub"},  # hf://
    "runs/loggers.py": {"wandb"},  # --logger wandb
    "study/distributed.py": {"ray"},  # --ray
}
OFFLINE = """
import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=1)
except OSError as error:
    assert error.errno == 101, error  # the network is unreachable: there is none
import sys
sys.path[:0] = sys.argv[1:2]
import cppo, faulty
from cppo.runs import engine, member
engine.Group = faulty.Sums
member.versions = lambda: {}
from pathlib import Path
faulty.again(Path(sys.argv[2]))
print(cppo.load(sys.argv[2]).summary["steps"])
"""


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_nothing_else_in_the_package_can_speak_to_a_network():
    found = {}
    for path in (ROOT / "src" / "cppo").rglob("*.py"):
        names = SPEAKS & set(imported(ast.parse(path.read_text())))
        if names:
            found[str(path.relative_to(ROOT / "src" / "cppo"))] = names
    assert found == ALLOWED


def test_it_trains_where_there_is_no_network(tmp_path):
    """In a network namespace of its own, which has nothing but a loopback that is down."""
    alone = ["unshare", "--net", "--map-root-user"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("a network namespace of one's own is not permitted here (unshare)")
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    command = [*alone, sys.executable, "-c", OFFLINE, str(ROOT / "tests"), str(tmp_path / "run")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "500"), done.stderr
