"""A study goes on where it was, repeats nothing, and survives the failure of single runs."""

import json

import jax.numpy as jnp
import pytest
import worlds

from cppo.envs.probes import ProbeBox
from cppo.runs.options import seconds_of
from cppo.study import builtin, execute
from cppo.study.definition import Part, Study, read
from cppo.study.execute import StudyOptions
from cppo.types import UsageError

QUICK = {"epochs": 2, "value_epochs": 2, "batch_size": 100, "num_envs": 10}
QUIET = {"show": False, "checkpoint_seconds": 0.0}


def rows(folder):
    found = {}
    for path in sorted((folder / "runs").glob("*/metrics.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found[path.parent.name] = [{k: v for k, v in line.items() if k not in ("seconds", "check")} for line in lines]
    return found


def study(**changes):
    part = dict(envs=["ProbeBox"], algos=["ppo_lag"], seeds=2, steps=600, settings=QUICK)
    return Study("small", [Part(**(part | changes))])


def test_a_stopped_study_goes_on_and_repeats_nothing(tmp_path):
    whole = execute.execute(study(), tmp_path / "whole", StudyOptions(**QUIET))
    assert (len(whole.finished), len(whole.unfinished), len(whole.failed)) == (2, 0, 0)
    assert execute.execute(study(), tmp_path / "parts", StudyOptions(stop_after=0.0, **QUIET)).finished == []
    execute.execute(study(steps=200), tmp_path / "parts", StudyOptions(**QUIET))  # fewer steps first
    done = execute.execute(study(), tmp_path / "parts", StudyOptions(**QUIET))
    assert len(done.finished) == 2
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")
    files = [path for path in (tmp_path / "parts" / "runs").rglob("*") if path.is_file()]
    before = {path: path.stat().st_mtime_ns for path in files}
    execute.execute(study(), tmp_path / "parts", StudyOptions(**QUIET))
    assert {path: path.stat().st_mtime_ns for path in files} == before


class Fragile(ProbeBox):
    """Costs are NaN for large first actions, which a policy with a large deviation takes."""

    def step(self, state, action, key):
        state, seen = super().step(state, action, key)
        return state, seen._replace(cost=jnp.where(action[0] > 0.9999, jnp.nan, seen.cost))


def test_a_failing_run_does_not_stop_the_others(tmp_path, monkeypatch):
    worlds.offer(monkeypatch, "Fragile", Fragile())
    variants = {"wild": {"initial_std": 9.0}, "calm": {"initial_std": 0.02}}
    parts = [
        Part(envs=["Fragile"], algos=["ppo_lag"], seeds=1, steps=300, settings=QUICK, variants=variants),
        Part(envs=["ProbeTwo"], algos=["cpo"], seeds=1, steps=300, settings={"nonsense": 1}),
    ]
    done = execute.execute(Study("mixed", parts), tmp_path, StudyOptions(**QUIET))
    assert [run.variant for run in done.finished] == ["calm"]
    problems = {run.variant or run.env: problem for run, problem in done.failed}
    assert "NaN or infinite" in problems["wild"]
    assert "unknown setting 'nonsense'" in problems["ProbeTwo"]
    tried = [*done.finished, done.failed[-1][0]]
    assert list(execute.pending(tried, tmp_path, StudyOptions())) == []  # not tried again


def test_variants_with_equal_settings_are_one_run(tmp_path):
    runs = study(variants={"": {}, "same": {"kl": 0.01}, "other": {"kl": 0.02}}).runs()
    assert len({run.id for run in runs}) == 4
    assert {run.id for run in study(steps=5000).runs()} <= {run.id for run in runs}
    groups = list(execute.pending(runs, tmp_path, StudyOptions()))
    assert [len(group) for group in groups] == [4]  # numbers are lanes of one program
    assert [len(group) for group in execute.pending(runs, tmp_path, StudyOptions(lanes=3))] == [3, 1]
    many = study(seeds=6).runs()
    assert [len(group) for group in execute.pending(many, tmp_path, StudyOptions())] == [4, 2]  # few fit a CPU's caches
    assert [len(group) for group in execute.pending(many, tmp_path, StudyOptions(lanes=6))] == [6]


def test_algorithms_share_worlds_where_asked(tmp_path):
    runs = study(envs=["PointGoal1"], algos=["ppo", "ppo_lag"], settings={}).runs()
    assert [len(group) for group in execute.pending(runs, tmp_path, StudyOptions(lockstep=True))] == [4]
    assert [len(group) for group in execute.pending(runs, tmp_path, StudyOptions())] == [2, 2]


TOML = """
title = "Mine"
envs = ["ProbeBox"]
seeds = 3
[[part]]
algos = ["cppo"]
variants = { slow = { kl = 0.005 } }
[[part]]
algos = ["cpo", "ppo"]
steps = 800
"""


def test_a_study_in_a_file(tmp_path):
    (tmp_path / "mine.toml").write_text(TOML)
    found = builtin.get(str(tmp_path / "mine.toml"))
    assert (found.name, found.title, len(found.runs())) == ("mine", "Mine", 9)
    assert found.runs()[0].variant == "slow" and found.runs()[-1].steps == 800
    (tmp_path / "mine.py").write_text(
        "from cppo.study.definition import Part, Study\nSTUDY = Study('mine', [Part(envs=['ProbeBox'], seeds=2)])\n"
    )
    assert len(read(tmp_path / "mine.py").runs()) == 2
    assert len(found.cut(algos=["cpo"], seeds=1).runs()) == 1
    for text, message in (("envs = 3 4", "is no TOML"), ("colour = 1", "unknown entry 'colour'"), ("", "envs is miss")):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(UsageError, match=message):
            read(tmp_path / "bad.toml")
    with pytest.raises(UsageError, match="has no environment 'PointGoal1'"):
        found.cut(only=["PointGoal1"])


def test_built_in_studies_are_the_paper_s():
    paper = builtin.get("paper").runs()
    assert len(paper) == 6 * (4 + 6 * 3 + 4)
    assert {run.plan.steps for run in paper if run.env == "PointGoal1"} == {10_000_000}
    assert {run.plan.cost_limits["cost"] for run in paper} == {5.0, 25.0, 50.0}
    for name in ("ablation", "limits"):
        runs = builtin.get(name).runs()
        assert len({run.id for run in runs}) == len(runs)  # no two variants are the same run
    with pytest.raises(UsageError, match="unknown study 'papers'"):
        builtin.get("papers")


@pytest.mark.parametrize(("text", "seconds"), [("25m", 1500.0), ("1h30m", 5400.0), ("90", 90.0), ("0.5s", 0.5)])
def test_budgets(text, seconds):
    assert seconds_of(text) == seconds
    with pytest.raises(UsageError, match="--stop-after"):
        seconds_of("soon")
