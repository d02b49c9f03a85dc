"""Run folders that an earlier version wrote still load, go on, plot and report (``tests/data/old``)."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import cppo
from cppo.commands.cli import main

OLD = Path(__file__).parents[1] / "data" / "old"
RUNS = {  # folder: iterations that it holds, and that its plan wants
    "finished": (4, 4),
    "stopped": (3, 6),
    "gymnasium": (2, 2),
    "replay": (4, 6),
    "study/runs/ProbeState-cpo-seed0-96c92f3ff2": (3, 3),
}
BATCH = 40


@pytest.fixture
def old(tmp_path):
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def lines(folder):
    return (folder / "metrics.jsonl").read_text().splitlines()


@pytest.mark.parametrize("name", RUNS)
def test_an_old_run_loads_and_goes_on(old, name):
    held, wanted = RUNS[name]
    run = cppo.load(old / name, trust=True)  # one names an environment of the tests'
    assert run.iteration() == held and run.plan.iterations == wanted
    assert run.plan.settings.hidden == (4, 4)
    spec = run.policy().spec
    assert np.all(np.isfinite(run.act(np.ones(spec.obs_shape), deterministic=False, seed=1)))
    before = lines(run.folder)
    how = {"trust": True, "show": False, "tensorboard": False}
    longer = cppo.resume(run.folder, steps=(wanted + 2) * BATCH, **how)
    assert lines(run.folder)[: len(before)] == before  # with their times: nothing was computed anew
    assert len(lines(run.folder)) == (wanted + 2) * len(longer.plan.seeds)
    assert longer.summary["steps"] == (wanted + 2) * BATCH and longer.iteration() == wanted + 2


@pytest.mark.parametrize("name", RUNS)
def test_an_old_run_is_plotted_and_reported(old, name, capsys):
    main(["plot", str(old / name), "--out", str(old / "curves.png")])
    assert (old / "curves.png").stat().st_size > 10_000
    if (old / name / "summary.json").is_file():
        main(["report", str(old / name), "--out", str(old / "page"), "--episodes", "0"])
        assert "html" in (old / "page" / "index.html").read_text()[:200]
    capsys.readouterr()


def test_an_old_study_is_reported_and_goes_on(old, capsys):
    main(["report", str(old / "study"), "--out", str(old / "page"), "--episodes", "0"])
    assert "ppo_lag" in (old / "page" / "index.html").read_text()
    table = old / "old.toml"
    table.write_text(
        'envs = ["ProbeState"]\nalgos = ["ppo_lag", "cpo"]\nseeds = 1\nsteps = 200\n'
        "settings = { batch_size = 40, num_envs = 4, hidden = [4, 4], min_episodes = 1 }\n"
    )
    before = {path: path.read_text() for path in old.glob("study/runs/*/metrics.jsonl")}
    main(["study", str(table), "--out", str(old / "study")])
    assert "2 of 2 runs finished" in capsys.readouterr().out
    assert len(before) == 2
    for path, content in before.items():
        assert path.read_text().startswith(content) and len(lines(path.parent)) == 5
    steps = [json.loads((path.parent / "summary.json").read_text())["steps"] for path in before]
    assert steps == [200, 200]
