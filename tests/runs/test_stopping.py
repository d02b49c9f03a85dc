"""The loop in one's hands, and what ends it: a break, the callback, a rule, the time."""

import json

import numpy as np
import pytest

import cppo
from cppo.runs import checkpoint
from cppo.runs.options import Options, seconds_of
from cppo.runs.stopping import NEWEST, Rules
from cppo.types import UsageError

OPTIONS = dict(algo="ppo", env="ProbeBox", seeds=2, steps=2400, show=False, tensorboard=False)


def rows(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in ("seconds", "check")} for line in lines]


def newest(folder):
    return checkpoint.iteration_of(checkpoint.latest(folder / "checkpoints"))


def test_a_loop_that_is_left_goes_on_as_if_never_stopped(tmp_path):
    for step in cppo.training(**OPTIONS, out=tmp_path / "run"):
        assert step.rows[0]["iteration"] == step.number
        if step.number == 2:
            acted = step.policy().act([1.0])
            break
    assert newest(tmp_path / "run") == 2
    np.testing.assert_array_equal(acted, cppo.load(tmp_path / "run").policy().act([1.0]))
    with pytest.raises(ZeroDivisionError), cppo.resuming(tmp_path / "run", show=False, tensorboard=False) as loop:
        first = next(loop)
        next(loop)
        with pytest.raises(UsageError, match="is gone"):
            first.policy()
        1 / 0  # noqa: B018
    assert newest(tmp_path / "run") == 4
    for step in cppo.resuming(tmp_path / "run", show=False, tensorboard=False, checkpoint_seconds=1e9):
        step.save()
        assert newest(tmp_path / "run") == step.number
    assert rows(tmp_path / "run") == rows(cppo.train(**OPTIONS, out=tmp_path / "whole").folder)


def test_the_callback_ends_training_and_what_was_reached_is_summed_up(tmp_path):
    run = cppo.train(**OPTIONS, out=tmp_path / "run", callback=lambda rows: rows[0]["iteration"] == 3)
    assert run.summary["steps"] == 1200 and "callback" in run.summary["stopped"] and run.is_summed_up
    whole = cppo.resume(tmp_path / "run", show=False, tensorboard=False)
    assert whole.summary["steps"] == 2400 and "stopped" not in whole.summary


@pytest.mark.slow
def test_a_rule_stops_a_resumed_run_where_it_stops_an_undisturbed_one(tmp_path):
    options = OPTIONS | {"steps": 8000}
    undisturbed = cppo.train(**options, out=tmp_path / "whole", stop_when=["return=1000", "return=1"])
    assert undisturbed.summary["stopped"] == "return=1 holds"
    assert newest(tmp_path / "whole") == NEWEST
    for step in cppo.training(**options, out=tmp_path / "run"):
        if step.number == NEWEST:
            break
    resumed = cppo.resume(tmp_path / "run", show=False, tensorboard=False, stop_when="return=1")
    assert rows(resumed.folder) == rows(undisturbed.folder)


def test_no_iteration_is_begun_when_the_time_is_over(tmp_path):
    run = cppo.train(**OPTIONS, out=tmp_path / "run", stop_after=0.0)
    assert newest(tmp_path / "run") == 0 and not run.is_summed_up
    assert Options(stop_after=10.0).late(11.0) and not Options(stop_after=10.0).late(1.0)
    assert seconds_of("3h55m") == 14_100


def seen(rules, *found, seed=0):
    """What holds after each of these returns and costs, 100 steps apart."""
    held = []
    for steps, (earned, cost) in enumerate(found, start=1):
        rules.see([{"seed": seed, "steps": 100 * steps, "eval_return": earned, "eval_bound": cost}])
        held.append(rules.met())
    return held


def test_rules_ask_for_all_their_conditions():
    rule = "feasible,return=5"
    found = seen(Rules([rule], {"cost": 1.0}, True), (9.0, 2.0), (None, None), (4.0, 0.5), (5.0, 1.0))
    assert found == [None, None, None, rule]


def test_no_progress_counts_from_the_best_feasible():
    rule = "stalled=200"
    found = seen(Rules([rule], {"cost": 1.0}, True), (9.0, 2.0), (1.0, 0.5), (8.0, 2.0), (1.0, 0.4), (1.5, 0.5))
    assert found == [None, None, None, rule, None]


def test_rules_hold_for_every_seed():
    rules = Rules(["return=5"], {"cost": 1.0}, True)
    assert seen(rules, (9.0, 0.0)) == ["return=5"]
    assert seen(rules, (4.0, 0.0), (5.0, 0.0), seed=1) == [None, "return=5"]


@pytest.mark.parametrize("rule", ["faesible", "return", "return=x", "feasible=1"])
def test_a_rule_that_cannot_be_is_refused_with_an_example(rule):
    with pytest.raises(UsageError, match="feasible,return=20"):
        Options(stop_when=rule)
