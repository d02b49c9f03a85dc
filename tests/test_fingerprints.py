"""Short runs of every kind end as they were recorded: a change of structure changes no result.

On the processor and the versions of the recording the comparison is bit for bit (a hash of every metrics row less its
times and what the task says of its episodes, and of the final parameters). Elsewhere compilers round otherwise: then
the first iterations must agree closely, or roughly where contacts amplify rounding. Record anew after a change that is
meant to change results, and say so in CHANGELOG.md:

    python tests/test_fingerprints.py
"""

import hashlib
import json
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

if __name__ == "__main__":  # the compiler's options of the tests, before anything compiles
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import conftest  # noqa: F401

import cppo

RECORD = Path(__file__).parent / "data" / "fingerprints.json"
METHODS = ["cppo", "ppo", "trpo", "ppo_lag", "trpo_lag", "ppo_pid", "trpo_pid", "cpo", "pcpo", "focops", "mpo", "cvpo"]
NEWER = ["p3o", "ctrpo", "cup", "cpo_shares"]  # an update of each kind
OFF_POLICY = ("mpo", "cvpo")
EACH_KIND = ["ppo_lag", "cpo", "cvpo"]  # the others share their collecting, critics and saving; CPPO is on PointCircle
TIMES = ("seconds", "check")  # the check of a line covers its time
MEASURES = "task."  # these columns came later; tests/envs/test_measures.py holds them
QUIET = {"show": False, "tensorboard": False, "seeds": 2, "checkpoint_seconds": 0.0}
SMALL = {"hidden": (16, 16), "value_epochs": 2, "value_minibatches": 2, "min_episodes": 1}
OFF = {"hidden": (16, 16), "value_steps": 4, "value_batch": 32, "replay_size": 2000, "states": 32, "actions": 8}
WORLDS = {"PointGoal1": 1000, "AntCircle": 500, "CarPush1": 1000}  # steps of an episode
CLOSE, ROUGH = 1e-3, 0.3  # of the first iteration elsewhere: contacts amplify rounding within an episode


def small(algo):
    return OFF if algo in OFF_POLICY else SMALL


def on(env, algo):
    def run(folder):
        batch, worlds = {"ProbeBox": (200, 20), "PointCircle": (400, 8)}[env]
        sizes = {"batch_size": batch, "num_envs": worlds}
        cppo.train(algo, env, steps=3 * batch, out=folder, settings=small(algo) | sizes, **QUIET)
        return [folder]

    return run


def on_threads(env):
    def run(folder):
        sizes = {"batch_size": 2 * WORLDS[env], "num_envs": 2, "value_minibatches": 4, "minibatches": 4, "epochs": 2}
        options = QUIET | {"seeds": 1}
        cppo.train("cppo", env, steps=3 * 2 * WORLDS[env], out=folder, settings=SMALL | sizes, **options)
        return [folder]

    return run


def resumed(folder):
    """Stopped after three of six iterations, then gone on with: what one never stopped leaves."""
    settings = SMALL | {"batch_size": 200, "num_envs": 20}
    cppo.train("cppo", "ProbeTwo", steps=600, out=folder, settings=settings, **QUIET)
    cppo.resume(folder, steps=1200, show=False, tensorboard=False)
    return [folder]


def lockstep(folder):
    """A study of two methods and two variants, all in one batch of worlds."""
    from cppo.commands import cli

    folder.mkdir()
    table = folder / "mine.toml"
    table.write_text(
        'envs = ["ProbeState"]\nalgos = ["ppo_lag", "cpo"]\nseeds = 2\nsteps = 600\n'
        "settings = { batch_size = 200, num_envs = 20, hidden = [16, 16], min_episodes = 1 }\n"
        "variants = { plain = {}, short = { gae_decay = 0.8 } }\n"
    )
    cli.main(["study", str(table), "--out", str(folder / "study"), "--lockstep"])
    return sorted((folder / "study" / "runs").iterdir())


