"""Run folders as a stranger might send them: names that lead to his code, links and paths that lead out of the folder.

``folders`` makes one for every such thing from the small runs of ``tests/data/old``. Each lies in a folder of its own,
``CASE/given``, beside ``CASE/outside``, which belongs to the user and must stay as it is. All code leaves a mark in
``CASE/executed`` when it runs.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

OLD = Path(__file__).parent / "data" / "old"
RUNS = ("finished", "stopped", "replay")
STUDY_RUN = "runs/ProbeState-cpo-seed0-96c92f3ff2"
MARK = "import os\nos.makedirs({folder!r}, exist_ok=True)\nopen(os.path.join({folder!r}, __name__), 'w').close()\n"
# Names that cppo itself imports while it works, some late: in a stranger's folder they must not be found.
SHADOWS = (
    "gymnasium",
    "gym",
    "numpy",
    "json",
    "runpy",
    "imageio_ffmpeg",
    "onnx",
    "onnxruntime",
    "tensorboardX",
    "optuna",
)
REACHED = ("canary", *SHADOWS)

Change = Callable[[Path, Path], None]  # (the folder, what lies outside)


class Hostile(NamedTuple):
    name: str
    base: str  # of tests/data/old
    change: Change


def make(case: Hostile, place: Path) -> Path:
    """The folder of ``case`` in ``place``; returns it."""
    given, outside, executed = place / "given", place / "outside", place / "executed"
    shutil.copytree(OLD / case.base, given)
    shutil.copytree(OLD / "finished", outside / "run")
    (outside / "VICTIM").write_text('{"iteration": 1, "seed": 0}\n')
    mark = MARK.format(folder=str(executed))
    for module in REACHED:
        (given / f"{module}.py").write_text(mark)
    (given / "matplotlibrc").write_text("text.usetex: True\nbackend: module://canary\n")
    program = given / "program"
    program.write_text(f"#!/bin/sh\nmkdir -p {executed}; touch {executed}/program\n")
    program.chmod(0o755)
    case.change(given, outside)
    return given


def seen(place: Path) -> dict[str, str]:
    """Everything in ``place`` but for the given folder, to compare."""
    found = {}
    for folder, folders, names in os.walk(place):
        folders[:] = [name for name in folders if Path(folder, name) != place / "given"]
        for path in (Path(folder, name) for name in (*folders, *names)):
            what = os.readlink(path) if path.is_symlink() else "" if path.is_dir() else path.read_bytes().hex()
            found[str(path)] = what
    return found


def folders() -> Iterator[Hostile]:
    yield from names()
    yield from links()
    yield from escapes()


# --- names that lead to code ------------------------------------------------------------------------------------------


def names() -> Iterator[Hostile]:
    for base in (*RUNS, "gymnasium", f"study/{STUDY_RUN}"):
        for value in ("canary:ROW", "canary:a.b", "runpy:run_path", "os:system"):
            yield Hostile(f"algo {value} of {base}", base, config(algo=value))
            yield Hostile(f"encoder {value} of {base}", base, config(settings={"encoder": value}))
    for field in ("make", "cost"):
        for value in ("canary:World", "canary:World-v0", "canary.inner:World", "runpy:run_path"):
            yield Hostile(f"{field} {value}", "gymnasium", config(gymnasium={field: value}))
    for value in ("{given}/program", "./program", "program", "../given/program", "sh", "{given}/../given/program"):
        yield Hostile(f"python {value}", "gymnasium", config(gymnasium={"python": value}))
        known = {"python": value, "make": "CartPole-v1"}
        yield Hostile(
            f"python {value} for a known environment", "gymnasium", config(gymnasium=known, env="CartPole-v1")
        )
    # A library's own environment is no foreign code, and no module of the folder may stand in for the library.
    known = {"make": "CartPole-v1", "cost_keys": ["x"]}
    yield Hostile("shadowed library", "gymnasium", config(gymnasium=known, env="CartPole-v1"))
    for base in RUNS:
        for value in ("canary:World", "canary:World-v0", "CartPole-v1"):
            yield Hostile(f"env {value} of {base}, not said how", base, config(env=value))
    every = {"gymnasium": {"make": "canary:W", "cost": "canary:c", "python": "{given}/program"}, "algo": "canary:ROW"}
    yield Hostile("everything at once", "gymnasium", config(**every, env="canary:W", settings={"encoder": "canary:E"}))


def checkout(given: Path, outside: Path) -> None:
    """The folder as a repository of git's, which asks a program what has changed whenever it reads its index."""
    (given / "versions.json").write_text("{}")  # of an unknown commit, which a report must not put into a repository
    git = ["git", "-C", str(given)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "config.json"], check=True)
    subprocess.run([*git, "-c", "core.fsmonitor=true", "update-index", "--fsmonitor"], check=True, capture_output=True)
    subprocess.run([*git, "config", "core.fsmonitor", str(given / "program")], check=True)


