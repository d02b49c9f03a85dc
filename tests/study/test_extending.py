"""A study that is extended, retried or run twice at once loses nothing, and its report says how far it is."""

import json

import pytest

import cppo
from cppo.reports import records as results
from cppo.reports import tables
from cppo.reports.summaries import summaries
from cppo.runs.lock import claim
from cppo.runs.run import record_failure, saved_iterations
from cppo.study import execute
from cppo.study.definition import Part, Study
from cppo.study.execute import StudyOptions, run_folder
from cppo.types import UsageError

QUICK = {"epochs": 2, "value_epochs": 2, "batch_size": 100, "num_envs": 10}


def study(**changes):
    part = dict(envs=["ProbeBox"], algos=["ppo_lag"], seeds=2, steps=300, settings=QUICK)
    return Study("small", [Part(**(part | changes))])


def train(folder, asked, whole=None, **options):
    return execute.execute(asked, folder, StudyOptions(show=False, **options), whole=whole)


def lines(folder, run):
    return (run_folder(folder, run) / "metrics.jsonl").read_text().splitlines()


def test_a_failed_extension_keeps_the_finished_run_and_goes_on_when_retried(tmp_path):
    train(tmp_path, study())
    run = study().runs()[0]
    before = lines(tmp_path, run)
    record_failure(run_folder(tmp_path, run), OSError("no space left"))
    assert len(train(tmp_path, study()).finished) == 2
    assert len(results.digest(tmp_path)["groups"][0]["seeds"]) == 2
    failed = train(tmp_path, study(steps=600))
    assert [problem for _, problem in failed.failed] == ["OSError: no space left"]
    assert len(results.digest(tmp_path)["failed"]) == 1
    assert len(train(tmp_path, study(steps=600), retry=True).finished) == 2
    assert lines(tmp_path, run)[:3] == before  # with their times: nothing was computed anew


def test_more_seeds_and_more_steps_do_not_start_finished_runs_anew(tmp_path):
    train(tmp_path, study(seeds=1), checkpoint_seconds=1e9)
    run = study().runs()[0]
    before = lines(tmp_path, run)
    assert saved_iterations(run_folder(tmp_path, run)) == [0, 3]
    assert len(train(tmp_path, study(steps=600)).finished) == 2
    assert lines(tmp_path, run)[:3] == before


def test_a_run_without_its_plan_is_refused_not_removed(tmp_path):
    train(tmp_path, study(seeds=1))
    run = study().runs()[0]
    (run_folder(tmp_path, run) / "config.json").unlink()
    before = lines(tmp_path, run)
    done = train(tmp_path, study(seeds=1, steps=600))
    assert "without its config.json" in done.failed[0][1]
    assert lines(tmp_path, run) == before


def test_a_run_of_another_process_is_left_to_it(tmp_path):
    first = study().runs()[0]
    with claim(run_folder(tmp_path, first)):
        done = train(tmp_path, study())
    assert ([run.seed for run in done.finished], [run.seed for run in done.unfinished]) == ([1], [0])
    assert len(train(tmp_path, study()).finished) == 2


def test_a_report_says_unfinished_while_a_study_is_being_extended(tmp_path):
    train(tmp_path, study())
    train(tmp_path, study(steps=600), stop_after=0.0)
    record = results.digest(tmp_path)
    assert (len(record["groups"]), len(record["unfinished"])) == (0, 2)
    assert results.digest(tmp_path, steps=300)["groups"][0]["steps"] == 300
    train(tmp_path, study(), stop_after=0.0)
    assert results.digest(tmp_path)["groups"][0]["steps"] == 300


def test_runs_of_one_environment_are_compared_at_the_same_number_of_steps(tmp_path):
    both = study(algos=["ppo_lag", "ppo"])
    train(tmp_path, both)
    first = results.digest(tmp_path)
    train(tmp_path, both.cut(algos=["ppo"], seeds=1, steps=600), whole=both)
    record = results.digest(tmp_path)
    assert [(group["algo"], group["steps"], len(group["seeds"])) for group in record["groups"]] == [
        ("ppo_lag", 300, 2),
        ("ppo", 300, 2),
    ]
    returns = [[seed["final_return"] for group in one["groups"] for seed in group["seeds"]] for one in (first, record)]
    assert returns[0] == pytest.approx(returns[1])
    assert (first["longer"], record["longer"]) == ({}, {"ProbeBox": 600})
    assert "the longest has 600" in tables.render(record)