def gymnasium(folder):
    sizes = {"batch_size": 40, "num_envs": 4, "min_episodes": 1, "epochs": 1}
    env = cppo.envs.from_gymnasium("sample_envs:LineSample-v0", workers=2)
    cppo.train("cppo", env, steps=120, out=folder, cost_limit=5.0, settings=SMALL | sizes, **QUIET)
    return [folder]


QUICK = {
    **{f"{algo} on ProbeBox": on("ProbeBox", algo) for algo in EACH_KIND},
    "cppo on PointCircle": on("PointCircle", "cppo"),
    "cppo on PointGoal1": on_threads("PointGoal1"),
    "resumed": resumed,
    "lockstep": lockstep,
}
LONG = {
    **{f"{algo} on ProbeBox": on("ProbeBox", algo) for algo in [*METHODS, *NEWER] if algo not in EACH_KIND},
    **{f"{algo} on PointCircle": on("PointCircle", algo) for algo in METHODS[1:]},
    "cppo on AntCircle": on_threads("AntCircle"),
    "cppo on CarPush1": on_threads("CarPush1"),
    "gymnasium": gymnasium,
}
CASES = QUICK | LONG


def machine():
    """What may change how a compiler rounds."""
    flags = ""
    if Path("/proc/cpuinfo").is_file():
        flags = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    about = [platform.machine(), flags, cores, os.environ.get("XLA_FLAGS", ""), platform.python_version_tuple()[:2]]
    about += [version(name) for name in ("jax", "jaxlib", "numpy", "mujoco", "equinox", "optax")]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


def rows_of(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = lambda name: name not in TIMES and not name.startswith(MEASURES)  # noqa: E731
    return [{name: value for name, value in row.items() if kept(name)} for row in rows]


def fingerprint(run):
    rows = rows_of(run)
    newest = max((run / "checkpoints").glob("checkpoint-*.safetensors"))
    arrays = safetensors.numpy.load(newest.read_bytes())
    agent = {name: array for name, array in sorted(arrays.items()) if name.startswith("agent.")}
    content = hashlib.sha256()
    for name, array in agent.items():
        content.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    policy = [array.astype(float) for name, array in agent.items() if name.startswith("agent.policy")]
    return {
        "rows": hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest(),
        "agent": content.hexdigest(),
        "count": len(rows),
        "columns": sorted(rows[0]),
        "first": {
            name: rows[0][name] for name in ("return", "cost", "episodes") if isinstance(rows[0].get(name), float)
        },
        "policy": float(np.sqrt(sum(np.sum(array**2) for array in policy))),
    }


def taken(name, folder):
    return {run.name if name == "lockstep" else "run": fingerprint(run) for run in CASES[name](folder / "run")}


@pytest.mark.optimised
@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)])
def test_ends_as_recorded(name, tmp_path):
    record = json.loads(RECORD.read_text())
    found, expected = taken(name, tmp_path), record["runs"][name]
    assert sorted(found) == sorted(expected)
    for run, wanted in expected.items():
        assert (found[run]["count"], found[run]["columns"]) == (wanted["count"], wanted["columns"])
        if record["machine"] == machine():
            assert (found[run]["rows"], found[run]["agent"]) == (wanted["rows"], wanted["agent"])
        amplified = any(name.endswith(f" on {world}") for world in WORLDS)
        assert found[run]["first"] == pytest.approx(wanted["first"], rel=ROUGH if amplified else CLOSE)
        assert found[run]["policy"] == pytest.approx(wanted["policy"], rel=0.05)


if __name__ == "__main__":
    import jax

    jax.config.update("jax_disable_most_optimizations", False)
    asked = sys.argv[1:]
    kept = json.loads(RECORD.read_text())["runs"] if asked else {}
    for case in asked or CASES:
        with tempfile.TemporaryDirectory() as place:
            kept[case] = taken(case, Path(place))
        print(case, flush=True)
    RECORD.write_text(json.dumps({"machine": machine(), "runs": kept}, indent=1, sort_keys=True) + "\n")