def config(**changes: object) -> Change:
    """``config.json`` with other entries; dicts are changed entry by entry."""

    def change(given: Path, outside: Path) -> None:
        saved = json.loads((given / "config.json").read_text())
        for name, value in changes.items():
            saved[name] = saved.get(name, {}) | value if isinstance(value, dict) else value
        (given / "config.json").write_text(json.dumps(saved).replace("{given}", str(given)))

    return change


# --- links that lead out ----------------------------------------------------------------------------------------------

FILES = (
    *("config.json", "versions.json", "summary.json", "metrics.jsonl", "error.json", "metrics.csv", "measured.json"),
    *("curves.png", "curves-diagnostics.png", "policy.onnx", "policy.stablehlo", "policy-sampled.stablehlo"),
    *("policy.mlir", "video.gif", "results.json"),
)
DEEP = (
    *("checkpoints/best.safetensors", ".owner", ".metrics.safetensors", "repaired.json", "damaged-1/config.json"),
    *("checkpoints/checkpoint-00000005.safetensors", "checkpoints/checkpoint-00000007.safetensors"),
    *("report/index.html", "report/results.json", "report/curves.svg", "hub/README.md", "hub/config.json"),
    *("hub/model.safetensors", "checkpoints/replay-00000007-00000000.safetensors"),
)
FOLDERS = ("damaged-1", "again", "ppo_lag", "checkpoints", "tensorboard", "tensorboard/seed0", "report", "hub", "wandb")
TAKEN = ("config.json", "versions.json", "metrics.jsonl")  # a run that lacks them is none


def links() -> Iterator[Hostile]:
    for name in (*FILES, *DEEP):
        for base in ("finished", "stopped"):
            yield Hostile(f"{name}.partial of {base} to a file", base, link(f"{name}.partial", "VICTIM"))
        yield Hostile(f"{name}.partial to nothing", "stopped", link(f"{name}.partial", "new"))
        if name not in TAKEN:
            yield Hostile(f"{name} to a file", "finished", link(name, "VICTIM"))
            yield Hostile(f"{name} to nothing", "stopped", link(name, "new"))
    for name in FOLDERS:
        for base in ("finished", "stopped", "replay"):
            yield Hostile(f"{name} of {base} to a folder", base, link(name, "run"))
        yield Hostile(f"{name} to nothing", "stopped", link(name, "new"))
    yield Hostile("metrics.jsonl to a run's", "stopped", link("metrics.jsonl", "run/metrics.jsonl"))
    yield Hostile("metrics.jsonl hard-linked", "stopped", hard_link)
    for name in ("runs", STUDY_RUN, "report", "study.json.partial", "runs/.ProbeState-cpo-seed0-96c92f3ff2.lock"):
        yield Hostile(f"study's {name} to a folder", "study", link(name, "run"))
        yield Hostile(f"study's {name} to nothing", "study", link(name, "new"))


def link(name: str, target: str) -> Change:
    def change(given: Path, outside: Path) -> None:
        path = given / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(outside / target)

    return change


def hard_link(given: Path, outside: Path) -> None:
    shutil.copyfile(given / "metrics.jsonl", outside / "metrics.jsonl")
    (given / "metrics.jsonl").unlink()
    os.link(outside / "metrics.jsonl", given / "metrics.jsonl")


# --- paths that lead out ----------------------------------------------------------------------------------------------


def escapes() -> Iterator[Hostile]:
    for name in ("../../outside/run", "{outside}/run", "..", "../runs", ".", "a/../../../outside/run"):
        yield Hostile(f"study id {name}", "study", manifest(id=name))
    for name in ("../../../outside/new", "/../../outside/new", "{outside}/new", "a\\..\\b"):
        for field in ("env", "algo", "variant"):
            yield Hostile(f"study {field} {name}", "study", manifest(**{field: name}))
        yield Hostile(f"env {name}", "finished", config(env=name))
        yield Hostile(f"seed {name}", "stopped", config(seeds=[name, 1]))
    yield Hostile("segment names", "replay", segments)


def manifest(**changes: str) -> Change:
    def change(given: Path, outside: Path) -> None:
        content = json.loads((given / "study.json").read_text())
        content["runs"] = [entry | changes for entry in content["runs"]]
        (given / "study.json").write_text(json.dumps(content).replace("{outside}", str(outside)))

    return change


def segments(given: Path, outside: Path) -> None:
    """A checkpoint, sound by its checksum, whose replay is a file elsewhere."""
    from cppo.runs import checkpoint

    shutil.copytree(given / "checkpoints", outside / "checkpoints")
    for path in checkpoint.by_iteration(given / "checkpoints"):
        arrays, meta = checkpoint.load(path)
        meta["replay"] = [part | {"file": f"../../outside/checkpoints/{part['file']}"} for part in meta["replay"]]
        path.write_bytes(checkpoint.encode(arrays, meta.pop("iteration"), meta)[0])
