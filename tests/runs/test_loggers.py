"""Metrics elsewhere, and the overview of many runs."""

import json
import os
import sys
import time
import types

import pandas as pd
import pytest

import cppo
from cppo.commands import watch
from cppo.commands.cli import main
from cppo.types import UsageError

OPTIONS = dict(algo="ppo", env="ProbeBox", seeds=2, show=False, tensorboard=False)


def test_csv_has_the_rows_of_the_record(tmp_path):
    run = cppo.train(**OPTIONS, steps=800, out=tmp_path / "run", loggers=["csv"])
    cppo.resume(run.folder, steps=1600, loggers=["csv"], show=False, tensorboard=False)
    ours, record = pd.read_csv(run.folder / "metrics.csv"), run.metrics()
    assert list(ours) == list(record)
    assert len(ours) == 8
    pd.testing.assert_frame_equal(ours, record, check_dtype=False)


def test_wandb_gets_a_run_for_each_seed(tmp_path, monkeypatch):
    """With a stand-in that remembers."""
    made = []

    class WandbRun:
        def __init__(self, **options):
            self.options, self.logged, self.finished = options, [], False
            made.append(self)

        def log(self, values, step):
            self.logged.append((step, values))

        def finish(self):
            self.finished = True

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=lambda **options: WandbRun(**options)))
    cppo.train(**OPTIONS, steps=800, out=tmp_path / "run", loggers=["wandb"])
    assert [run.options["id"] for run in made] == ["run-seed0", "run-seed1"]
    assert made[1].options["config"]["seed"] == 1
    assert [step for step, _ in made[0].logged] == [400, 800]
    assert {"return", "cost", "kl"} <= set(made[0].logged[0][1])
    assert all(run.finished for run in made)


def test_wandb_missing_and_unknown_loggers(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="Loggers: csv, wandb"):
        cppo.train(**OPTIONS, steps=400, out=tmp_path / "run", loggers=["tensor"])
    assert not (tmp_path / "run").exists()
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r"cppo\[wandb\]"):
        cppo.train(**OPTIONS, steps=400, out=tmp_path / "run", loggers=["wandb"])


def test_a_callback_sees_every_row(tmp_path):
    seen = []
    cppo.train(**OPTIONS, steps=800, out=tmp_path / "run", callback=seen.append)
    assert [[row["seed"] for row in rows] for rows in seen] == [[0, 1], [0, 1]]


def fake_run(folder, steps, done, costs, age=0.0):
    folder.mkdir(parents=True)
    config = {"algo": "ppo", "env": "Somewhere", "steps": steps, "cost_limits": dict.fromkeys(costs[0], 5.0)}
    (folder / "config.json").write_text(json.dumps(config))
    lines = []
    for seed, cost in enumerate(costs):
        names = {"cost": cost["cost"]} if len(cost) == 1 else {f"cost.{name}": value for name, value in cost.items()}
        lines.append({"iteration": 3, "steps": done, "seed": seed, "return": 1.5 + seed, **names})
    text = "".join(json.dumps(line) + "\n" for line in [{"iteration": 2, "steps": 1, "seed": 0}, *lines])
    (folder / "metrics.jsonl").write_text(text + '{"iteration": 4, "ste')  # being written
    os.utime(folder / "metrics.jsonl", (time.time() - age,) * 2)


def test_watch_shows_what_the_files_say(tmp_path, capsys):
    fake_run(tmp_path / "a" / "run", 1000, 500, [{"cost": 4.0}, {"cost": 5.0}])
    fake_run(tmp_path / "old", 1000, 300, [{"cost": 9.0}], age=999)
    fake_run(tmp_path / "whole", 1000, 1000, [{"left": 1.0, "right": None}], age=999)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    seen = {path.name: watch.look(path) for path in watch.find(tmp_path)}
    assert {name: run["state"] for name, run in seen.items()} == {
        "run": "running",
        "old": "stopped",
        "whole": "finished",
    }
    assert (seen["run"]["share"], seen["run"]["return"], seen["run"]["costs"]) == (0.5, 2.0, {"cost": (4.5, 5.0)})
    assert seen["whole"]["costs"] == {"left": (1.0, 5.0), "right": (None, 5.0)}
    main(["watch", str(tmp_path), "--once"])
    said = capsys.readouterr().out
    assert "4.50/5" in said
    assert "stopped" in said
    with pytest.raises(SystemExit):
        main(["watch", str(tmp_path / "nothing"), "--once"])
