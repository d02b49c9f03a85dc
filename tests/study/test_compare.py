"""Comparisons: ordinary runs, stopped and gone on with, nothing repeated; one table and one figure."""

import json

import pytest

import cppo
from cppo.commands.cli import main
from cppo.runs import training
from cppo.runs.plan import load_plan, make_plan
from cppo.runs.run import standing
from cppo.types import UsageError

SMALL = {"hidden": (8, 8), "value_epochs": 2}
OPTIONS = dict(
    steps=1200,
    seeds=2,
    show=False,
    tensorboard=False,
    settings={"ppo": SMALL | {"epochs": 4}, "cpo": SMALL},
)


def rows(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in ("seconds", "check")} for line in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare") / "all"
    cppo.compare("ProbeBox", ["ppo", "cpo"], out=folder, **OPTIONS)
    return folder


def test_finished_runs_are_not_repeated(finished, monkeypatch):
    monkeypatch.setattr(training, "iterations", lambda *_, **__: pytest.fail("trained again"))
    said = []
    again = cppo.compare("ProbeBox", ["ppo", "cpo"], out=finished, tell=said.append, **OPTIONS)
    assert said == ["1 of 2: ppo is finished already", "2 of 2: cpo is finished already"]
    assert {name: run.plan.seeds for name, run in again.runs.items()} == {"ppo": (0, 1), "cpo": (0, 1)}


def test_a_stopped_comparison_goes_on_where_it_was(finished, tmp_path):
    def stop(seen):
        if seen[0]["iteration"] == 2:
            raise KeyboardInterrupt

    options = OPTIONS | {"checkpoint_seconds": 0.0}
    with pytest.raises(KeyboardInterrupt):
        cppo.compare("ProbeBox", ["ppo", "cpo"], out=tmp_path / "stopped", callback=stop, **options)
    assert not (tmp_path / "stopped" / "cpo").exists()
    seen, said = [], []
    again = dict(callback=lambda r: seen.append(r[0]["iteration"]), tell=said.append)
    cppo.compare("ProbeBox", ["ppo", "cpo"], out=tmp_path / "stopped", **again, **options)
    assert said == ["1 of 2: ppo, going on where it stopped", "2 of 2: cpo"]
    assert seen == [3, 1, 2, 3]  # the stop came in the second iteration of ppo, which was saved
    for name in ("ppo", "cpo"):
        assert rows(tmp_path / "stopped" / name) == rows(finished / name)


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path):
    plan = make_plan("ppo", "ProbeBox", steps=400, seeds=2, settings=OPTIONS["settings"]["ppo"])
    (tmp_path / "run").mkdir()
    plan.save(tmp_path / "run", {})
    (tmp_path / "run" / "metrics.jsonl").touch()
    assert standing(plan, tmp_path / "run") == "new"
    options = training.Options(show=False, tensorboard=False)
    assert training.ensure(plan, tmp_path / "run", options).summary["steps"] == 400


def test_more_steps_extend_a_run_and_fewer_are_refused(finished):
    saved = load_plan(finished / "ppo")
    assert standing(saved.with_steps(2000), finished / "ppo") == "stopped"
    with pytest.raises(UsageError, match="steps is 1200 there, 800 here"):
        standing(saved.with_steps(800), finished / "ppo")


def test_the_command_prints_one_ranked_table_and_draws_one_figure(finished, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = ["--set", "ppo.hidden=(8,8)", "ppo.value_epochs=2", "ppo.epochs=4"]
    words += ["cpo.hidden=(8,8)", "cpo.value_epochs=2", "--seeds", "2", "--steps", "1200", "--out", str(finished)]
    main(["compare", "--env", "ProbeBox", "--algos", "ppo,cpo", *words])
    said = capsys.readouterr().out
    table = said[said.index("algorithm") :]
    assert table.index("cpo") < table.index("ppo ")  # after three updates both are over the limit, PPO further
    assert "within" in said and "0 of 2" in said and "cost (≤ 3)" in said
    assert (finished / "compare.png").stat().st_size > 10_000
    saved = json.loads((finished / "compare.json").read_text())
    assert [row["name"] for row in saved["ranking"]] == ["cpo", "ppo"]
    assert saved["ranking"][0]["cost"]["cost"]["mean"] > 3.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algos", "ppo,nothing"], "unknown algorithm"),
        (["--algos", "ppo,ppo"], "compared once"),
        (["--algos", ""], "at least one algorithm"),
        (["--set", "kl=0.1"], "ALGORITHM.name=value"),
        (["--algos", "ppo", "--set", "cpo.kl=0.1"], "not compared"),
        (["--algos", "ppo", "--set", "ppo.colour=red"], "unknown setting"),
    ],
)
def test_wrong_words_are_told_before_anything_starts(words, message, capsys, tmp_path):
    with pytest.raises(SystemExit) as stop:
        main(["compare", "--env", "ProbeBox", "--out", str(tmp_path / "none"), *words])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "none").exists()


def test_another_run_in_the_folder_is_not_touched(finished, capsys):
    before = rows(finished / "ppo")
    with pytest.raises(SystemExit):
        main(["compare", "--env", "ProbeBox", "--algos", "ppo", "--seeds", "3", "--out", str(finished)])
    error = capsys.readouterr().err
    assert "seeds is (0, 1) there, (0, 1, 2) here" in error.replace("\n", " ")
    assert "--out" in error
    assert rows(finished / "ppo") == before
