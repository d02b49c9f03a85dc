"""Update times and paths of recovery updates, measured on a small study's saved runs."""

import json

import numpy as np
import pytest

from cppo.reports import figures, measure, report, tables
from cppo.reports import records as results
from cppo.reports.seeds import KL_TO_VARIANCE
from cppo.reports.summaries import path_summaries, summaries
from cppo.runs.checkpoint import checkpoints_of
from cppo.runs.learner import learner_for
from cppo.runs.plan import make_plan
from cppo.runs.saving import Saver
from cppo.runs.sealed import write_json
from cppo.study import execute
from cppo.study.definition import Part, Study
from cppo.types import UsageError

SMALL = {"hidden": (8,), "epochs": 4, "value_epochs": 1, "exact": False}  # quick to compile


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    part = Part(envs=["ProbeBox"], algos=["cppo"], seeds=1, steps=4_000, settings=SMALL)
    execute.execute(Study("small", [part]), folder, execute.StudyOptions(show=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "WAYPOINTS", (2,))
        patch.setattr(measure, "BETAS", (0.0, 1.0))
        measure.write(folder)
    return folder


def test_paths_lie_in_the_plane_of_the_advantages(folder):
    found = json.loads((folder / results.MEASURED).read_text())
    (seed,) = found["paths"]
    assert seed["cost"] > seed["limit"] and seed["budget"] < 0
    assert [way["beta"] for way in seed["ways"]] == [0.0, 1.0]
    angle = seed["theta_reward"]
    for way in seed["ways"]:
        x, y = np.array(way["x"]), np.array(way["y"])
        assert len(x) == 5 and abs(x[0]) < 1e-6 and abs(y[0]) < 1e-6
        assert way["kl"][0] == 0.0 and way["kl"][-1] <= 0.02
        # Cost and reward change are the projections on A_c and on A, each in its own unit.
        np.testing.assert_allclose(way["cost_change"], x * seed["needed"] / seed["budget"], rtol=1e-3, atol=1e-5)
        along = x * np.cos(angle) + y * np.sin(angle)
        unit = np.array(way["reward_change"]) @ along / (along @ along)
        np.testing.assert_allclose(way["reward_change"], unit * along, rtol=1e-2, atol=1e-4)
    assert seed["ways"][0]["cost_change"][-1] < 0  # β = 0 descends in cost alone
    x, y = seed["target"]
    assert np.hypot(x, y) <= seed["radius"] * (1 + 1e-3)
    assert x <= seed["budget"] + 1e-4


def test_update_times_and_paths_reach_tables_figures_and_page(folder, tmp_path):
    record = results.load(folder)
    (row,) = summaries(record)
    assert 0 < row["update_seconds"] < 100
    assert 0.02 <= row["updates"]["target_kl"] <= 0.02 / KL_TO_VARIANCE
    text = tables.render(record)
    assert "ms |" in text and "paths of recovery updates" in text
    assert "|  | steps to limit | to 90% |" in text and "| β | targets | arrive |" in text
    assert "paths-ProbeBox.png" in {path.name for path in figures.write(record, tmp_path)}
    assert '"pathRows":[{' in report.render(record, [])


def test_each_seed_of_a_run_is_measured_by_itself(tmp_path, monkeypatch):
    plan = make_plan("cppo", "ProbeBox", seeds=2, seed=3, steps=400, settings=SMALL)
    start = learner_for([plan], plan.build_env(plan.settings.num_envs)).start()[0]
    plan.save(tmp_path, {})
    Saver(checkpoints_of(tmp_path)).save(1, start, {})
    write_json(tmp_path / "summary.json", {"steps": 10_000, "seeds": [{"seed": 3}, {"seed": 4}]})

    def lane_of(place):
        _, state, lane = measure._opened(place)
        return {"key": measure._lane(state.key, lane).tolist()}

    monkeypatch.setattr(measure, "_recovery", lane_of)
    monkeypatch.setattr(measure, "update_times", lambda groups: list(groups.values()))
    monkeypatch.setattr(measure, "write_json", lambda path, content: found.update(content))
    found = {}
    measure.write(tmp_path)
    assert found["update_times"] == [[(3, tmp_path), (4, tmp_path)]]
    assert [(seen["seed"], seen["key"]) for seen in found["paths"]] == [
        (3, start.key[0].tolist()),
        (4, start.key[1].tolist()),
    ]


def test_without_runs_there_is_nothing_to_measure(tmp_path):
    with pytest.raises(UsageError, match="no finished run to measure"):
        measure.write(tmp_path)


def test_a_path_arrives_with_the_first_epoch_within_the_limit():
    ways = [
        {"beta": 0.3, "waypoints": 1, "cost_change": [0, -1, -2, -3], "reward_change": [0, -4, -5, -6], "kl": [0.01]},
        {"beta": 1.0, "waypoints": 1, "cost_change": [0, -1, -1, -1], "reward_change": [0, 0, 0, 1], "kl": [0.02]},
    ]
    record = {"measured": {"paths": [{"env": "E", "needed": -2.0, "ways": ways}]}}
    first, second = path_summaries(record)
    assert (first["arrived"], first["epochs"], first["reward_then"], first["cost_share"]) == (1, 2.0, -5.0, 1.5)
    assert (second["arrived"], second["epochs"], second["cost_share"], second["reward"]) == (0, None, 0.5, 1.0)
