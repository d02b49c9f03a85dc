"""Policies that come with cppo: opened by name, filmed, exported, started from; their records are what pages say."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import cppo
from cppo.commands import cli
from cppo.runs import checkpoint, pretrained
from cppo.runs.learner import learner_for
from cppo.runs.member import start_from
from cppo.runs.plan import make_plan

ROOT = Path(__file__).parents[2]
NAMES = [name.removeprefix(pretrained.SCHEME) for name in pretrained.names()]


def record(name):
    return json.loads((pretrained.HOME / name / "record.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_each_is_small_and_whole_and_acts(name):
    run = cppo.load(f"pretrained:{name}")
    assert run.parameters_file().stat().st_size < 120_000
    spec = run.plan.spec
    action = run.act(np.zeros(spec.obs_shape))
    assert np.all(action >= spec.action.low) and np.all(action <= spec.action.high)
    about = record(name)
    assert (about["env"], about["steps"]) == (name, run.steps)
    assert f"{run.steps:,} of {about['trained_steps']:,} steps" in run.stage
    assert ("Best feasible" in run.stage) == (about["chosen"] == "best")


def test_it_does_what_its_record_says():
    """PointCircle: fresh episodes agree with the recorded mean within both intervals."""
    about = record("PointCircle")
    found = cppo.evaluate("pretrained:PointCircle", episodes=100)["policies"]
    for row, actions in zip(found, ("deterministic", "sampled"), strict=True):
        for value, recorded in ((row["return"], about[actions]["return"]), (row["cost"]["cost"],) * 2):
            assert abs(value["mean"] - recorded["mean"]) <= 1.5 * (value["half_width"] + recorded["half_width"]) + 0.1
    sampled = about["sampled"]["cost"]["cost"]
    assert sampled["mean"] <= about["cost_limits"]["cost"] and 0 < sampled["share_over"] < 1


def test_a_run_starts_from_one():
    """Both seeds take its policy, its critics and its normaliser; the limit is the run's own."""
    plan = make_plan("cppo", "PointCircle", seeds=2, cost_limit=3.0, init_from="pretrained:PointCircle")
    fresh, _, _ = learner_for([plan], plan.build_env(plan.settings.num_envs)).start()
    mine = checkpoint.named_arrays(start_from(fresh, plan.init_from))
    source, _ = checkpoint.load(pretrained.located("pretrained:PointCircle") / checkpoint.MODEL)
    for name in ("agent.policy.log_std", "agent.cost_value.params.layers.0.weight", "agent.normaliser.mean"):
        assert np.array_equal(mine[name], np.repeat(source[name], 2, axis=0)), name
    assert plan.cost_limits == {"cost": 3.0}


def test_its_critics_are_whole_and_their_optimisers_begin_anew():
    run = cppo.load("pretrained:PointCircle")
    saved, _ = checkpoint.load(run.parameters_file())
    arrays = checkpoint.named_arrays({"agent": run.agents[1]})
    fresh = {name for name in arrays if checkpoint.OPTIMISER in name}
    assert saved.keys() == arrays.keys() - fresh and len(fresh) > 10
    assert all(np.array_equal(arrays[name], array) for name, array in saved.items())
    assert not any(arrays[name].any() for name in fresh)


def test_what_is_made_of_one_goes_into_the_working_directory(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    before = sorted(path.name for path in (pretrained.HOME / "PointCircle").iterdir())
    cli.main(["export", "pretrained:PointCircle"])
    assert cppo.load("pretrained:PointCircle").output("video.mp4").resolve() == tmp_path / "PointCircle-video.mp4"
    assert [path.name for path in tmp_path.iterdir()] == ["PointCircle-policy.onnx"]
    assert sorted(path.name for path in (pretrained.HOME / "PointCircle").iterdir()) == before


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "pretrained:PointGaol1"],
        ["train", "--init-from", "pretrained:"],
        ["train", "--resume", "pretrained:PointCircle"],
    ],
)
def test_another_name_gets_one_line(words, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said and "pretrained:PointCircle" in said


def test_the_page_says_what_the_records_say():
    rows = {}
    for line in (ROOT / "docs/pretrained.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if found := re.fullmatch(r"`pretrained:(\w+)`", cells[0]):
            rows[found[1]] = cells[1:]
    assert sorted(rows) == NAMES
    for name, cells in rows.items():
        about = record(name)
        (limit,), sampled = about["cost_limits"].values(), about["sampled"]
        (cost,) = sampled["cost"].values()
        whole = lambda value: f"{value['mean']:.3g} ± {value['half_width']:.2g}"  # noqa: E731
        expected = [f"{about['steps']:,}", whole(sampled["return"]), f"{whole(cost)} / {limit:g}"]
        expected += [f"{cost['share_over']:.0%}", f"{about['deterministic']['return']['mean']:.3g}"]
        assert cells == expected
