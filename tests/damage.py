"""Runs and studies whose files are damaged: a bit flipped, or the end cut off. Also a program of its own:

python tests/damage.py FLIPS CUTS FOLDER [SEED]     prints the counts

The run needs no compiler (``faulty.Sums``). After each damage all that reads a run reads it, it is gone on with, and it
is repaired and gone on with. What comes out must be what it was, or an error that a person can use.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import faulty
import kept

from cppo.commands import cli, watch
from cppo.commands.cli import main
from cppo.errors import TrainingError, UsageError
from cppo.reports import folders
from cppo.runs import check, engine, member, training
from cppo.runs.metrics import read_metrics
from cppo.runs.plan import load_plan
from cppo.runs.run import Run, failure
from cppo.runs.sealed import read_json, write_sealed

KINDS = {"finished": 5, "stopped": 3}  # iterations of five


def prepare(base: Path) -> None:
    """A finished run and one that was stopped, in a study."""
    for name, iterations in KINDS.items():
        how = {"settings": faulty.QUICK, "checkpoint_seconds": 0.0, "show": False, "tensorboard": False}
        with training.training("ppo_lag", "ProbeBox", steps=500, out=base / "runs" / name, **how) as loop:
            for step in loop:
                if step.number == iterations < 5:
                    break
    entry = {"env": "ProbeBox", "algo": "ppo_lag", "variant": "", "steps": 500}
    listed = [entry | {"id": name, "seed": seed} for seed, name in enumerate(KINDS)]
    write_sealed(base / folders.MANIFEST, {"format": 1, "name": "both", "title": "", "runs": listed})


def targets(base: Path) -> list[Path]:
    """Each file once, but rows, which are many, more often."""
    found = [path for path in sorted(base.rglob("*")) if path.is_file() and path.name != ".owner"]
    return [path.relative_to(base) for path in found for _ in range(4 if path.name == "metrics.jsonl" else 1)]


def harm(path: Path, rng: random.Random, cut: bool) -> str:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    if cut:
        path.write_bytes(data[:at])
        return f"cut at {at}"
    bit = rng.randrange(8)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {at}"


def attempt(action: Callable[[], Any]) -> tuple[str, Any]:
    """What came out, or that it was refused; any other exception is a defect."""
    try:
        return "read", action()
    except (UsageError, TrainingError) as error:
        assert "unforeseen" not in str(error) and "\n" not in str(error), error
        return "refused", str(error)


def readers(run: Path) -> dict[str, Callable[[], Any]]:
    study = run.parent.parent
    return {
        "plan": lambda: (load_plan(run).saved(), failure(run)),
        "metrics": lambda: read_metrics(run).fillna(-1.0).to_dict("records"),
        "summary": lambda: Run(run).summary if (run / "summary.json").exists() else None,
        "state": lambda: [leaf.tolist() for leaf in faulty.restored(run, None)[0]],
        "study": lambda: [[entry.which, entry.steps, entry.finished] for entry in folders.entries(study)[0]],
        "versions": lambda: read_json(run / "versions.json"),
        "watch": lambda: _timeless(watch.look(run) or {}),
    }


def _timeless(seen: dict[str, Any]) -> dict[str, Any]:
    return {**seen, "silent": 0, "state": "running" if seen.get("state") == "stopped" else seen.get("state")}


def go_on(run: Path) -> Any:
    training.resume(run, show=False, tensorboard=False, checkpoint_seconds=0.0)
    return faulty.content(run)


def tell(run: Path) -> bool:
    """Whether ``cppo check`` finds something wrong, by its exit status; it must end in lines, not in a traceback."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(["check", str(run)])
        except SystemExit as end:
            assert end.code == 1 and "unforeseen" not in said.getvalue(), said.getvalue()
            return True
    return False


def trial(base: Path, place: Path, file: Path, rng: random.Random, cut: bool, wanted: dict[str, Any]) -> Counter[str]:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(base, place)
    names = [file.parts[1]] if len(file.parts) > 1 else list(KINDS)
    what, counts = f"{file}: {harm(place / file, rng, cut)}", Counter({"damages": 1})
    for name in names:
        run, refused = place / "runs" / name, 0
        for reader, read in readers(run).items():
            how, found = attempt(read)
            shown = found == wanted[f"{name} {reader}"] or (reader == "watch" and found["state"] == "damaged")
            assert how == "refused" or shown, f"{what}: {reader} gives {found}"
            refused += how == "refused"
        if len(file.parts) == 1:
            counts["noticed by who reads"] += bool(refused)
            continue
        told = tell(run)
        how, found = attempt(lambda run=run: go_on(Path(shutil.copytree(run, place / "again"))))
        assert how == "refused" or found == wanted["end"], f"{what}: went on to something else"
        counts |= {"noticed by who reads": bool(refused), "found by check": told, "refused to go on": how == "refused"}
        if told:
            counts[f"{mended(run, wanted['end'], what)} by repair"] += 1
        elif how == "refused":
            raise AssertionError(f"{what}: check finds nothing, but: {found}")
        shutil.rmtree(place / "again", ignore_errors=True)
    return counts


def mended(run: Path, end: Any, what: str) -> str:
    """Repair loses no file, and what was repaired goes on to the end of an undisturbed run, but for lost rows."""
    before = {path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".owner"}
    how, said = attempt(lambda: check.repair(run))
    after = {path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert before <= after, f"{what}: {said}"
    if how == "refused":
        assert "cannot be repaired" in said, f"{what}: {said}"
        return "not mended"
    assert check.check(run).problems == [], f"{what}: {said}; then {check.check(run).problems}"
    how, found = attempt(lambda: go_on(run))
    if how == "refused":
        assert "no rows any more" in found and "0 sound rows" in " ".join(said), f"{what}: {said}; then {found}"
        return "mended but for all rows"
    lost = [row["iteration"] for row in end["rows"] if row not in found["rows"]]
    whole = {
        name: value for name, value in end.items() if name not in ("rows", "versions.json", *(["end"] if lost else []))
    }
    assert {name: found[name] for name in whole} == whole, f"{what}: {said}"
    assert [row for row in end["rows"] if row["iteration"] not in lost] == found["rows"], f"{what}: {said}"
    assert not lost or "lost for good" in " ".join(said), f"{what}: {said}"
    return "mended but for rows lost" if lost else "mended"


def rounds(base: Path, flips: int, cuts: int, seed: int = 0) -> dict[str, int]:
    base.mkdir(parents=True)
    prepare(base / "whole")
    wanted = {
        f"{name} {reader}": read() for name in KINDS for reader, read in readers(base / "whole" / "runs" / name).items()
    }
    wanted["end"] = faulty.content(base / "whole" / "runs" / "finished")
    rng, counts, files = random.Random(seed), Counter(), targets(base / "whole")
    with mock.patch.object(cli, "parse", kept.kept_command):  # the same words each time
        for number in range(flips + cuts):
            counts += trial(base / "whole", base / "harmed", rng.choice(files), rng, number >= flips, wanted)
    return dict(counts)


if __name__ == "__main__":
    engine.Group = faulty.Sums  # pyright: ignore[reportAttributeAccessIssue]
    member.versions = lambda: {"cppo": "as tested"}
    flips, cuts, folder, *seed = sys.argv[1:]
    print(json.dumps(rounds(Path(folder), int(flips), int(cuts), *map(int, seed))))