def test_a_run_whose_batch_is_longer_than_another_run_is_left_out_and_named(tmp_path):
    long = study(algos=["ppo"], steps=400, settings={**QUICK, "batch_size": 400})
    train(tmp_path, Study("small", [*study().parts, *long.parts]))
    record = results.digest(tmp_path)
    assert [group["algo"] for group in record["groups"]] == ["ppo_lag"]
    assert "longer than the 300 steps" in record["failed"][0]["error"]


def test_what_a_study_no_longer_asks_for_leaves_its_reports_and_stays_on_disk(tmp_path):
    labels = {"": {}, "slow": {"policy_rate": 1e-4}}
    before = Study("small", [*study(envs=["ProbeBox"], variants=labels).parts, *study(envs=["ProbBox"]).parts])
    done = train(tmp_path, before)
    assert (len(done.finished), len(done.failed)) == (4, 2)
    assert "ProbBox" in tables.render(results.digest(tmp_path))
    now = study(settings={**QUICK, "cost_limit": 2.0})
    train(tmp_path, now.cut(seeds=1), whole=now)
    (group,) = results.digest(tmp_path)["groups"]
    assert (group["cost_limits"], [seed["seed"] for seed in group["seeds"]]) == ({"cost": 2.0}, [0])
    assert not results.digest(tmp_path)["failed"]
    assert len(list((tmp_path / "runs").iterdir())) == 5
    train(tmp_path, study(), whole=study())
    (group,) = results.digest(tmp_path)["groups"]
    assert len(group["seeds"]) == 2 and group["cost_limits"] != {"cost": 2.0}
    train(tmp_path, study(seeds=3), whole=study())
    train(tmp_path, study(), whole=study())  # more seeds than the file has were asked for, and are kept
    assert len(results.digest(tmp_path)["groups"][0]["seeds"]) == 3


def test_a_seed_with_other_settings_is_left_out_and_named(tmp_path):
    train(tmp_path, study(settings={**QUICK, "cost_limit": 2.0}))
    train(tmp_path, study(seeds=1))
    record = results.digest(tmp_path)
    assert [seed["seed"] for seed in record["groups"][0]["seeds"]] == [0]
    assert "(cost_limit (2.0,), not (3.0,))" in record["failed"][0]["error"]


def test_a_report_on_the_first_steps(tmp_path):
    asked = study()
    train(tmp_path, asked)
    record_failure(run_folder(tmp_path, asked.runs()[1]), OSError("no space left"))
    train(tmp_path, study(steps=600), stop_after=0.0)
    record = results.digest(tmp_path, steps=250)
    assert (record["groups"][0]["steps"], len(record["groups"][0]["seeds"])) == (200, 2)  # in whole batches
    assert [one["error"] for one in record["failed"]] == ["OSError: no space left"]
    assert results.digest(tmp_path, steps=50)["groups"] == []
    for steps in (0, -5):
        with pytest.raises(UsageError, match="at least 1"):
            results.digest(tmp_path, steps=steps)


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_damaged_files_are_named(tmp_path, content):
    for name in ("study.json", "results.json"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text(content)
        with pytest.raises(UsageError, match=name):
            results.load(folder)
    with pytest.raises(UsageError, match=r"study\.json"):
        train(tmp_path / "study.json", study())
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        train(tmp_path / "file", study())


def test_two_parts_that_a_report_could_not_tell_apart_are_refused(tmp_path):
    parts = [Part(envs=["ProbeBox"], seeds=1, steps=300, settings={**QUICK, "beta": beta}) for beta in (0.3, 0.7)]
    with pytest.raises(UsageError, match="with different settings in two parts"):
        train(tmp_path, Study("twice", parts))
    assert not tmp_path.joinpath("study.json").exists()


def test_runs_of_other_settings_are_other_groups(tmp_path):
    for seed, limit in enumerate((5.0, 20.0)):
        cppo.train(
            "ppo_lag", "ProbeBox", steps=200, seed=seed, cost_limit=limit, settings=QUICK, show=False,
            out=tmp_path / f"limit{limit:g}",
        )  # fmt: skip
    record = results.load(tmp_path)
    found = {group["variant"]: group["cost_limits"]["cost"] for group in record["groups"]}
    assert found == {"limit5": 5.0, "limit20": 20.0}


def test_a_seed_that_never_recovered_did_not_switch(tmp_path):
    train(tmp_path, study())
    record = results.digest(tmp_path)
    (row,) = summaries(record)
    assert row["switches"] is None
    record["groups"][0]["seeds"][1]["switches"] = 19
    (row,) = summaries(json.loads(json.dumps(record)))
    assert row["switches"] == 9.5
